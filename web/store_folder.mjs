// The folder in which rullama_store.mjs and its worker keep models.
export const DESCRIPTION = ".json";  // ends the names of descriptions
export const FAILED = 6;             // the exit code of errors of input and output

export async function folderOfModels() {
  return (await navigator.storage.getDirectory()).getDirectoryHandle("rullama-models", { create: true });
}

// The name of the file from this address.
export async function keyOf(url) {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(new URL(url).href));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
