// readme_text_test.mjs MODULE_FOLDER SOURCE_FOLDER: the module writes the text of README.md with the settings of
// configs/tiny.yaml, and says what is wrong with other files.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";

import { answerOf, openModule } from "./module.mjs";

const [folder, source] = process.argv.slice(2);
const model = fs.readFileSync(path.join(source, "tests/data/tiny-e2b-Q4_K_M.gguf"));
const readme = fs.readFileSync(path.join(source, "README.md"), "utf8");
const [, prompt, tokens] = readme.match(/rullama --config configs\/tiny\.yaml -p "([^"]+)" -n (\d+)/);
const [, expected] = readme.match(/It ends like this[^`]*```text\n(.*)\n/);

// The block `sampler` of the configuration.
const config = fs.readFileSync(path.join(source, "configs/tiny.yaml"), "utf8");
const sampler = config.match(/^sampler:\n((?: {2}.*\n)+)/m)[1];
const settings = Object.fromEntries(
  [...sampler.matchAll(/^ {2}(\w+): (\S+)$/gm)].map(([, key, value]) => [`sampler.${key}`, value]));
assert.equal(Object.keys(settings).length, 5);

const { call, cancel, fs: files } = await openModule(folder);
files.writeFile("/tiny.gguf", model);

for (const threads of ["1", "2"]) {
  const { engine, info } = await call({ call: "open", model: "/tiny.gguf",
    settings: { ...settings, "context.capacity": "2048", "backend.options": `{threads: ${threads}}` } });
  assert.equal(info.backend, "cpu");
  const answer = await answerOf(call, engine, { prompt, max_tokens: Number(tokens) });
  assert.equal(answer.text, expected);
  assert.equal(answer.reason, "length");
  assert.equal(answer.events.filter((event) => event.kind === "text").map((event) => event.text).join(""), expected);
  const again = await answerOf(call, engine, { prompt, max_tokens: Number(tokens) });
  assert.equal(again.text, expected);
  console.log(`${threads} threads: ${(1000 * again.generate_seconds / (again.tokens - 1)).toFixed(2)} ms per token, ` +
    `${info.device}`);
  const { generation } = await call({ call: "submit", engine, request: { prompt, max_tokens: 1000 } });
  cancel(generation);
  assert.equal((await call({ call: "finish", generation })).reason, "cancelled");
  cancel(generation);  // an answer that has ended
  const row = await call({ call: "embed", engine, text: prompt });
  assert.equal(row.length, info.embedding_width);
  await call({ call: "close", engine });
}

const refused = (request, id) => assert.rejects(call(request), { id });
files.writeFile("/cut.gguf", model.subarray(0, model.length / 2));
await refused({ call: "open", model: "/cut.gguf" }, "gguf.truncated");
files.writeFile("/text.gguf", "no model, but a text of some length");
await refused({ call: "open", model: "/text.gguf" }, "gguf.bad_magic");
await refused({ call: "open", model: "/missing.gguf" }, "io.open");
await refused({ call: "close", engine: 99 }, "usage.request");
process.exit(0);
