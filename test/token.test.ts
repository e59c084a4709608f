import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { describe, test } from 'node:test';
import {
  DEFAULT_EXPIRES,
  digestSecret,
  isOwner,
  isOwnerOfSubject,
  isTokenId,
  isTokenName,
  isValid,
  isWellFormedSecret,
  mintSecret,
  newToken,
  ownerOfSubject,
  parseExpires,
  parseScopes,
} from '../src/token.ts';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const HOUR_MS = 3_600_000;

/** CRC-32 (ISO 3309), computed bit by bit. */
function crc32(text: string): number {
  let rest = 0xffffffff;
  for (const byte of Buffer.from(text)) {
    rest ^= byte;
    for (let bit = 0; bit < 8; bit += 1) rest = (rest >>> 1) ^ (rest & 1 ? 0xedb88320 : 0);
  }
  return (rest ^ 0xffffffff) >>> 0;
}

/** Six base62 digits, the highest first. */
function checksumOf(text: string): string {
  const places = [5, 4, 3, 2, 1, 0];
  return places.map((place) => ALPHABET.charAt(Math.floor(crc32(text) / 62 ** place) % 62)).join('');
}

const sample = Array.from({ length: 10_000 }, mintSecret);

describe('a new secret', () => {
  test('is plt_, 43 base62 characters, and the CRC-32 of all that as 6 more', () => {
    for (const secret of sample) {
      assert.match(secret, /^plt_[0-9A-Za-z]{49}$/);
      assert.equal(secret.slice(-6), checksumOf(secret.slice(0, -6)));
      assert.ok(isWellFormedSecret(secret));
    }
  });

  test('is never repeated', () => {
    assert.equal(new Set(sample).size, sample.length);
  });

  test('keeps its length when its number or its checksum is small', () => {
    assert.ok(sample.some((secret) => secret.at(4) === '0'));
    assert.ok(sample.some((secret) => secret.at(-6) === '0'));
  });

  test('holds 256 bits: each character but the first of the number is any of the 62', () => {
    for (let place = 5; place < 47; place += 1) {
      assert.equal(new Set(sample.map((secret) => secret.at(place))).size, 62, `place ${place}`);
    }
  });
});

describe('the checksum of a secret', () => {
  const some = sample.slice(0, 20);

  test('detects every change of a single character', () => {
    for (const secret of some) {
      for (let place = 0; place < secret.length; place += 1) {
        for (const other of `${ALPHABET}_-`) {
          if (other === secret.at(place)) continue;
          const changed = secret.slice(0, place) + other + secret.slice(place + 1);
          assert.equal(isWellFormedSecret(changed), false, changed);
        }
      }
    }
  });

  test('detects every swap of two neighbours', () => {
    for (const secret of sample.slice(0, 500)) {
      for (let place = 0; place + 1 < secret.length; place += 1) {
        const [a, b] = [secret.charAt(place), secret.charAt(place + 1)];
        if (a === b) continue;
        const swapped = secret.slice(0, place) + b + a + secret.slice(place + 2);
        assert.equal(isWellFormedSecret(swapped), false, swapped);
      }
    }
  });

  test('detects missing, doubled and surrounding characters', () => {
    for (const secret of some) {
      for (let place = 0; place < secret.length; place += 1) {
        const character = secret.charAt(place);
        const before = secret.slice(0, place);
        assert.equal(isWellFormedSecret(before + secret.slice(place + 1)), false);
        assert.equal(isWellFormedSecret(before + character + secret.slice(place)), false);
        assert.equal(isWellFormedSecret(before), false);
      }
      for (const around of [` ${secret}`, `${secret} `, `${secret}\n`, `"${secret}"`, secret.toUpperCase()])
        assert.equal(isWellFormedSecret(around), false);
    }
    assert.equal(isWellFormedSecret(''), false);
    assert.equal(isWellFormedSecret(`plt_${'é'.repeat(49)}`), false);
  });
});

