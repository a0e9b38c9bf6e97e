// Opens the module of WebAssembly in node for tests: `const {call, cancel, fs, memory} = await openModule(FOLDER)`,
// then `await call({call: "open", ...})` gives the value of the answer or throws its error, `cancel(generation)` ends an
// answer, `fs` is its file system, `memory()` the bytes of its memory.
import nodeFs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

export class CallError extends Error {
  constructor({ id, kind, message }) {
    super(message);
    this.id = id;
    this.kind = kind;
  }
}

export async function openModule(folder) {
  const file = pathToFileURL(path.resolve(folder, "rullama_module.mjs"));
  const waiting = new Map();
  const onAnswer = (id, text) => {
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    const answer = JSON.parse(text);
    if (answer.error) reject(new CallError(answer.error));
    else resolve(answer.value);
  };
  const module = await (await import(file)).default({ onAnswer });
  setInterval(() => {}, 1 << 30);  // node does not wait for workers: the test ends by process.exit()
  let lastId = 0;
  const call = (request) => new Promise((resolve, reject) => {
    const id = ++lastId;
    waiting.set(id, { resolve, reject });
    const text = module.stringToNewUTF8(JSON.stringify(request));
    module._rullama_post(id, text);
    module._free(text);
  });
  return { call, cancel: (generation) => module._rullama_cancel(generation), fs: module.FS,
    memory: () => module.wasmMemory.buffer.byteLength };
}

// Makes a file of this machine one of the module, which is read where it is, as a browser reads a file that was picked.
// `onRead(offset, bytes)` is called for each read.
export function addHostFile(fs, name, source, onRead = () => {}) {
  const descriptor = nodeFs.openSync(source);
  const node = fs.createFile("/", name, {}, true, false);
  node.usedBytes = nodeFs.fstatSync(descriptor).size;
  const read = (stream, memory, at, count, offset) => {
    onRead(offset, count);
    return nodeFs.readSync(descriptor, new Uint8Array(memory.buffer, at, count), 0, count, offset);
  };
  node.stream_ops = { ...node.stream_ops, read };
}

// The whole answer to a request, and its events.
export async function answerOf(call, engine, request) {
  const { generation } = await call({ call: "submit", engine, request });
  const events = [];
  for (;;) {
    const some = await call({ call: "next", generation });
    if (some === null) break;
    events.push(...some);
    if (some.length === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  }
  return { ...await call({ call: "finish", generation }), events };
}
