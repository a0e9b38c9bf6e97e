// Models that a page has downloaded, in the private file system of its origin: they are there without a network, and
// nobody else reads them. Types are in rullama_store.d.ts.
//
//   const file = await ModelStore.download("https://example.org/model.gguf", { sha256, onProgress, signal });
//   const model = await Rullama.open(file);
//
// A download that stopped, with its tab for example, continues where it was. By its address a file has two parts in the
// folder: its bytes, and a description in JSON (rullama_store_worker.mjs writes both).
import { RullamaError } from "./rullama_error.mjs";
import { DESCRIPTION, FAILED, folderOfModels, keyOf } from "./store_folder.mjs";

const STOP_MILLISECONDS = 1000;  // after which a worker that does not answer is ended

// Null without one that can be read, as when a page was closed before its first bytes.
async function readDescription(folder, name) {
  try {
    const file = await (await folder.getFileHandle(name)).getFile();
    return JSON.parse(await file.text());
  } catch (error) {
    if (error instanceof SyntaxError || error.name === "NotFoundError") return null;
    throw error;
  }
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
      const description = await readDescription(folder, name);
      if (description === null) continue;
      const { url, size, sha256, complete } = description;
      const bytes = await bytesOf(folder, name.slice(0, -DESCRIPTION.length));
      models.push({ url, name: nameOf(url), size, bytes, sha256, complete });
    }
    return models.sort((a, b) => a.name.localeCompare(b.name));
  }

  // The file of a complete model.
  static async file(url) {
    const folder = await folderOfModels();
    const key = await keyOf(url);
    const description = await readDescription(folder, key + DESCRIPTION);
    if (!description?.complete) {
      throw new RullamaError({ id: "io.open", kind: FAILED, message: `${nameOf(url)} is not completely downloaded` });
    }
    return (await folder.getFileHandle(key)).getFile();
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
    const ended = new Promise((resolve, reject) => {
      let timer = null;
      // The worker answers when its files are closed, so that the download can continue at once.
      const stop = () => {
        worker.postMessage({ stop: true });
        timer = setTimeout(() => end(() => reject(signal.reason)), STOP_MILLISECONDS);
      };
      const end = (settle) => {
        signal?.removeEventListener("abort", stop);
        clearTimeout(timer);
        worker.terminate();
        settle();
      };
      signal?.addEventListener("abort", stop, { once: true });
      worker.onmessage = ({ data: { progress, done, error } }) => {
        if (progress) {
          if (!signal?.aborted) onProgress(progress);
          return;
        }
        if (done) end(resolve);
        else end(() => reject(signal?.aborted ? signal.reason : new RullamaError(error)));
      };
      worker.onerror = (event) => {
        const message = event.message || "the worker of a download could not be started";
        end(() => reject(new RullamaError({ id: "run.exception", kind: 1, message })));
      };
    });
    worker.postMessage({ url, sha256 });
    return ended.then(() => ModelStore.file(url));
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
