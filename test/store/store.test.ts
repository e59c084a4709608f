import { describe } from 'node:test';
import { engines } from '../support/engines.ts';
import { testIdempotency, testIdempotencyInTime } from './contract/idempotency-keys.ts';
import { testJson, testPageBytes, testPages, testPlants } from './contract/plants.ts';
import { testTokenLife, testTokens } from './contract/tokens.ts';
import { testConcurrency, testLife } from './contract/writes.ts';

// The contract of a store, on every engine.
for (const engine of engines) {
  describe(`a store on ${engine.name}`, () => {
    describe('plants', () => testPlants(engine));
    describe('pages', () => testPages(engine));
    describe('the JSON of a page', () => testJson(engine));
    describe('the bytes of a page', () => testPageBytes(engine));
    describe('writes submitted together', () => testConcurrency(engine));
    describe('idempotency keys', () => testIdempotency(engine));
    describe('idempotency keys as time passes', () => testIdempotencyInTime(engine));
    describe('tokens', () => testTokens(engine));
    describe('the use and the end of tokens', () => testTokenLife(engine));
    describe('opening and closing', () => testLife(engine));
  });
}
