// rullama for JavaScript in browsers (docs/browser.md). Types are in rullama.d.ts.
//
//   const model = await Rullama.open(file, { settings: { "context.capacity": "2048" } });
//   for await (const part of model.chat([{ role: "user", content: "Why is the sky blue?" }])) {
//     if (part.kind === "text") print(part.text);
//   }
//   await model.close();

import { samplesOf } from "./media_files.mjs";
import { RullamaError } from "./rullama_error.mjs";

export { RullamaError };

// The worker of an engine, and what its messages are answers to.
class Engine {
  #worker;
  #waiting = new Map();
  #lastId = 0;
  #fault = null;  // the error of all that is asked for once the worker has ended

  constructor() {
    this.#worker = new Worker(new URL("./rullama_worker.mjs", import.meta.url), { type: "module" });
    this.#worker.onmessage = ({ data }) => this.#receive(data);
    this.#worker.onerror = (event) => {
      this.#worker.terminate();
      this.#fail("run.exception", 1, event.message || "the worker could not be started");
    };
  }

  #receive({ id, event, value, error }) {
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) return;
    if (event !== undefined) return waiting.onEvent(event);
    this.#waiting.delete(id);
    if (error !== undefined) waiting.reject(new RullamaError(error));
    else waiting.resolve(value);
  }

  // Ends all that waits: nothing more comes from the worker.
  #fail(id, kind, message) {
    this.#fault = { id, kind, message };
    for (const { reject } of this.#waiting.values()) reject(new RullamaError(this.#fault));
    this.#waiting.clear();
  }

  send(message, { onEvent = () => {} } = {}) {
    const id = ++this.#lastId;
    if (this.#fault !== null) return { id, promise: Promise.reject(new RullamaError(this.#fault)) };
    const promise = new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject, onEvent }));
    this.#worker.postMessage({ id, ...message });
    return { id, promise };
  }

  cancel(id) {
    this.#worker.postMessage({ cancel: id });
  }

  end() {
    this.#worker.terminate();
    this.#fail("usage.request", 2, "the model was closed");
  }
}

// The media of a request as the worker takes them.
function mediaForWorker(media) {
  return Promise.all(media.map(async ({ kind, data }) =>
    kind === "sound" ? { kind, samples: await samplesOf(data) } : { kind, data }));
}

export class Model {
  #engine;
  #handle;

  constructor(engine, { engine: handle, info }) {
    this.#engine = engine;
    this.#handle = handle;
    this.info = info;
  }

  #call(call) {
    return this.#engine.send({ call: { ...call, engine: this.#handle } }).promise;
  }

  tokenize(text) {
    return this.#call({ call: "tokenize", text });
  }

  detokenize(ids) {
    return this.#call({ call: "detokenize", ids });
  }

  async embed(text, { task = "", dimensions = 0 } = {}) {
    return Float32Array.from(await this.#call({ call: "embed", text, task, dimensions }));
  }

  // Bytes that the module has: its weights, caches and work.
  memory() {
    return this.#engine.send({ memory: true }).promise;
  }

  chat(messages, options = {}) {
    return this.#generate({ ...options, messages });
  }

  complete(prompt, options = {}) {
    return this.#generate({ ...options, prompt });
  }

  async *#generate({ signal, media, ...request }) {
    signal?.throwIfAborted();
    if (media !== undefined) request.media = await mediaForWorker(media);
    const events = [];
    let wake = () => {};
    let finished = false;
    const push = (event) => {
      events.push(event);
      wake();
    };
    const { id, promise } = this.#engine.send({ generate: { engine: this.#handle, request } }, { onEvent: push });
    const answer = promise.finally(() => {
      finished = true;
      wake();
    });
    answer.catch(() => {});  // it is awaited below, once the events before it were read
    const cancel = () => this.#engine.cancel(id);
    signal?.addEventListener("abort", cancel);
    try {
      while (!finished || events.length > 0) {
        if (events.length === 0) {
          await new Promise((resolve) => { wake = resolve; });
          continue;
        }
        yield events.shift();
      }
      const end = await answer;
      signal?.throwIfAborted();
      yield { kind: "end", ...end };
    } finally {
      signal?.removeEventListener("abort", cancel);
      if (!finished) cancel();
    }
  }

  // Ends what still runs and gives the memory back.
  close() {
    this.#engine.end();
  }
}

// A file as the worker takes it: the bytes of a view are copied here, those of a buffer by sending them.
function sentFile(source) {
  if (source instanceof Blob || source instanceof ArrayBuffer) return source;
  if (ArrayBuffer.isView(source)) {
    return new Uint8Array(source.buffer, source.byteOffset, source.byteLength).slice().buffer;
  }
  throw new TypeError("a model is a File, a Blob or its bytes");
}

export class Rullama {
  static async open(source, { settings = {}, towers } = {}) {
    const files = { source: sentFile(source), ...(towers === undefined ? {} : { towers: sentFile(towers) }) };
    if (!globalThis.crossOriginIsolated) {
      throw new RullamaError({ id: "run.exception", kind: 1, message: "the page has no shared memory, which threads " +
        "need; serve it with the headers Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: " +
        "require-corp, from https: or from 127.0.0.1" });
    }
    const engine = new Engine();
    try {
      const opened = engine.send({ call: { call: "open", settings }, ...files });
      return new Model(engine, await opened.promise);
    } catch (error) {
      engine.end();
      throw error;
    }
  }
}
