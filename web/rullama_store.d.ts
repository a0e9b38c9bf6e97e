// The types of rullama_store.mjs.

export interface StoredModel {
  url: string;
  /** The last part of the address. */
  name: string;
  /** Bytes of the whole file; null until a server has told. */
  size: number | null;
  /** Bytes that are there. */
  bytes: number;
  /** Of the complete file, in hexadecimal digits; null before. */
  sha256: string | null;
  complete: boolean;
}

export interface DownloadProgress {
  /** "check": the sum of the file is computed. */
  phase: "download" | "check";
  done: number;
  total: number | null;
}

export interface DownloadOptions {
  /**
   * The SHA-256 that the file must have. Without it counts that of the call that began this download, or that of an
   * address of Ollama's registry.
   */
  sha256?: string | null;
  /** Stops the download, which can continue as soon as the promise is rejected. */
  signal?: AbortSignal | null;
  onProgress?: (progress: DownloadProgress) => void;
}

/** Models in the private file system of the page's origin. */
export declare class ModelStore {
  static list(): Promise<StoredModel[]>;
  /** Continues where an earlier download of this address stopped. Errors: RullamaError with ids pull.*, io.write. */
  static download(url: string, options?: DownloadOptions): Promise<File>;
  /** The file of a complete model, to open. Errors: RullamaError with the id io.open. */
  static file(url: string): Promise<File>;
  static remove(url: string): Promise<void>;
}

/** What people call a file at this address. */
export declare function nameOf(url: string): string;
