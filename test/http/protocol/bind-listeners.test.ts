import assert from 'node:assert/strict';
import { test } from 'node:test';
import Fastify from 'fastify';
import { CannotListen, listenOnBoth } from '../../../src/http/protocol/bind-listeners.ts';
import { hasIpv6, needs } from '../../support/needs.ts';

const LOOPBACK = address('127.0.0.1', '--host (HOST)');

function address(host: string, nameOfHost: string) {
  return { host, port: 0, namesOf: { host: nameOfHost, port: '--port (PORT)' } };
}

test('link-local address without its interface → names the setting', needs('IPv6', hasIpv6()), async (t) => {
  const [first, second] = [Fastify(), Fastify()];
  t.after(() => Promise.all([first.close(), second.close()]));
  await assert.rejects(
    listenOnBoth([first, LOOPBACK], [second, address('fe80::1', '--admin-host (ADMIN_HOST)')]),
    (error: unknown) => {
      assert.ok(error instanceof CannotListen);
      assert.match(error.message, /^fe80::1 .*\binterface\b.*--admin-host \(ADMIN_HOST\)$/);
      return true;
    },
  );
});

test('error before the bind → rejects with this error, not with the bind error', async (t) => {
  const fault = new Error('out of order');
  const [first, second] = [Fastify(), Fastify()];
  first.addHook('onReady', async () => {
    throw fault;
  });
  t.after(() => Promise.all([first.close(), second.close()]));
  // A name that never resolves (RFC 6761 §6.4).
  const nowhere = address('nosuch.invalid', '--admin-host (ADMIN_HOST)');
  await assert.rejects(listenOnBoth([first, LOOPBACK], [second, nowhere]), fault);
});
