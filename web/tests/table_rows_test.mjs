// table_rows_test.mjs MODULE_FOLDER SOURCE_FOLDER: of the table of per-layer embeddings the module reads the rows of
// tokens alone, so that it takes no memory.
import assert from "node:assert/strict";
import path from "node:path";

import { addHostFile, answerOf, openModule } from "./module.mjs";

// Of per_layer_token_embd.weight of the tiny model: 2,048 rows of 2,048 elements of q6_k, 210 bytes for 256 of them.
const ROWS = 2048;
const ROW_BYTES = 2048 / 256 * 210;

const [folder, source] = process.argv.slice(2);
const file = path.join(source, "tests/data/tiny-e2b-Q4_K_M.gguf");
const { call, fs: files } = await openModule(folder);
let bytes = 0;
let largest = 0;
addHostFile(files, "tiny.gguf", file, (offset, count) => {
  bytes += count;
  largest = Math.max(largest, count);
});

const { engine } = await call({ call: "open", model: "/tiny.gguf", settings: { "context.capacity": "512" } });
const answer = await answerOf(call, engine, { prompt: "It was in July, 1805,", max_tokens: 2 });
assert.equal(answer.tokens, 2);
assert.ok(largest < ROWS * ROW_BYTES / 2, `${largest} bytes were read at once`);

// With all weights there, a step reads the rows of its tokens.
const before = bytes;
const longer = await answerOf(call, engine, { prompt: "It was in July, 1805,", max_tokens: 12 });
assert.equal(longer.tokens, 12);
const steps = longer.prompt_tokens - longer.cached_tokens + longer.tokens - 1;
assert.equal(bytes - before, steps * ROW_BYTES);
process.exit(0);
