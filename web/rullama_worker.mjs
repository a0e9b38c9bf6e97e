// The worker in which the engine runs, for rullama.mjs: files are read synchronously here, which pages cannot.
//
// Messages to it: {id, call: {...}, source, towers} for a call of web/calls.h, where `source` and perhaps `towers`, of
// `open`, are Blobs that stay where they are or ArrayBuffers; {id, generate: {engine, request}} for an answer, whose
// pictures and sounds are {kind: "picture", data: Blob} and {kind: "sound", samples: Float32Array}; {id, memory: true}
// for the bytes of its memory; {cancel: id}. From it: {id, value}, {id, event} and {id, error: {id, kind, message}}.
import { bmpOf, wavOf } from "./media_files.mjs";
import createModule from "./rullama_module.mjs";

const waiting = new Map();
const ready = createModule({ onAnswer: receive });
// By the ids of messages: {generation, cancelled} of answers that are being made. `generation` is null before it starts.
const running = new Map();
const POLL_MILLISECONDS = 2;  // between questions for events of an answer that has none yet
let lastCall = 0;
let models = 0;
let media = 0;

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

// Gives the module a file of a model, which stays where it is if it is a Blob: {path, remove}.
function addFile(FS, WORKERFS, source) {
  const folder = `/model-${++models}`;
  const path = `${folder}/model.gguf`;
  FS.mkdir(folder);
  if (source instanceof Blob) {
    FS.mount(WORKERFS, { blobs: [{ name: "model.gguf", data: source }] }, folder);
    return { path, remove: () => FS.unmount(folder) };
  }
  FS.writeFile(path, new Uint8Array(source), { canOwn: true });
  return { path, remove: () => FS.unlink(path) };
}

async function open(call, source, towers) {
  const { FS, WORKERFS } = await ready;
  const files = [source, towers].filter(Boolean).map((file) => addFile(FS, WORKERFS, file));
  const [model, other] = files.map(({ path }) => path);
  const settings = other ? { ...call.settings, "model.mmproj": other } : call.settings;
  try {
    return await run({ ...call, model, settings });
  } catch (error) {
    for (const file of files) file.remove();
    throw error;
  }
}

// Calls `use` with the pictures and sounds of a request as files of the module.
async function withFiles(list, use) {
  const { FS } = await ready;
  const files = [];
  try {
    for (const { kind, data, samples } of list) {
      const bytes = kind === "sound" ? wavOf(samples) : await bmpOf(data);
      const path = `/medium-${++media}`;
      FS.writeFile(path, bytes, { canOwn: true });
      files.push({ kind, path });
    }
    return await use(files);
  } finally {
    for (const { path } of files) FS.unlink(path);
  }
}

async function generate(id, { engine, request: { media: list = [], ...request } }) {
  const state = { generation: null, cancelled: false };
  running.set(id, state);
  try {
    const { generation } = await withFiles(list, (files) => run({ call: "submit", engine,
      request: files.length === 0 ? request : { ...request, media: files } }));
    state.generation = generation;
    if (state.cancelled) await cancel(id);
    try {
      for (;;) {
        const events = await run({ call: "next", generation });
        if (events === null) break;
        for (const event of events) postMessage({ id, event });
        if (events.length === 0) await new Promise((resolve) => setTimeout(resolve, POLL_MILLISECONDS));
      }
    } catch (error) {
      await run({ call: "finish", generation });
      throw error;
    }
    return await run({ call: "finish", generation });
  } finally {
    running.delete(id);
  }
}

// At once, past the calls that wait. Nothing for an answer that has ended.
async function cancel(id) {
  const state = running.get(id);
  if (state === undefined) return;
  state.cancelled = true;
  if (state.generation !== null) (await ready)._rullama_cancel(state.generation);
}

// The module runs one call after the other; events of one answer leave room for other calls between them.
async function handle({ id, call, source, towers, memory, generate: answer }) {
  try {
    let value;
    if (memory) value = (await ready).wasmMemory.buffer.byteLength;
    else if (answer) value = await generate(id, answer);
    else if (call.call === "open") value = await open(call, source, towers);
    else value = await run(call);
    postMessage({ id, value });
  } catch (error) {
    const known = error instanceof CallError;
    postMessage({ id, error: known ? error.error : { id: "run.exception", kind: 1, message: String(error) } });
  }
}

onmessage = ({ data }) => {
  if (data.cancel !== undefined) cancel(data.cancel);
  else handle(data);
};
