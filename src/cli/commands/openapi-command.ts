import { Command } from 'commander';
import type { Flags } from '../../config.ts';
import { operations } from '../../http/app.ts';
import { renderOpenApi } from '../../http/openapi.ts';
import { type CommandContext, print } from '../context.ts';
import { addSettings, configOf } from '../flags.ts';

export function openapiCommand(context: CommandContext): Command {
  const command = new Command('openapi').description('prints the OpenAPI document');
  return addSettings(command, ['basePath']).action(async (flags: Flags) => {
    const document: unknown = JSON.parse(renderOpenApi(operations, configOf(context, flags).basePath));
    await print(context, `${JSON.stringify(document, null, 2)}\n`);
  });
}
