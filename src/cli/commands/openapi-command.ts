import { Command, InvalidArgumentError } from 'commander';
import type { Flags } from '../../config.ts';
import { operations } from '../../http/app.ts';
import { renderOpenApi } from '../../http/openapi.ts';
import { type CommandContext, print } from '../context.ts';
import { addSettings, configOf } from '../settings/flags.ts';

export function openapiCommand(context: CommandContext): Command {
  const command = new Command('openapi')
    .description('prints the OpenAPI document')
    .option(
      '--server <url>',
      'URL that clients use, with the base path; becomes the server in the document',
      parseServer,
    );
  return addSettings(command, ['basePath']).action(
    async ({ server, ...flags }: Flags & { server?: string }) => {
      const { basePath } = configOf(context, flags);
      const text = renderOpenApi(operations, server ?? basePath);
      const document: unknown = JSON.parse(text);
      await print(context, `${JSON.stringify(document, null, 2)}\n`);
    },
  );
}

/**
 * Parses the URL of the service for `--server`. Client generators append paths, so it has no query, fragment
 * or final slash.
 */
function parseServer(text: string): string {
  const url = URL.parse(text);
  const isHttp = url?.protocol === 'http:' || url?.protocol === 'https:';
  if (url === null || !isHttp || url.username !== '' || url.password !== '' || /[?#]/.test(text))
    throw new InvalidArgumentError(
      'It must be a URL such as https://plants.example or https://example.org/v1.',
    );
  return url.href.replace(/\/+$/, '');
}
