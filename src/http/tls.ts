import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer, type Server, type ServerOptions } from 'node:https';
import { createSecureContext } from 'node:tls';
import { messageOf } from '../errors.ts';

/** A certificate or its key that the service cannot use; the message names the file. */
export class CertificateInvalid extends Error {
  override readonly name = 'CertificateInvalid';
}

/** TLS by a certificate and its key in two files (PEM). */
export interface Tls {
  /** A server of HTTP over TLS 1.2 or 1.3, which takes over every certificate that is renewed. */
  createServer(options: ServerOptions): Server;
  /**
   * Reads the files again, for connections from now on; those that are open stay as they are. Returns until when the
   * certificate is valid. Throws CertificateInvalid, and then all stays as it is.
   */
  renew(): string;
}

/** Reads the files; undefined when none are named. Throws CertificateInvalid. */
export function openTls(certFile: string, keyFile: string): Tls | undefined {
  if (certFile === '') return undefined;
  let pair = readPair(certFile, keyFile);
  const servers = new Set<Server>();
  return {
    createServer: (options) => {
      const server = createServer({ ...options, ...pair, minVersion: 'TLSv1.2' });
      servers.add(server);
      return server;
    },
    renew: () => {
      pair = readPair(certFile, keyFile);
      for (const server of servers) server.setSecureContext({ ...pair, minVersion: 'TLSv1.2' });
      return new X509Certificate(pair.cert).validTo;
    },
  };
}

function readPair(certFile: string, keyFile: string): { readonly cert: Buffer; readonly key: Buffer } {
  const cert = read(certFile);
  const key = read(keyFile);
  try {
    createSecureContext({ cert, key });
  } catch (error: unknown) {
    throw new CertificateInvalid(
      `${certFile} and ${keyFile} must be a certificate and its key, in PEM: ${messageOf(error)}`,
    );
  }
  return { cert, key };
}

function read(file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error: unknown) {
    throw new CertificateInvalid(`${file} cannot be read: ${messageOf(error)}`);
  }
}
