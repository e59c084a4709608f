import { type ErrorCode, errorMeanings, statusOf } from '../api-errors.ts';
import { NewPlant, Plant } from '../plant.ts';
import { type TSchema, Type } from '../schema.ts';
import { type Scope, scopes } from '../token.ts';
import { propertiesOf } from '../validation.ts';
import { headerCase } from './header-names.ts';
import type { Operation } from './operation.ts';

/** `info.version` of the OpenAPI document. The requirements of the API prescribe this value. */
const INTERFACE_VERSION = '1.0.0';

/** Error codes that any operation can return. */
const EVERYWHERE: readonly ErrorCode[] = [
  40000, 40004, 40100, 40101, 40300, 40800, 41300, 41400, 41500, 41700, 42900, 43100, 50000, 50300, 50301,
  50302,
];

/**
 * Descriptions of the HTTP statuses that have a separate error response in the OpenAPI document. All other
 * error statuses share the response `default`, since code generators create a type for each response.
 */
const STATUSES: Readonly<Record<number, string>> = {
  400: 'Invalid request',
  401: 'No token, or an invalid one',
  403: 'The token lacks the scope',
  404: 'No such plant',
  429: 'Too many requests',
  503: 'Unavailable or overloaded',
};

const ErrorBody = Type.Object(
  {
    error: Type.Integer({
      format: 'int32',
      minimum: -(2 ** 31),
      maximum: 2 ** 31 - 1,
      description: 'The HTTP status × 100 + n. A code never changes its meaning.',
    }),
    message: Type.String({ description: 'Explains to a human reader what is wrong and what is expected.' }),
  },
  {
    description: 'The body of every error response.',
    examples: [{ error: 40400, message: 'there is no plant with the id 7' }],
  },
);

const components = new Map<TSchema, string>([
  [Plant, 'Plant'],
  [NewPlant, 'NewPlant'],
  [ErrorBody, 'Error'],
]);

type Json = string | number | boolean | null | readonly Json[] | { readonly [name: string]: Json };

/**
 * Renders the OpenAPI 3.1 document of the operations, as JSON. `server` is the service's URL or base path.
 */
export function renderOpenApi(operations: readonly Operation[], server: string): string {
  const paths: Record<string, Record<string, Json>> = {};
  for (const operation of operations) {
    const path = operation.url.replace(/:(\w+)/g, '{$1}');
    paths[path] = { ...paths[path], [operation.method.toLowerCase()]: describeOperation(operation) };
  }
  return JSON.stringify({
    openapi: '3.1.0',
    info: {
      title: 'Plant Store',
      version: INTERFACE_VERSION,
      description:
        'Stores plants: create, list and delete. A token gives access only to the plants of its owner.',
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: server === '' ? '/' : server }],
    security: [{ bearer: [] }],
    tags: [{ name: 'plants', description: 'The plants of the caller.' }],
    paths,
    components: {
      schemas: Object.fromEntries([...components].map(([schema, name]) => [name, toJsonSchema(schema)])),
      securitySchemes: {
        bearer: {
          type: 'http',
          scheme: 'bearer',
          description: `A token made by \`plant-store token create\` (RFC 6750), or a JWT access token of the identity provider where one is configured. Scopes: ${scopes.join(', ')}.`,
        },
      },
    },
  });
}

function describeOperation(operation: Operation): Json {
  const { schema } = operation;
  return {
    operationId: operation.operationId,
    summary: operation.summary,
    description: `${operation.description} Needs the scope \`${operation.scope}\`.`,
    tags: ['plants'],
    security: [{ bearer: [operation.scope] }],
    parameters: [
      ...parameters('path', schema.params),
      ...parameters('query', schema.querystring),
      ...parameters('header', schema.headers),
    ],
    ...(schema.body === undefined
      ? {}
      : { requestBody: { required: true, content: { 'application/json': content(schema.body) } } }),
    responses: responses(operation),
  };
}

