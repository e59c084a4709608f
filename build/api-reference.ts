import { readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import scalar from '@scalar/fastify-api-reference';
import Fastify from 'fastify';

/** Builds the gzipped script of the page /docs from Scalar's package, which is a development dependency. */

const TO = new URL('../src/http/api-reference.js.gz', import.meta.url);

/**
 * Statements that run before the script:
 *
 * - Zod in the script probes `eval`, which violates the page's Content-Security-Policy. The setting disables the probe.
 * - Scalar renders an operation only when it is less than 1,200 px from the visible part. A larger distance renders all
 *   operations immediately, so that a search in the page and a print find them.
 * - Scalar parses the body of a request for its code snippet and its form, which would round an id above 2^53. The id
 *   becomes a raw JSON text (https://tc39.es/proposal-json-parse-with-source/).
 * - Most printers of code snippets cannot print a raw JSON text. They get a stand-in for the id, which replaces it in what
 *   they print. JavaScript and R would round a literal: with a parameter in the media type, their printers print the body
 *   as a text, which that of R does not escape.
 * - Scalar sends requests to the origin of the page, without the path prefix of a proxy that removes it. The URL of the
 *   script has the prefix, and becomes that of the server.
 */
const PREAMBLE = `globalThis.__zod_globalConfig={jitless:true};
globalThis.IntersectionObserver=class extends IntersectionObserver{constructor(callback,options){
super(callback,options?.rootMargin==='1200px 0px'?{...options,rootMargin:'100000px 0px'}:options)}};
if(JSON.rawJSON){const{parse}=JSON,exact=(key,value,{source})=>(key==='id'||key==='')&&typeof value==='number'&&
Number.isInteger(value)&&!Number.isSafeInteger(value)?JSON.rawJSON(source):value;
JSON.parse=(text,reviver)=>parse(text,reviver??(/(?:"id"\\s*:|^)\\s*-?\\d{16}/.test(text)?exact:undefined))}
globalThis.printSnippet=(print,language,request)=>{const{postData}=request,text=postData?.text??'',
[member,id]=/"id"\\s*:\\s*(-?\\d[\\d.eE+-]*)/.exec(text)??[],printBody=body=>print({...request,postData:{...postData,...body}});
if(!id||Number.isSafeInteger(Number(id)))return print(request);
if(/^(js|node|r)$/.test(language))return printBody({mimeType:'application/json; charset=utf-8',
text:language==='r'?JSON.stringify(text).slice(1,-1):text});
let standIn=2**52;while(text.includes(standIn))standIn++;
return printBody({text:text.replace(member,member.replace(id,standIn))})?.replaceAll(standIn,id)};
{const{dataset}=document.querySelector('#api-reference'),url=document.currentScript.src.replace(/\\/docs\\/scalar\\.js.*/,'');
dataset.configuration=JSON.stringify({...JSON.parse(dataset.configuration),servers:[{url}]})}
`;

/** Matches the function of the script that prints a code snippet; the groups are its parameters and the look-up of a printer. */
const PRINT = /print\((\w+),(\w+),(\w+)\)\{return (\w+\(\1,\2\)\?\.generate)\(\3\)\}/g;

/** Matches the properties of a button that copies a code snippet. */
const COPY_BUTTON = /(?<=\{type:`button`)(?=\},\w+\(\w+\)\(`group\/copy-button )/g;

/** Lets `printSnippet` print the code snippets of the script, and gives the buttons that copy them an accessible name. */
function adapt(script: string): string {
  if (script.match(PRINT)?.length !== 1) throw new Error('cannot find where Scalar prints a code snippet');
  if (script.match(COPY_BUTTON)?.length !== 1)
    throw new Error('cannot find the button that copies a snippet');
  return script
    .replace(PRINT, 'print($1,$2,$3){return printSnippet(request=>$4(request),$1,$3)}')
    .replace(COPY_BUTTON, ',"aria-label":`Copy`');
}

/** Reads the script from Scalar's own server, since the package embeds it in another file. */
async function readScript(): Promise<string> {
  const server = Fastify();
  await server.register(scalar, { routePrefix: '/reference', configuration: { url: '/openapi.json' } });
  const { statusCode, body } = await server.inject('/reference/js/scalar.js');
  await server.close();
  if (statusCode !== 200)
    throw new Error(`cannot read the script from @scalar/fastify-api-reference: status ${statusCode}`);
  return body;
}

async function readLicence(): Promise<string> {
  const main = fileURLToPath(import.meta.resolve('@scalar/fastify-api-reference'));
  return readFile(join(dirname(main), '..', 'LICENSE'), 'utf8');
}

/** The notices of what the script contains, which Scalar publishes without them (`npm run renew:notices`). */
function readNotices(): Promise<string> {
  return readFile(new URL('api-reference-notices.txt', import.meta.url), 'utf8');
}

const script = `/*!\n${await readLicence()}\n${await readNotices()}*/\n${PREAMBLE}${adapt(await readScript())}`;
await writeFile(TO, gzipSync(script, { level: 9 }));
