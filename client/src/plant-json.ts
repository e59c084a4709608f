/** A plant as the service returns it. */
export interface Plant {
  /** Any text, also the empty one. */
  readonly name: string;
  /** Any text. Absent if the plant has none. */
  readonly tag?: string;
}

/** A plant to create. */
export interface NewPlant {
  /**
   * An int64. A number must be a safe integer, since JavaScript rounds some integers above 2^53. Larger ids
   * need a bigint.
   */
  readonly id: bigint | number;
  /** Any text, also the empty one. */
  readonly name: string;
  /** Any text. */
  readonly tag?: string | undefined;
}

interface FieldRule {
  readonly accepts: (value: unknown) => boolean;
  /** End of the error message, such as `must be a string` in "the name of a plant must be a string". */
  readonly rule: string;
}

const FIELDS = {
  name: { accepts: isString, rule: 'must be a string' },
  tag: { accepts: isStringOrAbsent, rule: 'must be a string or absent' },
} satisfies Record<keyof Plant, FieldRule>;

function isString(value: unknown): boolean {
  return typeof value === 'string';
}

function isStringOrAbsent(value: unknown): boolean {
  return value === undefined || isString(value);
}

/** Copies the fields of a plant. Reads each field once, since a getter may return different values. */
function fieldsOf(value: object): Readonly<Record<string, unknown>> {
  return Object.fromEntries(Object.keys(FIELDS).map((field) => [field, Reflect.get(value, field)]));
}

/** The fault of the first invalid field; undefined for a plant. */
function faultOf(value: object): string | undefined {
  const invalid = Object.entries(FIELDS).find(([field, { accepts }]) => !accepts(Reflect.get(value, field)));
  return invalid && `the ${invalid[0]} of a plant ${invalid[1].rule}`;
}

/** True for a plant in a parsed response. */
export function isPlant(value: unknown): value is Plant {
  return faultOf(Object(value)) === undefined;
}

/**
 * Returns the JSON of a plant to create, without unknown fields. Throws RangeError or TypeError for an
 * invalid plant, since JavaScript callers have no type check. Renders the id separately, because
 * JSON.stringify does not support bigint.
 */
export function jsonOfPlant(plant: NewPlant): string {
  if (Object(plant) !== plant) throw new TypeError('the plant must be an object with id and name');
  const digits = digitsOf(plant.id);
  const fields = fieldsOf(plant);
  const fault = faultOf(fields);
  if (fault !== undefined) throw new TypeError(fault);
  return `{"id":${digits},${JSON.stringify(fields).slice(1)}`;
}

/** The digits of an id. Throws RangeError unless it is an int64 as bigint, or a safe integer. */
export function digitsOf(id: bigint | number): string {
  if (typeof id !== 'bigint' && !Number.isSafeInteger(id)) {
    const rule = 'must be a bigint or a safe integer';
    if (id === undefined) throw new RangeError(`the id is missing; it ${rule}`);
    const hint = Number.isInteger(id) ? '; write it as a bigint, with n at its end' : '';
    throw new RangeError(`the id ${rule}, not the ${typeof id} ${String(id)}${hint}`);
  }
  if (BigInt.asIntN(64, BigInt(id)) !== BigInt(id)) {
    throw new RangeError(`the id ${id} is not an integer from -2^63 to 2^63 - 1`);
  }
  return String(id);
}
