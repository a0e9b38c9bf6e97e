// The worker in which the engine runs, for rullama.mjs: files are read synchronously here, which pages cannot.
//
// Messages to it: {id, call: {...}, source} for a call of web/calls.h, where `source`, of `open`, is a Blob that stays
// where it is or an ArrayBuffer; {id, generate: {engine, request}} for an answer; {cancel: id}. From it: {id, value},
// {id, event} and {id, error: {id, kind, message}}.
import createModule from "./rullama_module.mjs";

const waiting = new Map();
const ready = createModule({ onAnswer: receive });
const cancelled = new Set();
let lastCall = 0;
let models = 0;

class CallError extends Error {
  constructor(error) {
    super(error.message);
    this.error = error;
  }
}

function receive(id, text) {
  const { resolve, reject } = waiting.get(id);
  waiting.delete(id);
  const answer = text === null
    ? { error: { id: "memory.host", kind: 5, message: "there is not enough memory" } } : JSON.parse(text);
  if (answer.error) reject(new CallError(answer.error));
  else resolve(answer.value);
}

async function run(call) {
  const module = await ready;
  const id = ++lastCall;
  const answer = new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
  const text = module.stringToNewUTF8(JSON.stringify(call));
  module._rullama_post(id, text);
  module._free(text);
  return answer;
}

async function open(call, source) {
  const { FS, WORKERFS } = await ready;
  const folder = `/model-${++models}`;
  FS.mkdir(folder);
  const path = `${folder}/model.gguf`;
  const inPlace = source instanceof Blob;
  if (inPlace) {
    FS.mount(WORKERFS, { blobs: [{ name: "model.gguf", data: source }] }, folder);
  } else {
    FS.writeFile(path, new Uint8Array(source), { canOwn: true });
  }
  try {
    return await run({ ...call, model: path });
  } catch (error) {
    if (inPlace) FS.unmount(folder);
    else FS.unlink(path);
    throw error;
  }
}

async function generate(id, { engine, request }) {
  const { generation } = await run({ call: "submit", engine, request });
  try {
    for (;;) {
      const event = await run({ call: "next", generation });
      if (event === null) break;
      postMessage({ id, event });
      if (cancelled.delete(id)) await run({ call: "cancel", generation });
    }
  } catch (error) {
    await run({ call: "finish", generation });
    throw error;
  }
  return run({ call: "finish", generation });
}

// The module runs one call after the other; events of one answer leave room for other calls between them.
async function handle({ id, call, source, generate: answer }) {
  try {
    let value;
    if (answer) value = await generate(id, answer);
    else if (call.call === "open") value = await open(call, source);
    else value = await run(call);
    postMessage({ id, value });
  } catch (error) {
    const known = error instanceof CallError;
    postMessage({ id, error: known ? error.error : { id: "run.exception", kind: 1, message: String(error) } });
  } finally {
    cancelled.delete(id);
  }
}

onmessage = ({ data }) => {
  if (data.cancel !== undefined) cancelled.add(data.cancel);
  else handle(data);
};
