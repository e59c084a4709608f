/** A body that is as long as the default limit allows, and costly to parse. */
interface CostlyBody {
  readonly name: string;
  readonly body: string;
}

const LIMIT = 65_536;

/** As many repetitions as fit between a beginning and an end. */
function filled(name: string, start: string, part: (index: number) => string, end: string): CostlyBody {
  const parts: string[] = [];
  for (let size = start.length + end.length, index = 0; ; index += 1) {
    const next = (index === 0 ? '' : ',') + part(index);
    size += next.length;
    if (size > LIMIT) break;
    parts.push(next);
  }
  return { name, body: start + parts.join('') + end };
}

const nested = `${'{"":'.repeat(60)}0${'}'.repeat(60)}`;

export const costlyBodies: readonly CostlyBody[] = [
  filled('an id with a fraction before many zeros', '{"id":1.0,"name":"n","x":[', () => '0', ']}'),
  filled('objects within objects', '{"id":1.0,"name":"n","x":[', () => nested, ']}'),
  filled('objects with different keys', '{"id":1,"name":"n","x":[', (index) => `{"${index}":0}`, ']}'),
  filled('very many keys', '{"id":1,"name":"n","x":{', (index) => `"${index.toString(36)}":1`, '}}'),
];
