import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createTrust, networkOf } from '../../../src/http/auth/client-address.ts';

test('networkOf → IPv4 address or IPv6 /64 network', () => {
  for (const [address, network] of [
    ['192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['::1', '0:0:0:0'],
    ['2001:db8::1', '2001:db8:0:0'],
    ['2001:0DB8:0:1::', '2001:db8:0:1'],
    ['2001:db8:0:1:2:3:4:5', '2001:db8:0:1'],
    ['2001:db8::2:3:4:5:6', '2001:db8:0:2'],
    ['::FFFF:0102:0304', '1.2.3.4'],
    ['0:0:0:0:0:ffff:1.2.3.4', '1.2.3.4'],
    ['1.2.3.4:5678', '1.2.3.4'],
    ['[::ffff:1.2.3.4]:5678', '1.2.3.4'],
    ['[2001:db8:0:1::7]:443', '2001:db8:0:1'],
    ['[2001:db8:0:1::7]', '2001:db8:0:1'],
    ['64:ff9b::192.0.2.1', '192.0.2.1'],
    ['64:ff9b::102:304', '1.2.3.4'],
    ['64:ff9b:0:0:1::', '64:ff9b:0:0'],
    ['fe80::1%eth0', 'fe80:0:0:0'],
    ['unknown', 'unknown'],
    ['_hidden:5678', 'unknown'],
    ['', 'unknown'],
    [undefined, 'unknown'],
  ] as const)
    assert.equal(networkOf(address), network);
});

test('createTrust → the addresses and networks, in each notation, with or without a port', () => {
  const isTrusted = createTrust(['127.0.0.1', '10.0.0.0/8', '::1', '2001:db8::/33', '::ffff:192.0.2.0/120']);
  const trusted = [
    ...['127.0.0.1', '::ffff:127.0.0.1', '::ffff:7f00:1', '127.0.0.1:80', '[::ffff:127.0.0.1]:80'],
    ...['10.0.0.0', '10.255.255.255', '::1', '0:0:0:0:0:0:0:1', '[::1]', '[::1]:443'],
    ...['2001:db8::', '2001:DB8:7fff::1', '2001:db8::1%eth0', '192.0.2.7', '::ffff:c000:207'],
  ];
  const others = [
    ...['127.0.0.2', '9.255.255.255', '11.0.0.0', '::2', '2001:db8:8000::', '192.0.3.0', '::10.0.0.1'],
    ...['010.0.0.1', '10.1', '0x7f.0.0.1', '10.0.0.1:', '10.0.0.1:x', '::1:80:', 'localhost', '', undefined],
  ];
  for (const address of trusted) assert.equal(isTrusted(address), true, address);
  for (const address of others) assert.equal(isTrusted(address), false, address);
});
