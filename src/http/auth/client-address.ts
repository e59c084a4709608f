import { BlockList, isIP, isIPv4 } from 'node:net';
import ipaddr from 'ipaddr.js';

/**
 * Returns an IPv4 address, or the first 64 bits of an IPv6 address. Providers usually assign a whole /64 to
 * one customer (RFC 6177). An address of NAT64 (64:ff9b::/96, RFC 6052) counts as its IPv4 address. Ignores a
 * port. Returns `unknown` if the text is no address.
 */
export function networkOf(address: string | undefined): string {
  // The client's address is undefined after the client has reset its connection.
  if (address === undefined) return 'unknown';
  // The usual case, without the library, which takes over a microsecond.
  if (isIPv4(address)) return address;
  const host = withoutPort(address);
  if (!ipaddr.isValid(host)) return 'unknown';
  const parsed = ipaddr.process(host);
  if ('octets' in parsed) return parsed.toString();
  if (parsed.range() === 'rfc6052') return parsed.toByteArray().slice(12).join('.');
  return parsed.parts
    .slice(0, 4)
    .map((part) => part.toString(16))
    .join(':');
}

/** Returns a function that is true for addresses of these IP addresses and networks, with or without a port. */
export function createTrust(networks: readonly string[]): (address: string | undefined) => boolean {
  const trusted = new BlockList();
  for (const network of networks) {
    const [address = '', bits] = network.split('/');
    const family = isIPv4(address) ? 'ipv4' : 'ipv6';
    if (bits === undefined) trusted.addAddress(address, family);
    else trusted.addSubnet(address, Number(bits), family);
  }
  return (address = '') => {
    const host = withoutPort(address);
    return isIP(host) !== 0 && trusted.check(host, isIPv4(host) ? 'ipv4' : 'ipv6');
  };
}

/** Returns an address without the port and the brackets that some gateways add. */
function withoutPort(address: string): string {
  return /^\[(.+)\](?::\d+)?$/.exec(address)?.[1] ?? /^([\d.]+):\d+$/.exec(address)?.[1] ?? address;
}
