// Models that a page has downloaded, in the private file system of its origin: they are there without a network, and
// nobody else reads them. Types are in rullama_store.d.ts.
//
//   const file = await ModelStore.download("https://example.org/model.gguf", { sha256, onProgress, signal });
//   const model = await Rullama.open(file);
//
// A download that stopped, with its tab for example, continues where it was. By its address a file has two parts in the
// folder: its bytes, and a description in JSON (rullama_store_worker.mjs writes both).
import { RullamaError } from "./rullama_error.mjs";
import { DESCRIPTION, folderOfModels, keyOf } from "./store_folder.mjs";

async function readDescription(folder, name) {
  const file = await (await folder.getFileHandle(name)).getFile();
  return JSON.parse(await file.text());
}

async function bytesOf(folder, key) {
  try {
    return (await (await folder.getFileHandle(key)).getFile()).size;
  } catch (error) {
    if (error.name === "NotFoundError") return 0;
    throw error;
  }
}

export class ModelStore {
  // Every model, also those that are not complete.
  static async list() {
    const folder = await folderOfModels();
    const models = [];
    for await (const name of folder.keys()) {
      if (!name.endsWith(DESCRIPTION)) continue;
      const { url, size, sha256, complete } = await readDescription(folder, name);
      const bytes = await bytesOf(folder, name.slice(0, -DESCRIPTION.length));
      models.push({ url, name: nameOf(url), size, bytes, sha256, complete });
    }
    return models.sort((a, b) => a.name.localeCompare(b.name));
  }

  // The file of a complete model.
  static async file(url) {
    const folder = await folderOfModels();
    return (await folder.getFileHandle(await keyOf(url))).getFile();
  }

  static async remove(url) {
    const folder = await folderOfModels();
    const key = await keyOf(url);
    for (const name of [key + DESCRIPTION, key]) {
      await folder.removeEntry(name).catch((error) => {
        if (error.name !== "NotFoundError") throw error;
      });
    }
  }

  static download(url, { sha256 = null, signal = null, onProgress = () => {} } = {}) {
    signal?.throwIfAborted();
    const worker = new Worker(new URL("./rullama_store_worker.mjs", import.meta.url), { type: "module" });
    const stopped = new Promise((resolve, reject) => {
      const stop = () => {
        worker.postMessage({ stop: true });
        reject(signal.reason);
      };
      signal?.addEventListener("abort", stop, { once: true });
      worker.onmessage = ({ data: { progress, done, error } }) => {
        if (progress) {
          if (!signal?.aborted) onProgress(progress);
          return;
        }
        signal?.removeEventListener("abort", stop);
        worker.terminate();
        if (done) resolve();
        else reject(new RullamaError(error));
      };
      worker.onerror = (event) => {
        worker.terminate();
        reject(new RullamaError({ id: "run.exception", kind: 1, message: event.message || "the worker of a download " +
          "could not be started" }));
      };
    });
    worker.postMessage({ url, sha256 });
    return stopped.then(() => ModelStore.file(url));
  }
}

// What people call a file at this address.
export function nameOf(url) {
  const name = new URL(url).pathname.split("/").filter(Boolean).at(-1) ?? url;
  try {
    return decodeURIComponent(name);
  } catch {
    return name;  // a percent sign that encodes nothing
  }
}
