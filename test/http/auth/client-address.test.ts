import assert from 'node:assert/strict';
import { test } from 'node:test';
import { networkOf } from '../../../src/http/auth/client-address.ts';

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
