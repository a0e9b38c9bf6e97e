// damaged_files_test.mjs MODULE_FOLDER SOURCE_FOLDER: of files with changed bytes each is refused with an id, or runs;
// the module stays usable.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";

import { answerOf, CallError, openModule } from "./module.mjs";

const FILES = 200;
const HEAD = 70_000;  // bytes of metadata and of the table of tensors, in which most of the changes are

const [folder, source] = process.argv.slice(2);
const model = fs.readFileSync(path.join(source, "tests/data/tiny-e2b-Q4_K_M.gguf"));
const { call, fs: files } = await openModule(folder);

// xorshift32: the same files each time.
let state = 0x2545f491;
function random(below) {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) % below;
}

function damaged() {
  const bytes = Uint8Array.from(model);
  for (let change = 1 + random(4); change > 0; --change) {
    const at = random(8) === 0 ? random(bytes.length) : random(HEAD);
    const value = [random(256), 0, 255, bytes[at] ^ (1 << random(8))][random(4)];
    // Half of the changes are of numbers of several bytes.
    bytes.fill(value, at, at + (random(2) === 0 ? 1 : 1 + random(8)));
  }
  return random(10) === 0 ? bytes.subarray(0, random(bytes.length)) : bytes;
}

async function tryFile(name, bytes) {
  files.writeFile(name, bytes);
  try {
    const { engine } = await call({ call: "open", model: name, settings: { "context.capacity": "64" } });
    try {
      return (await answerOf(call, engine, { prompt: "It was", max_tokens: 2 })).reason;
    } finally {
      await call({ call: "close", engine });
    }
  } catch (error) {
    assert.ok(error instanceof CallError, `${name}: ${error.stack}`);
    assert.match(error.id, /^[a-z0-9_]+\.[a-z0-9_]+$/, error.message);
    assert.notEqual(error.id, "run.exception", error.message);
    return error.id;
  } finally {
    files.unlink(name);
  }
}

const results = new Map();
for (let i = 0; i < FILES; ++i) {
  const result = await tryFile(`/damaged-${i}.gguf`, damaged());
  results.set(result, (results.get(result) ?? 0) + 1);
}
const refused = [...results].filter(([result]) => result.includes(".")).reduce((sum, [, count]) => sum + count, 0);
assert.ok(refused > FILES / 4, `${refused} of ${FILES} files were refused, expected more`);
console.log([...results].map(([result, count]) => `${result}: ${count}`).join(", "));
assert.equal(await tryFile("/whole.gguf", model), "length");
process.exit(0);
