import { createServer } from 'node:http';
import type { Lifetime } from '../program.ts';
import { listenOnFreePort } from './free-port.ts';

interface Span {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  /** Span id of the parent; empty for the root of a trace. */
  readonly parentId: string;
  /** Duration of the span in nanoseconds. */
  readonly duration: bigint;
  readonly attributes: Readonly<Record<string, string | number>>;
  /** Status of the span: 0 unset, 2 error. */
  readonly status: number;
  /** Attributes of the span's resource. */
  readonly resource: Readonly<Record<string, string | number>>;
}

/** A local collector that receives traces by OTLP over HTTP. */
interface Collector {
  /** The collector's URL, for OTEL_EXPORTER_OTLP_ENDPOINT. */
  readonly url: string;
  readonly messages: readonly Buffer[];
  /** Returns the spans in all received messages. */
  spans(): Span[];
}

/** Starts a collector of traces. It stops after the test. */
export async function startCollector(lifetime: Lifetime): Promise<Collector> {
  const messages: Buffer[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const isTraces =
        request.url === '/v1/traces' && request.headers['content-type'] === 'application/x-protobuf';
      if (isTraces) messages.push(Buffer.concat(chunks));
      response.writeHead(isTraces ? 200 : 404, { 'content-type': 'application/x-protobuf' }).end();
    });
  });
  const port = await listenOnFreePort(server);
  lifetime.after(async () => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${port}`, messages, spans: () => messages.flatMap(readSpans) };
}

type Field = bigint | Buffer;

/** Parses a Protocol Buffers message into its fields, by field number. */
function readFields(message: Buffer): Map<number, Field[]> {
  const fields = new Map<number, Field[]>();
  let at = 0;

  function varint(): bigint {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = message.readUInt8(at);
      at += 1;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }

  function take(length: number): Buffer {
    at += length;
    return message.subarray(at - length, at);
  }

  function value(type: number): Field {
    switch (type) {
      case 0:
        return varint();
      case 1:
        return take(8).readBigUInt64LE();
      case 2:
        return take(Number(varint()));
      case 5:
        return BigInt(take(4).readUInt32LE());
      default:
        throw new Error(`unknown wire type in proto3: ${type}`);
    }
  }

  while (at < message.length) {
    const tag = Number(varint());
    const number = tag >> 3;
    fields.set(number, [...(fields.get(number) ?? []), value(tag & 7)]);
  }
  return fields;
}

const below = (message: Buffer, number: number): Buffer[] =>
  (readFields(message).get(number) ?? []).filter((field) => Buffer.isBuffer(field));

/**
 * Parses an OTLP message into its spans (opentelemetry/proto/collector/trace/v1/trace_service.proto and its
 * imports).
 */
function readSpans(message: Buffer): Span[] {
  return below(message, 1).flatMap((ofResource) => {
    const resource = attributesOf(below(ofResource, 1)[0] ?? Buffer.alloc(0), 1);
    const scopes = below(ofResource, 2);
    return scopes.flatMap((scope) => below(scope, 2)).map((span) => readSpan(span, resource));
  });
}

function readSpan(message: Buffer, resource: Span['resource']): Span {
  const fields = readFields(message);
  const bytes = (number: number): Buffer => below(message, number)[0] ?? Buffer.alloc(0);
  const time = (number: number): bigint => BigInt(fields.get(number)?.[0]?.toString() ?? 0);
  const [code] = readFields(bytes(15)).get(3) ?? [];
  return {
    name: bytes(5).toString(),
    traceId: bytes(1).toString('hex'),
    spanId: bytes(2).toString('hex'),
    parentId: bytes(4).toString('hex'),
    duration: time(8) - time(7),
    attributes: attributesOf(message, 9),
    status: Number(code ?? 0),
    resource,
  };
}

function attributesOf(message: Buffer, number: number): Record<string, string | number> {
  const pairs = below(message, number).map((pair) => {
    const [key = Buffer.alloc(0), value = Buffer.alloc(0)] = [...below(pair, 1), ...below(pair, 2)];
    const [text] = below(value, 1);
    const [integer] = readFields(value).get(3) ?? [];
    return [key.toString(), text === undefined ? Number(integer) : text.toString()];
  });
  return Object.fromEntries(pairs);
}