test('a secret of another form is not well formed, even if its checksum is right', () => {
  const body = mintSecret().slice(0, -6);
  for (const other of [
    `PLT_${body.slice(4)}`,
    `${body}0`,
    body.slice(0, -1),
    `${body.slice(0, -1)}-`,
    ` ${body}`,
  ])
    assert.ok(!isWellFormedSecret(other + checksumOf(other)), other);
  assert.ok(isWellFormedSecret(body + checksumOf(body)));
});

test('an id of a token has 12 letters and digits, and nothing else', () => {
  assert.ok(isTokenId('0Az9BYx8CWv7'));
  for (const text of ['', '0Az9BYx8CWv', '0Az9BYx8CWv70', '0Az9BYx8CWv-', '-0Az9BYx8CWv7', ' 0Az9BYx8CWv7'])
    assert.ok(!isTokenId(text), text);
});

describe('the stored form of a secret', () => {
  test('is its SHA-256', () => {
    const hex = Buffer.from(digestSecret('abc')).toString('hex');
    assert.equal(hex, 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad');
    for (const secret of sample.slice(0, 10)) {
      assert.deepEqual(Buffer.from(digestSecret(secret)), createHash('sha256').update(secret).digest());
    }
  });

  test('is a token with a new id, neither used nor revoked', () => {
    const [secret = ''] = sample;
    const fields = { scopes: ['plants:read'], expiresAt: 9_000, name: 'phone' } as const;
    const { id, digest, ...rest } = newToken(secret, 'alice', fields, 5_000);
    assert.match(id, /^[0-9A-Za-z]{12}$/);
    assert.deepEqual(Buffer.from(digest), Buffer.from(digestSecret(secret)));
    assert.deepEqual(rest, {
      ...fields,
      owner: 'alice',
      createdAt: 5_000,
      revokedAt: null,
      lastUsedAt: null,
    });
    const ids = Array.from({ length: 1_000 }, () => newToken(secret, 'alice', fields, 5_000).id);
    assert.equal(new Set(ids).size, ids.length);
  });
});

describe('when a token expires', () => {
  test('is a number of minutes, hours or days after now, or never', () => {
    const now = Date.UTC(2026, 0, 1);
    assert.equal(parseExpires('30m', now), now + HOUR_MS / 2);
    assert.equal(parseExpires('12h', now), now + 12 * HOUR_MS);
    assert.equal(parseExpires('90d', now), Date.UTC(2026, 3, 1));
    assert.equal(parseExpires('1m', now), now + 60_000);
    assert.equal(parseExpires('999999d', now), now + 999_999 * 24 * HOUR_MS);
    assert.equal(parseExpires('never', now), null);
    assert.equal(parseExpires(DEFAULT_EXPIRES, now), Date.UTC(2026, 3, 1));
  });

  test('is nothing else', () => {
    const others = [
      '',
      '0d',
      '00d',
      '01d',
      '-1d',
      '+1d',
      '1.5h',
      '90',
      'd',
      '90D',
      ' 90d',
      '90d ',
      '90 d',
      '1000000d',
    ];
    others.push('1d12h', '90s', '2w', '1y', 'Never', 'forever', '1e3d', '0x1d', '٩d', '90d\n', '2026-01-01');
    for (const text of others) assert.equal(parseExpires(text, 0), undefined, JSON.stringify(text));
  });

  test('the token is valid until that time, unless it is revoked', () => {
    assert.equal(isValid({ expiresAt: 1_000, revokedAt: null }, 999), true);
    assert.equal(isValid({ expiresAt: 1_000, revokedAt: null }, 1_000), false);
    assert.equal(isValid({ expiresAt: 1_000, revokedAt: null }, 1_001), false);
    assert.equal(isValid({ expiresAt: null, revokedAt: null }, Number.MAX_SAFE_INTEGER), true);
    assert.equal(isValid({ expiresAt: null, revokedAt: 500 }, 499), false);
    assert.equal(isValid({ expiresAt: null, revokedAt: 0 }, 1), false);
    assert.equal(isValid({ expiresAt: 1_000, revokedAt: 500 }, 600), false);
  });
});

describe('scopes', () => {
  const both = ['plants:read', 'plants:write'];

  test('are separated by commas or spaces, in any order, and are returned in a fixed order', () => {
    assert.deepEqual(parseScopes('plants:read'), ['plants:read']);
    assert.deepEqual(parseScopes('plants:write'), ['plants:write']);
    for (const text of [
      'plants:read,plants:write',
      'plants:write plants:read',
      ' plants:write ,\tplants:read,',
    ]) {
      assert.deepEqual(parseScopes(text), both);
    }
    assert.deepEqual(parseScopes('plants:read,plants:read'), ['plants:read']);
  });

  test('are undefined when one is unknown or there is none', () => {
    const others = ['', ' ', ',', 'read', 'plants', 'plants:*', 'PLANTS:READ', 'plants:read;plants:write'];
    others.push('plants:read,admin', 'plants:read,plants:readx', 'plants:delete', '__proto__');
    for (const text of others) assert.equal(parseScopes(text), undefined, JSON.stringify(text));
  });
});

describe('an owner', () => {
  test('is 1 to 128 ASCII letters, digits and ._@+-, starting with a letter or digit', () => {
    const owners = ['a', 'Z', '0', 'alice', 'alice@example.org', 'a.b_c-d+e@f', '1234', 'a'.repeat(128)];
    for (const text of owners) assert.equal(isOwner(text), true, text);
  });

  test('is nothing else', () => {
    const others = [
      '',
      '.',
      '-a',
      '_a',
      '@a',
      '+a',
      'a b',
      ' a',
      'a ',
      'a\n',
      '\na',
      'a/b',
      'a:b',
      'a,b',
      'a\0',
      'é',
    ];
    others.push('a'.repeat(129), '🌱', '"a"', "a'b", 'a%20b', '--help');
    for (const text of others) assert.equal(isOwner(text), false, JSON.stringify(text));
  });
});

describe('the owner of a subject of an issuer', () => {
  const issuer = 'https://id.example/realms/plants/';

  test('has both parts, and is never a local owner', () => {
    for (const subject of ['alice', 'a b', '#', 'https://id.example#alice', '~'.repeat(255)]) {
      const owner = ownerOfSubject(issuer, subject);
      assert.ok(owner !== undefined, subject);
      assert.equal(owner, `${issuer}#${subject}`);
      assert.deepEqual([isOwnerOfSubject(owner), isOwner(owner)], [true, false]);
    }
  });

  test('is undefined for a subject that a store might confuse with another', () => {
    for (const subject of ['', 'x'.repeat(256), 'a\0', 'a\n', 'é', '\ud800']) {
      assert.equal(ownerOfSubject(issuer, subject), undefined, JSON.stringify(subject));
    }
    for (const text of [
      'alice',
      '#alice',
      'https://id.example',
      'https://#alice',
      'ftp://id.example#alice',
      ' https://id.example#alice',
    ]) {
      assert.equal(isOwnerOfSubject(text), false, text);
    }
  });
});

describe('the name of a token', () => {
  test('is up to 255 printable characters', () => {
    const notes = [
      '',
      'phone',
      ' my "new" phone; 100 % ',
      'téléphone',
      '📱',
      '电话',
      'x'.repeat(255),
      '📱'.repeat(255),
    ];
    for (const text of notes) assert.equal(isTokenName(text), true, text);
  });

  test('has no characters that move the cursor, break the line or are invisible', () => {
    const others = [
      '\n',
      'a\nb',
      '\r',
      '\t',
      '\0',
      '\u001b[2J',
      '\u007f',
      '\u009b',
      '\u200b',
      '\u202e',
      '\u2028',
    ];
    others.push('\ud800', 'x'.repeat(256));
    for (const text of others) assert.equal(isTokenName(text), false, JSON.stringify(text));
  });
});
