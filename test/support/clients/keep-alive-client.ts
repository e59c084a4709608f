import { Agent, type IncomingMessage, request } from 'node:http';

export interface Answer {
  readonly status: number;
  /** True if the response is an idempotent replay. */
  readonly replayed: boolean;
  readonly body: string;
  readonly requestId: string;
}

/** A client with one keep-alive TCP connection, one request at a time, and no retries. */
export class Connection {
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 });
  readonly #url: string;
  readonly #authorization: string;

  constructor(url: string, token: string) {
    this.#url = url;
    this.#authorization = `Bearer ${token}`;
  }

  /** Creates a plant. Resolves to undefined when no response arrived. */
  create(
    id: bigint,
    plant: { readonly name: string; readonly tag: string | null },
    key?: string,
  ): Promise<Answer | undefined> {
    const { name, tag } = plant;
    const json = JSON.stringify({ name, tag: tag ?? undefined });
    const headers = key === undefined ? {} : { 'idempotency-key': key };
    return this.#send(
      'POST',
      '/plants',
      { ...headers, 'content-type': 'application/json' },
      `{"id":${id},${json.slice(1)}`,
    );
  }

  /** Deletes a plant. Resolves to undefined when no response arrived. */
  delete(id: bigint): Promise<Answer | undefined> {
    return this.#send('DELETE', `/plants/${id}`, {}, '');
  }

  /** Lists plants; all by default. Resolves to undefined when no response arrived. */
  list(limit?: number): Promise<Answer | undefined> {
    return this.#send('GET', limit === undefined ? '/plants' : `/plants?limit=${limit}`, {}, '');
  }

  close(): void {
    this.#agent.destroy();
  }

  #send(
    method: string,
    path: string,
    headers: Readonly<Record<string, string>>,
    body: string,
  ): Promise<Answer | undefined> {
    const options = {
      method,
      agent: this.#agent,
      headers: { ...headers, authorization: this.#authorization },
    };
    return new Promise((resolve) => {
      request(this.#url + path, options, (response) => resolve(answerOf(response)))
        .on('error', () => resolve(undefined))
        .end(body);
    });
  }
}

/** Reads a response. Resolves even if the service crashes after the head, since the head has the outcome. */
function answerOf(response: IncomingMessage): Promise<Answer> {
  const status = response.statusCode ?? 0;
  const replayed = response.headers['idempotent-replayed'] === 'true';
  const requestId = String(response.headers['x-request-id']);
  let body = '';
  return new Promise((resolve) => {
    const done = (): void => resolve({ status, replayed, body, requestId });
    response.setEncoding('utf8').on('data', (text: string) => {
      body += text;
    });
    response.on('error', done).on('end', done);
  });
}
