/** A generator, or a linter, of the OpenAPI document. */
export interface Row {
  readonly name: string;
  /** Programs that the machine must have. */
  readonly needs: readonly string[];
  /** Sections of docs/generated-clients.md whose commands generate the client. */
  readonly sections: readonly string[];
  /** Files of the project that uses the client, in addition to those of the page. */
  readonly files?: Readonly<Record<string, string>>;
  /** Shell commands after generation and after the program is in place. */
  readonly build: string;
  /** Text for the report: the fact that the build proves. */
  readonly done: string;
  /** Undefined for a linter, and for a client that is only compiled. */
  readonly program?: {
    /** In the folder `programs`. */
    readonly source: string;
    readonly target: string;
    /** Shell command; `$URL` and `$TOKEN` are those of the service. */
    readonly run: string;
  };
}

const TSC = 'node "$ROOT/node_modules/typescript/bin/tsc" --typeRoots "$ROOT/node_modules/@types"';

const MYPY = 'pip install --quiet mypy==2.4.1 && mypy program.py';
const RUN_PYTHON = 'python program.py "$URL" "$TOKEN"';

const JAVA_CLASSES = 'plant-store-client/target/*:plant-store-client/target/dependency/*';

// Without TLS, which the service of the test does not need.
const CARGO = `[package]
name = "program"
version = "0.0.0"
edition = "2024"

[dependencies]
async-trait = "0.1"
http = "1"
plant-store-client = { path = "plant-store-client", default-features = false }
reqwest = { version = "0.13", default-features = false }
reqwest-middleware = "0.5"
serde_json = "1"
tokio = { version = "1", features = ["macros", "rt"] }
`;

/** The project of a TypeScript program. */
const TYPESCRIPT = {
  'package.json': '{ "private": true, "type": "module" }\n',
  'tsconfig.json': JSON.stringify({
    compilerOptions: {
      target: 'es2022',
      lib: ['es2023', 'dom', 'dom.iterable'],
      module: 'nodenext',
      strict: true,
      skipLibCheck: true,
      types: ['node'],
      outDir: 'out',
      rootDir: '.',
    },
    files: ['program.ts'],
  }),
};

function typescriptRow(
  name: string,
  source: string,
  sections: readonly string[],
  needs: readonly string[] = [],
): Row {
  return {
    name,
    needs: ['npm', ...needs],
    sections: [...sections, 'Exact ids in TypeScript'],
    files: TYPESCRIPT,
    build: TSC,
    done: 'generated, compiled',
    program: { source, target: 'program.ts', run: 'node out/program.js "$URL" "$TOKEN"' },
  };
}

/** The project of a Go program. */
const GO_MODULE = { 'go.mod': 'module example.test/app\n\ngo 1.25\n' };
const GO_BUILD = 'go mod tidy && go vet ./... && go build -o program .';

export const rows: readonly Row[] = [
  {
    name: 'Redocly, strict rules',
    needs: [],
    sections: [],
    build:
      'REDOCLY_TELEMETRY=off node "$ROOT/node_modules/@redocly/cli/bin/cli.js" lint --extends=recommended-strict openapi.json',
    done: 'no problems',
  },
  {
    name: 'Spectral',
    needs: ['npx'],
    sections: [],
    build:
      'npx --yes @stoplight/spectral-cli@6.16.3 lint --fail-severity hint --ruleset "$ROOT/test/generators/spectral.yaml" openapi.json',
    done: 'no problems but those explained in spectral.yaml',
  },
  {
    name: 'openapi-spec-validator',
    needs: ['python3'],
    sections: [],
    build: 'pip install --quiet openapi-spec-validator==0.9.0 && openapi-spec-validator openapi.json',
    done: 'no problems',
  },
  {
    name: 'openapi-generator, Python',
    needs: ['java', 'python3'],
    sections: ['openapi-generator', 'Python'],
    build: MYPY,
    done: 'generated, checked by mypy',
    program: { source: 'openapi-generator.py', target: 'program.py', run: RUN_PYTHON },
  },
  {
    name: 'openapi-python-client',
    needs: ['python3'],
    sections: ['openapi-python-client'],
    build: MYPY,
    done: 'generated, checked by mypy',
    program: { source: 'openapi-python-client.py', target: 'program.py', run: RUN_PYTHON },
  },
  {
    name: 'openapi-generator, Go',
    needs: ['java', 'python3', 'go'],
    sections: ['openapi-generator', 'Go'],
    files: GO_MODULE,
    build: GO_BUILD,
    done: 'generated, compiled',
    program: { source: 'openapi-generator.go', target: 'main.go', run: './program "$URL" "$TOKEN"' },
  },
  {
    name: 'oapi-codegen',
    needs: ['go'],
    sections: ['oapi-codegen'],
    files: GO_MODULE,
    build: GO_BUILD,
    done: 'generated, compiled',
    program: { source: 'oapi-codegen.go', target: 'main.go', run: './program "$URL" "$TOKEN"' },
  },
  {
    name: 'openapi-generator, Java',
    needs: ['java', 'python3', 'javac', 'mvn'],
    sections: ['openapi-generator', 'Java'],
    build:
      'mvn --quiet --batch-mode -f plant-store-client -DskipTests package dependency:copy-dependencies && ' +
      `javac -cp "${JAVA_CLASSES}" -d classes Program.java`,
    done: 'generated, compiled',
    program: {
      source: 'OpenApiGenerator.java',
      target: 'Program.java',
      run: `java -cp "classes:${JAVA_CLASSES}" Program "$URL" "$TOKEN"`,
    },
  },
  {
    name: 'openapi-generator, Rust',
    needs: ['java', 'python3', 'cargo'],
    sections: ['openapi-generator', 'Rust'],
    files: { 'Cargo.toml': CARGO },
    build: 'cargo build --quiet',
    done: 'generated, compiled',
    program: {
      source: 'openapi-generator.rs',
      target: 'src/main.rs',
      run: 'cargo run --quiet -- "$URL" "$TOKEN"',
    },
  },
  {
    name: 'openapi-generator, C#',
    needs: ['java', 'python3', 'dotnet'],
    sections: ['openapi-generator', 'C# and .NET'],
    build: 'dotnet build PlantStore',
    done: 'generated, compiled',
  },
  typescriptRow(
    'openapi-generator, TypeScript',
    'openapi-generator.ts',
    ['openapi-generator', 'TypeScript'],
    ['java', 'python3'],
  ),
  typescriptRow('openapi-typescript and openapi-fetch', 'openapi-fetch.ts', [
    'openapi-typescript and openapi-fetch',
  ]),
  typescriptRow('hey-api', 'hey-api.ts', ['hey-api']),
  typescriptRow('orval', 'orval.ts', ['orval']),
];
