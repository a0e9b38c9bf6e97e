// Downloads one model for rullama_store.mjs, in a worker, where files can be written in place.
//
// Messages to it: {url, sha256} once, `sha256` may be null; {stop: true}. From it: {progress: {phase: "download" or
// "check", done, total}} with a total that may be null, then {done: true} or {error: {id, kind, message}}.
import { Sha256 } from "./sha256.mjs";
import { DESCRIPTION, FAILED, folderOfModels, keyOf } from "./store_folder.mjs";

const PART = 64 * 2 ** 20;   // bytes of one request
const CHECKED = 4 * 2 ** 20; // bytes that are read at once for the sum
const TRIES = 6;             // of a request that fails, with pauses of 0.25, 0.5, 1, ... seconds
const OTHER_FILES = 3;       // that a server may have in the course of a download, until it ends
const LOCK_TRIES = 20;       // to write a file that another page writes
const LOCK_PAUSE = 250;      // milliseconds between them
const PROGRESS_PAUSE = 100;  // milliseconds

class DownloadError extends Error {
  constructor(id, message) {
    super(message);
    this.id = id;
  }
}

const aborter = new AbortController();
let progress = null;  // of the next message

function report(phase, done, total) {
  if (progress === null) {
    setTimeout(() => {
      postMessage({ progress });
      progress = null;
    }, PROGRESS_PAUSE);
  }
  progress = { phase, done, total };
}

// Ends early, with an AbortError, when the download is stopped.
function pause(milliseconds) {
  const { signal } = aborter;
  signal.throwIfAborted();
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    signal.addEventListener("abort", stop, { once: true });
  });
}

// A file of the folder that this worker alone may write. A page that was closed has it for a moment longer.
async function openHandle(folder, name) {
  const file = await folder.getFileHandle(name, { create: true });
  for (let tries = 1;; ++tries) {
    try {
      return await file.createSyncAccessHandle();
    } catch (error) {
      if (error.name !== "NoModificationAllowedError") throw error;
      if (tries === LOCK_TRIES) throw new DownloadError("io.write", "another page downloads this model");
    }
    await pause(LOCK_PAUSE);
  }
}

function writeAll(handle, bytes, at) {
  const count = handle.write(bytes, { at });
  if (count !== bytes.length) throw new DownloadError("pull.no_space", "the browser gives no more space for the model");
}

// The description of a model, as it is stored.
class Description {
  #handle;

  constructor(handle, initial) {
    this.#handle = handle;
    const bytes = new Uint8Array(handle.getSize());
    handle.read(bytes, { at: 0 });
    let stored = {};
    try {
      stored = JSON.parse(new TextDecoder().decode(bytes));
    } catch {
      // It is new, or its last write was cut.
    }
    this.values = { ...initial, ...stored };
    if (stored.url !== initial.url) this.values = initial;
    this.store({});
  }

