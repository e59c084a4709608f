import { BlockList, isIP } from 'node:net';
import { ISSUER_LENGTH } from './token.ts';

const ISSUER = new RegExp(`^https?://[!-~]{1,${ISSUER_LENGTH}}$`);

/** True for an issuer URL (OpenID Connect Discovery 1.0 §3). */
export function isIssuer(text: string): boolean {
  if (!ISSUER.test(text) || /[?#@]/.test(text) || !URL.canParse(text)) return false;
  const { protocol, hostname } = new URL(text);
  return protocol === 'https:' || /^(?:localhost|127\.0\.0\.1|\[::1\])$/.test(hostname);
}

/** IPv4 addresses as IPv6 (RFC 4291 §2.5.5.2). A network of these is one of IPv4, with a prefix that is 96 bits longer. */
const mapped = new BlockList();
mapped.addSubnet('::ffff:0:0', 96, 'ipv6');

/** True for an IP address, or for a network with a prefix of /1 or longer. */
export function isNetwork(text: string): boolean {
  const [, address = '', bits] = /^([0-9A-Fa-f:.]+)(?:\/([0-9]{1,3}))?$/.exec(text) ?? [];
  const version = isIP(address);
  if (version === 0 || bits === undefined) return version !== 0;
  const least = version === 6 && mapped.check(address, 'ipv6') ? 97 : 1;
  return Number(bits) >= least && Number(bits) <= (version === 4 ? 32 : 128);
}

/** True for the origin of a web page (RFC 6454), as browsers write it. */
export function isOrigin(text: string): boolean {
  return /^https?:[^*]+$/.test(text) && URL.parse(text)?.origin === text;
}
