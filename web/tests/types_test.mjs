// types_test.mjs MODULE_FOLDER SOURCE_FOLDER: rullama.d.ts names the members that the module gives and takes.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";

import { addHostFile, answerOf, openModule } from "./module.mjs";

const [folder, source] = process.argv.slice(2);
const types = fs.readFileSync(path.join(source, "web/rullama.d.ts"), "utf8");

// The members of an interface, sorted.
function membersOf(name) {
  const [, body] = types.match(new RegExp(`^export interface ${name} {\\n([^]*?)^}`, "m"));
  return [...body.matchAll(/^ {2}(\w+)\??:/gm)].map(([, member]) => member).sort();
}

const { call, fs: files } = await openModule(folder);
const file = path.join(source, "tests/data/tiny-e2b-Q4_K_M.gguf");
addHostFile(files, "tiny.gguf", file);
const { engine, info } = await call({ call: "open", model: "/tiny.gguf", settings: { "context.capacity": "64" } });
assert.deepEqual(membersOf("Info"), Object.keys(info).sort());
assert.equal(info.file_bytes, fs.statSync(file).size);
const { events, ...answer } = await answerOf(call, engine, { prompt: "It was", max_tokens: 1 });
assert.deepEqual(membersOf("Answer"), Object.keys(answer).sort());
assert.ok(events.length > 0);

// The members of a request, which its error lists.
const wrong = call({ call: "submit", engine, request: { prompt: "It was", unknown: 1 } });
const { message } = await wrong.then(() => assert.fail("an unknown member was taken"), (error) => error);
const [, list] = message.match(/expected one of: (.*)/);
const taken = list.split(", ").filter((member) => !["messages", "prompt"].includes(member));
assert.deepEqual(membersOf("GenerateOptions").filter((member) => member !== "signal"), taken.sort());
process.exit(0);