  // Writes once, with spaces over the rest of a longer text: a tab that is closed now leaves the old or the new text.
  store(values) {
    Object.assign(this.values, values);
    const text = new TextEncoder().encode(JSON.stringify(this.values));
    const bytes = new Uint8Array(Math.max(text.length, this.#handle.getSize())).fill(0x20);
    bytes.set(text);
    writeAll(this.#handle, bytes, 0);
    this.#handle.flush();
  }
}

// The first byte and the size of the file, of a part of it; null where the server does not let pages know.
function rangeOf(response) {
  const match = /^bytes (\d+)-\d+\/(\d+)$/.exec(response.headers.get("Content-Range") ?? "");
  return match ? { first: Number(match[1]), size: Number(match[2]) } : { first: null, size: null };
}

function wholeSize(response) {
  // The length of a body that is compressed on its way is not that of the file.
  const length = response.headers.get("Content-Length");
  return length === null || response.headers.get("Content-Encoding") ? null : Number(length);
}

function checkStatus(response) {
  const { status } = response;
  if (status === 200 || status === 206 || status === 416) return;
  const id = status === 401 || status === 403 ? "pull.unauthorized" : status === 404 ? "pull.not_found"
    : status === 429 ? "pull.rate_limited" : "pull.network";
  throw new DownloadError(id, `the server answers with status ${status}`);
}

// Lets go of a response that is not read. One whose connection broke meanwhile refuses to be cancelled.
async function discard(response) {
  await response.body?.cancel().catch(() => {});
}

class Download {
  #url;
  #file;
  #description;
  #others = 0;  // files that the server has had in the meantime

  constructor(url, file, description) {
    this.#url = url;
    this.#file = file;
    this.#description = description;
  }

  // Writes the bytes that the file lacks.
  async run() {
    const { expected, size, version } = this.#description.values;
    const unknown = expected === null && version === null;  // nothing tells whether the server has the same file still
    if (unknown && this.#file.getSize() !== size) this.#restart({ size: null, version: null });
    await this.#fetchParts();
    if (this.#file.getSize() > 0) return;
    this.#restart({ size: null, version: null });
    throw new DownloadError("pull.size", "the server's file is empty");
  }

  async #fetchParts() {
    let tries = 0;
    for (;;) {
      const before = this.#file.getSize();
      if (before === this.#description.values.size) return;
      try {
        if (await this.#fetchPart(before)) return;
        tries = 0;
      } catch (error) {
        if (aborter.signal.aborted || error instanceof DownloadError && error.id !== "pull.network") throw error;
        if (error.name === "QuotaExceededError") {
          throw new DownloadError("pull.no_space", "the browser gives no more space for the model");
        }
        if (this.#file.getSize() > before) tries = 0;
        if (++tries === TRIES) throw new DownloadError("pull.network", `${this.#url}: ${error.message}`);
        await pause(125 * 2 ** tries);
      }
    }
  }

  // True after the last part.
  async #fetchPart(first) {
    const response = await fetch(this.#url, {
      headers: { Range: `bytes=${first}-${first + PART - 1}` }, signal: aborter.signal, cache: "no-store",
      credentials: "omit", referrerPolicy: "no-referrer" });
    checkStatus(response);
    const { size, version } = this.#description.values;
    if (response.status === 416) {
      if (first === 0 || first === size || size === null) return true;
      await discard(response);
      this.#restart({ size: null, version: null });
      this.#countOther();
      return false;
    }
    const range = rangeOf(response);
    const partial = response.status === 206;
    const found = { size: partial ? range.size : wholeSize(response),
      version: response.headers.get("ETag") ?? response.headers.get("Last-Modified") };
    const changed = first > 0 && (found.size !== size || found.version !== version);
    if (changed || (partial ? range.first !== null && range.first !== first : first > 0)) {
      // Another file is there now, or the server begins at the beginning.
      this.#restart(found);
      if (partial || this.#others + 1 === OTHER_FILES) await discard(response);
      this.#countOther();
      if (partial) return false;
      first = 0;
    }
    if (first === 0) this.#description.store(found);
    const end = await this.#write(response.body, first, found.size);
    if (found.size !== null) return end === found.size;
    return !partial || end - first < PART;
  }

  #countOther() {
    if (++this.#others < OTHER_FILES) return;
    throw new DownloadError("pull.protocol", `the server had another file, or sent one from its beginning, ${
      OTHER_FILES} times while it was downloaded (by its size and its ETag or Last-Modified); see what it serves`);
  }

  #restart(found) {
    this.#file.truncate(0);
    this.#description.store(found);
  }

  async #write(body, at, size) {
    const reader = body.getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      if (size !== null && at + value.length > size) {
        throw new DownloadError("pull.size", `the server sends more than the ${size} bytes of the file`);
      }
      writeAll(this.#file, value, at);
      at += value.length;
      report("download", at, size);
    }
    this.#file.flush();
    return at;
  }
}

async function sumOf(file) {
  const sum = new Sha256();
  const size = file.getSize();
  const part = new Uint8Array(CHECKED);
  for (let at = 0; at < size;) {
    const count = file.read(part, { at });
    sum.update(part.subarray(0, count));
    at += count;
    report("check", at, size);
    await pause(0);  // {stop: true} may have come
  }
  return sum.hex();
}

// The sum that the address of a blob of Ollama's registry names.
function sumInAddress(url) {
  return /sha256(?:[:-]|%3A)([0-9a-f]{64})(?![0-9a-f])/i.exec(url)?.[1] ?? null;
}

async function download(url, sha256) {
  const folder = await folderOfModels();
  const key = await keyOf(url);
  const file = await openHandle(folder, key);
  const stored = await openHandle(folder, key + DESCRIPTION).catch((error) => {
    file.close();
    throw error;
  });
  try {
    const description = new Description(stored, { url, size: null, version: null, expected: null, sha256: null,
      complete: false });
    // The caller who continues a download need not know the sum.
    const expected = (sha256 ?? description.values.expected ?? sumInAddress(url))?.toLowerCase() ?? null;
    description.store({ expected });
    await new Download(url, file, description).run();
    const found = description.values.sha256 ?? await sumOf(file);
    if (expected !== null && found !== expected) {
      file.truncate(0);
      description.store({ size: null, version: null, sha256: null, complete: false });
      throw new DownloadError("pull.digest", `the file has the SHA-256 ${found}, expected ${expected}; it was removed`);
    }
    description.store({ size: file.getSize(), sha256: found, complete: true });
  } finally {
    file.close();
    stored.close();
  }
}

onmessage = async ({ data }) => {
  if (data.stop) return aborter.abort();
  try {
    await download(data.url, data.sha256);
    postMessage({ done: true });
  } catch (error) {
    const id = error instanceof DownloadError ? error.id : "run.exception";
    const kind = id === "run.exception" ? 1 : FAILED;
    postMessage({ error: { id, kind, message: error.message } });
  }
};
