import { ApiError } from '../../api-errors.ts';
import {
  IDEMPOTENCY_KEY,
  IDEMPOTENCY_KEY_LENGTH,
  IDEMPOTENCY_KEY_RULE,
  isIdempotencyKey,
  type NewPlant,
  NewPlant as NewPlantSchema,
  Plant,
  renderPlant,
  toPlantRow,
} from '../../plant.ts';
import { Type } from '../../schema.ts';
import { KEY_LIFETIME_MS, type Outcome, type Store } from '../../store/store.ts';
import { type HandlerOf, type Operation, ownerOf } from '../operation.ts';
import { asJson } from '../response-head.ts';

const KEY_LIFETIME_HOURS = KEY_LIFETIME_MS / 3_600_000;

const IdempotencyKey = Type.Refine(
  Type.String({
    minLength: 1,
    maxLength: IDEMPOTENCY_KEY_LENGTH,
    pattern: IDEMPOTENCY_KEY.source,
    description:
      `Makes the request safe to retry. For ${KEY_LIFETIME_HOURS} hours after the plant was created, the same key with ` +
      'the same plant gets the first response again, and creates nothing, even if the plant was deleted since. The key of a ' +
      'failed creation can be used again. Choose a new key for each plant, such as a UUID of version 7, since keys ' +
      'that begin with the time cost the least. All tokens of an owner share their keys.',
  }),
  isIdempotencyKey,
  // Node joins repeated headers by a comma and a space, which no valid key contains.
  () => `must be given once, with ${IDEMPOTENCY_KEY_RULE}`,
);

export const createPlantOperation = {
  operationId: 'createPlant',
  method: 'POST',
  url: '/plants',
  summary: 'Create a plant',
  description: 'Creates a new plant in the store. The response is sent after the plant is on disk.',
  scope: 'plants:write',
  schema: {
    headers: Type.Object({ 'idempotency-key': Type.Optional(IdempotencyKey) }),
    body: NewPlantSchema,
  },
  success: {
    status: 200,
    description: 'The plant was created.',
    body: Plant,
    headers: {
      'Idempotent-Replayed': Type.Enum(['true'], {
        description:
          'Present when the response repeats that of an earlier request with the same Idempotency-Key.',
      }),
    },
    links: {
      deletePlant: {
        description: 'Deletes the created plant, by the `id` of the request.',
        parameters: { id: '$request.body#/id' },
      },
    },
  },
  errors: [40001, 40002, 40003],
} as const satisfies Operation;

export function createPlant(store: Store): HandlerOf<typeof createPlantOperation> {
  return async (request, reply) => {
    const plant = request.body;
    const key = request.headers['idempotency-key'];
    const outcome = await store.write({
      ...toPlantRow(ownerOf(request), plant),
      kind: 'createPlant',
      idempotencyKey: key ?? null,
    });
    if (isReplay(outcome, plant)) {
      request.replayed = true;
      reply.header('idempotent-replayed', 'true');
    }
    return asJson(reply, renderPlant(plant));
  };
}

/** Returns whether an earlier request created the plant. Throws an ApiError if no request did. */
function isReplay(outcome: Outcome, { id }: NewPlant): boolean {
  switch (outcome) {
    case 'created':
      return false;
    case 'createdReplayed':
      return true;
    case 'keyReused':
      throw new ApiError(40003, 'this `Idempotency-Key` was used for another plant; choose a new key');
    case 'idTaken':
      throw new ApiError(40002, `a plant with the id ${id} already exists; choose another \`id\``);
    case 'deleted':
    case 'absent':
    case 'done':
      throw new Error(`the store returned ${outcome} for a creation`);
  }
}
