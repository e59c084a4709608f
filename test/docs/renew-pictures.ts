import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { launchBrowser } from '../support/clients/browser.ts';
import { freshFolder } from '../support/engines.ts';
import { startService } from '../support/service.ts';

// Takes the pictures of the API reference in README.

const FOLDER = fileURLToPath(new URL('../../docs/images/', import.meta.url));

const after: (() => Promise<void>)[] = [];
try {
  const lifetime = { after: (work: () => Promise<void>) => void after.unshift(work) };
  const service = await startService(lifetime, `sqlite:${join(await freshFolder(), 'plants.db')}`, {
    port: '8080',
  });
  const browser = await launchBrowser();
  after.unshift(() => browser.close());
  await mkdir(FOLDER, { recursive: true });
  for (const colorScheme of ['light', 'dark'] as const) {
    const viewport = { width: 1280, height: 720 };
    const context = await browser.newContext({ viewport, colorScheme, deviceScaleFactor: 1.5 });
    const page = await context.newPage();
    await page.goto(`${service.url}/docs`);
    await page.getByPlaceholder('Token').fill(await service.token());
    await page.getByRole('link', { name: 'Create a plant' }).first().click();
    await page.getByRole('button', { name: 'Test Request (post /plants)' }).waitFor();
    await page.getByText('Authorization: Bearer').first().waitFor();
    await page.screenshot({ path: join(FOLDER, `docs-${colorScheme}.png`), animations: 'disabled' });
    await context.close();
  }
} finally {
  for (const work of after) await work();
}
