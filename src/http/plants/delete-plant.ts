import type { IncomingHttpHeaders } from 'node:http';
import { ApiError } from '../../api-errors.ts';
import { Int64 } from '../../plant.ts';
import { Type } from '../../schema.ts';
import type { Store } from '../../store/store.ts';
import { type HandlerOf, type Operation, ownerOf } from '../operation.ts';

export const deletePlantOperation = {
  operationId: 'deletePlant',
  method: 'DELETE',
  url: '/plants/:id',
  summary: 'Delete a plant',
  description:
    'Deletes a single plant, chosen by its id. The response is sent after the deletion is on disk.',
  scope: 'plants:write',
  schema: { params: Type.Object({ id: Int64 }) },
  success: { status: 204, description: 'The plant was deleted.' },
  errors: [40400, 41200],
} as const satisfies Operation;

export function deletePlant(store: Store): HandlerOf<typeof deletePlantOperation> {
  return async (request) => {
    const { id } = request.params;
    checkPreconditions(request.headers);
    const outcome = await store.write({ kind: 'deletePlant', owner: ownerOf(request), id });
    if (outcome === 'deleted') return undefined;
    if (outcome === 'absent') throw new ApiError(40400, `there is no plant with the id ${id}`);
    throw new Error(`the store returned ${outcome} for a deletion`);
  };
}

/**
 * Throws an ApiError (41200) if `If-Match` has an ETag, as plants have no ETag (RFC 9110 §13.1.1), or if
 * `If-None-Match` is `*`, which no plant to delete meets (§13.1.2). Does not look for the plant.
 */
function checkPreconditions(headers: IncomingHttpHeaders): void {
  const { 'if-match': ifMatch = '*', 'if-none-match': ifNoneMatch } = headers;
  if (ifMatch.trim() !== '*')
    throw new ApiError(41200, 'a plant has no entity tag; send no `If-Match`, or `If-Match: *`');
  if (ifNoneMatch?.trim() === '*')
    throw new ApiError(41200, '`If-None-Match: *` is never met by a plant to delete; leave it out');
}
