import { on } from 'node:events';
import type { Worker } from 'node:worker_threads';
import { startThread } from '../../packaged-files.ts';
import type { StoreUnavailable } from '../store.ts';
import { notOpened, reasonOf, storeFailed } from './errors.ts';
import type { WriterMessage, WriterReply, WriterRequest } from './writer-thread.ts';

interface Writer {
  request(request: WriterRequest): Promise<WriterReply>;
  close(): Promise<void>;
}

interface WriterEvents {
  breakWith(reason: string): void;
  endCheckpoint(failure: string | undefined): void;
}

/** Starts the writer thread. Rejects with StoreNotOpened if it cannot open the file. */
export async function startWriter(file: string, { breakWith, endCheckpoint }: WriterEvents): Promise<Writer> {
  const worker = await startWorker(file);
  const waiting: PromiseWithResolvers<WriterReply>[] = [];
  const ended = new Promise((resolve) => worker.once('exit', resolve));
  let closing = false;
  let failure: StoreUnavailable | undefined;

  function fail(reason: string): void {
    failure ??= storeFailed(file, reason);
    for (const { reject } of waiting.splice(0)) reject(failure);
    // Last, since it may throw or end the process.
    breakWith(reason);
  }

  worker.on('message', (message: unknown) => {
    if (!isOfWriter(message)) return;
    if (message.kind === 'broken') fail(message.reason);
    else if (message.kind === 'checkpointed') endCheckpoint(message.failure);
    else if (message.kind !== 'ready') waiting.shift()?.resolve(message);
  });
  worker.on('error', (error: unknown) => fail(`the writer thread ended: ${reasonOf(error)}`));
  worker.on('exit', (code) => {
    if (!closing) fail(`the writer thread ended with code ${code}`);
  });

  function request(request: WriterRequest): Promise<WriterReply> {
    if (failure !== undefined) return Promise.reject(failure);
    const reply = Promise.withResolvers<WriterReply>();
    worker.postMessage(request);
    waiting.push(reply);
    return reply.promise;
  }

  async function close(): Promise<void> {
    closing = true;
    // Waits for the reply to `close` or the end of the thread, whichever comes first: an ended thread never
    // replies.
    await Promise.race([request({ kind: 'close' }).catch(() => undefined), ended]);
    await worker.terminate();
    await ended;
  }

  return { request, close };
}

async function startWorker(file: string): Promise<Worker> {
  try {
    const worker = startThread('store/sqlite/writer-thread', file);
    await untilReady(worker);
    return worker;
  } catch (error: unknown) {
    throw notOpened(file, error);
  }
}

async function untilReady(worker: Worker): Promise<void> {
  for await (const [message] of on(worker, 'message', { close: ['exit'] })) if (isOfWriter(message)) return;
  throw new Error('its writer thread ended without an error');
}

/**
 * True for a message of the writer thread. Under `node --watch`, Node reports imported files on the same
 * channel.
 */
function isOfWriter(message: unknown): message is WriterMessage {
  return typeof message === 'object' && message !== null && 'kind' in message;
}
