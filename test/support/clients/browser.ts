import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { type Browser, chromium, type LaunchOptions } from 'playwright-core';
import manifest from '../../../package.json' with { type: 'json' };

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const CACHE = join(ROOT, 'node_modules', '.cache', 'plant-store');

/**
 * A host name that the browser maps to this machine. Pages of this host over plain HTTP are not a secure
 * context, unlike pages of 127.0.0.1.
 */
export const PLAIN_HOST = 'plants.test';

/**
 * Starts a real Chromium that can only reach this machine. On Linux x64 an npm package provides Chromium, its
 * libraries and a font, so no system package is needed. Other systems use the installed Chrome.
 */
export async function launchBrowser(): Promise<Browser> {
  return chromium.launch({
    ...(process.platform === 'linux' && process.arch === 'x64'
      ? await packagedChromium()
      : { channel: 'chrome' }),
    args: [
      '--disable-gpu',
      `--host-resolver-rules=MAP ${PLAIN_HOST} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1`,
    ],
  });
}

async function packagedChromium(): Promise<LaunchOptions> {
  const folder = join(CACHE, `chromium-${manifest.devDependencies['@sparticuz/chromium']}`);
  if (!existsSync(folder)) await unpack(folder);
  return {
    executablePath: join(folder, 'chromium'),
    env: {
      ...process.env,
      LD_LIBRARY_PATH: join(folder, 'al2023', 'lib'),
      FONTCONFIG_FILE: join(folder, 'fonts.conf'),
    },
  };
}

/**
 * Unpacks Chromium into a temporary folder and renames the folder, so that no process finds an incomplete
 * copy.
 */
async function unpack(folder: string): Promise<void> {
  await mkdir(CACHE, { recursive: true });
  const unfinished = await mkdtemp(join(CACHE, 'unpacking-'));
  try {
    await unpackInto(unfinished);
    await writeFile(join(unfinished, 'fonts.conf'), fontConfiguration(folder));
    await rename(unfinished, folder);
  } catch (error: unknown) {
    // Ignores the error if another process has unpacked Chromium first.
    if (!existsSync(folder)) throw error;
  } finally {
    await rm(unfinished, { recursive: true, force: true });
  }
}

const UNPACK = "import chromium from '@sparticuz/chromium'; await chromium.executablePath();";

/**
 * Unpacks Chromium from its npm package. Environment variables make the package use `folder`, and
 * also unpack the libraries that it otherwise unpacks only on AWS Lambda.
 */
async function unpackInto(folder: string): Promise<void> {
  const env = { ...process.env, TMPDIR: folder, AWS_LAMBDA_JS_RUNTIME: 'nodejs24.x' };
  await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', UNPACK], { cwd: ROOT, env });
}

/**
 * Returns font settings with the unpacked font and the fonts of the system. Without any font, Chromium
 * crashes at the first text. With the fonts of the system, screenshots look better.
 */
function fontConfiguration(folder: string): string {
  return `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>${join(folder, 'fonts')}</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>${join(folder, 'fonts-cache')}</cachedir>
  <alias binding="strong"><family>sans-serif</family><prefer><family>Open Sans</family></prefer></alias>
  <alias binding="strong"><family>system-ui</family><prefer><family>Open Sans</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
`;
}