function parameters(place: string, schema: TSchema = Type.Object({})): Json[] {
  return Object.entries(propertiesOf(schema)).map(([name, property]) => {
    const { description = '', examples, ...rest } = toJsonSchema(property);
    return {
      name: place === 'header' ? headerCase(name) : name,
      in: place,
      required: !Type.IsOptional(property),
      description,
      schema: rest,
      ...(Array.isArray(examples) ? { examples: { usual: { value: examples[0] } } } : {}),
    };
  });
}

function responses({ scope, success, errors }: Operation): Json {
  const codes = [...new Set([...EVERYWHERE, ...errors])].sort((a, b) => a - b);
  const byStatus = Map.groupBy(codes, (code) => {
    const status = statusOf(code);
    return status in STATUSES ? status : 'default';
  });
  return {
    [success.status]: {
      description: success.description,
      headers: describeHeaders(success.headers),
      ...(success.body === undefined ? {} : { content: { 'application/json': content(success.body) } }),
      ...(success.links === undefined ? {} : { links: describeLinks(success.links) }),
    },
    ...Object.fromEntries(
      [...byStatus].map(([status, group]) => [status, errorResponse(status, group, scope)]),
    ),
  };
}

function describeLinks(links: NonNullable<Operation['success']['links']>): Json {
  const described = Object.entries(links).map(([operationId, link]) => [
    operationId,
    { operationId, ...link },
  ]);
  return Object.fromEntries(described);
}

function errorResponse(status: number | 'default', codes: readonly ErrorCode[], scope: Scope): Json {
  const title = status === 'default' ? 'Any other error' : STATUSES[status];
  const examples = codes.map((code) => {
    const message = errorMeanings[code];
    return [code, { summary: message, value: { error: code, message } }];
  });
  return {
    description: `${title}: ${codes.join(', ')}.`,
    headers: describeHeaders(headersOf(status, scope)),
    content: { 'application/json': { schema: reference(ErrorBody), examples: Object.fromEntries(examples) } },
  };
}

/** Returns the headers that every error response with this status has. */
function headersOf(status: number | 'default', scope: Scope): Record<string, TSchema> {
  if (status === 401 || status === 403) {
    const lack = status === 401 ? '' : `, error="insufficient_scope", scope="${scope}"`;
    return {
      'WWW-Authenticate': Type.String({
        description: 'The required credentials or scope (RFC 6750 §3).',
        examples: [`Bearer realm="plant-store"${lack}`],
      }),
    };
  }
  if (status === 429 || status === 503) {
    const description = 'Seconds to wait before a retry.';
    const seconds = { format: 'int32', minimum: 1, maximum: 2 ** 31 - 1, description, examples: [1] };
    return { 'Retry-After': Type.Integer(seconds) };
  }
  return {};
}

const requestId = Type.String({
  description: 'Identifies this request in the log of the service.',
  examples: ['5f0c9be2a417-7'],
});

function describeHeaders(headers: Readonly<Record<string, TSchema>> = {}): Json {
  const described = Object.entries({ 'X-Request-Id': requestId, ...headers }).map(([name, schema]) => {
    const { description = '', examples, ...rest } = toJsonSchema(schema);
    return [name, { description, schema: rest, ...exampleOf(examples) }];
  });
  return Object.fromEntries(described);
}

function content(schema: TSchema): Json {
  return { schema: reference(schema), ...exampleOf(toJsonSchema(schema).examples) };
}

function exampleOf(examples: Json | undefined): { readonly example?: Json } {
  return Array.isArray(examples) ? { example: examples[0] } : {};
}

function reference(schema: TSchema): Json {
  const name = components.get(schema);
  return name === undefined ? toJsonSchema(schema) : { $ref: `#/components/schemas/${name}` };
}

/** Converts a schema to JSON Schema. A bigint becomes an integer, since JSON Schema has no bigint. */
function toJsonSchema(schema: TSchema): Record<string, Json> {
  const plain: Record<string, Json> = JSON.parse(
    JSON.stringify(schema, (name, value: unknown) =>
      name === 'type' && value === 'bigint' ? 'integer' : value,
    ),
  );
  return Type.IsArray(schema) ? { ...plain, items: reference(schema.items) } : plain;
}
