// cspell:words secp brainpool
import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { createServer, type Server, type ServerOptions } from 'node:https';
import { createSecureContext } from 'node:tls';
import type { EventLog } from '../../observability/log-events.ts';
import { messageOf, OperatorError } from '../../thrown-errors.ts';

/**
 * Limits TLS 1.2 to ciphers with forward secrecy and authenticated encryption (RFC 9325 §4.2). TLS 1.3 keeps
 * its default ciphers.
 */
const SETTINGS = {
  minVersion: 'TLSv1.2',
  ciphers: [
    'ECDHE-ECDSA-AES128-GCM-SHA256',
    'ECDHE-RSA-AES128-GCM-SHA256',
    'ECDHE-ECDSA-AES256-GCM-SHA384',
    'ECDHE-RSA-AES256-GCM-SHA384',
    'ECDHE-ECDSA-CHACHA20-POLY1305',
    'ECDHE-RSA-CHACHA20-POLY1305',
  ].join(':'),
} as const;

/** Curves of keys of type `ec` with which OpenSSL does handshakes by default; those of brainpool with TLS 1.3 only. */
const CURVES = [
  'prime256v1',
  'secp384r1',
  'secp521r1',
  'brainpoolP256r1',
  'brainpoolP384r1',
  'brainpoolP512r1',
];

/**
 * A certificate in PEM, with each label that OpenSSL reads. Only a line that begins with `-----` has a meaning (RFC
 * 7468 §5).
 */
const PEM_CERTIFICATE = /^-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----.+?^-----END [A-Z0-9 ]+-----/gms;

/** Error: the certificate or its key cannot be used. The message names the file. */
class CertificateInvalid extends OperatorError {
  override readonly name = 'CertificateInvalid';
}

/** TLS with a certificate and its key from two PEM files. */
export interface Tls {
  /** Creates an HTTPS server for TLS 1.2 or 1.3. `reload` switches the server to a new certificate. */
  createServer(options: ServerOptions): Server;
  /**
   * Reads the two files again. New connections use the new certificate; open connections are not affected.
   * If a file is invalid, throws CertificateInvalid and keeps the old certificate.
   */
  reload(): void;
  /** Returns the time when the first of the certificates in use expires: of the service and its intermediates. */
  expiresAt(): Date;
}

/**
 * Reads the certificate and its key. Returns undefined if no files are configured. Throws CertificateInvalid
 * if the files cannot be used. Logs a warning if a certificate is not valid now, or every user can read the key file.
 * `reload` repeats these checks.
 */
export function openTls(certFile: string, keyFile: string, log: EventLog): Tls | undefined {
  if (certFile === '') return undefined;
  let pair = readPair(certFile, keyFile);
  warnAboutFiles(log, keyFile, pair);
  const servers = new Set<Server>();
  return {
    createServer: (options) => {
      const { cert, key } = pair;
      const server = createServer({ ...options, cert, key, ...SETTINGS });
      servers.add(server);
      return server;
    },
    reload: () => {
      pair = readPair(certFile, keyFile);
      warnAboutFiles(log, keyFile, pair);
      const { cert, key } = pair;
      for (const server of servers) server.setSecureContext({ cert, key, ...SETTINGS });
    },
    expiresAt: () => new Date(Math.min(...pair.certificates.map(({ validToDate }) => validToDate.getTime()))),
  };
}

interface Pair {
  readonly cert: Buffer;
  readonly key: Buffer;
  /** The certificate of the service, and the intermediate ones after it. */
  readonly certificates: readonly X509Certificate[];
}

function readPair(certFile: string, keyFile: string): Pair {
  const cert = read('--tls-cert', certFile);
  const key = read('--tls-key', keyFile);
  const inPem = `${certFile} must be a certificate in PEM`;
  if (!cert.includes('-----BEGIN ')) throw new CertificateInvalid(inPem);
  const certificate = parse(inPem, () => new X509Certificate(cert));
  if (/^(?:-----BEGIN |Proc-Type: .*)ENCRYPTED/m.test(key.toString('latin1')))
    throw new CertificateInvalid(`${keyFile} must have no passphrase; remove it with openssl pkey`);
  const privateKey = parse(`${keyFile} must be a private key in PEM`, () => createPrivateKey(key));
  const pair = `${certFile} and ${keyFile} must be a certificate and its key`;
  // OpenSSL itself accepts a key of another type or of an unusual curve, and then fails at each handshake.
  if (!certificate.checkPrivateKey(privateKey))
    throw new CertificateInvalid(
      `${pair}: this key belongs to another certificate; the service's own must be the first one of the file`,
    );
  if (!isUsable(privateKey))
    throw new CertificateInvalid(
      `${keyFile} must be a key of another type, such as RSA, P-256 or Ed25519: no client can do a handshake with it`,
    );
  parse(pair, () => createSecureContext({ cert, key }));
  const [, ...others] = cert.toString('latin1').match(PEM_CERTIFICATE) ?? [];
  const intermediates = others.map((one) => parse(inPem, () => new X509Certificate(one)));
  return { cert, key, certificates: [certificate, ...intermediates] };
}

function parse<T>(rule: string, parsed: () => T): T {
  try {
    return parsed();
  } catch (error: unknown) {
    throw new CertificateInvalid(`${rule}: ${messageOf(error)}`);
  }
}

/** True for a key with which clients of TLS can do a handshake. */
function isUsable({ asymmetricKeyType: type, asymmetricKeyDetails }: KeyObject): boolean {
  if (type === 'ec') return CURVES.includes(asymmetricKeyDetails?.namedCurve ?? '');
  return type !== 'dsa';
}

function read(flag: string, file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error: unknown) {
    throw new CertificateInvalid(`${flag} ${file} cannot be read: ${messageOf(error)}`);
  }
}

function warnAboutFiles(log: EventLog, keyFile: string, { certificates }: Pair): void {
  const now = Date.now();
  for (const { subject, validFromDate, validToDate } of certificates) {
    if (now >= validFromDate.getTime() && now <= validToDate.getTime()) continue;
    log.event(
      'a certificate in --tls-cert is not valid now, so clients may reject it; renew it, or correct the clock',
      { subject, validFrom: validFromDate.toISOString(), validTo: validToDate.toISOString() },
    );
  }
  // A group may read it: under systemd a group is how the temporary user reaches the key.
  // Windows has no file modes, so there is nothing to check.
  if (process.getuid === undefined) return;
  const { mode } = statSync(keyFile);
  if ((mode & 0o004) === 0) return;
  log.event('every user can read the TLS key file; set its mode to 640 or 600', {
    file: keyFile,
    mode: (mode & 0o777).toString(8),
  });
}
