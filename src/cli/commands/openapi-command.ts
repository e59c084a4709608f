import { Command } from 'commander';
import type { Flags } from '../../config.ts';
import { operations } from '../../http/app.ts';
import { renderOpenApi } from '../../http/openapi.ts';
import { addSettings, configOf } from '../flags.ts';

export function openapiCommand(): Command {
  const command = new Command('openapi').description('prints the OpenAPI document');
  return addSettings(command, ['basePath']).action((flags: Flags) => {
    const document: unknown = JSON.parse(renderOpenApi(operations, configOf(flags).basePath));
    process.stdout.write(`${JSON.stringify(document, null, 2)}\n`);
  });
}
