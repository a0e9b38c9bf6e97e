// The types of rullama.mjs.

/** An error of the engine; docs/errors.md explains each id. */
export declare class RullamaError extends Error {
  readonly id: string;
  /** The exit code that the program would have. */
  readonly kind: number;
}

export interface Info {
  architecture: string;
  backend: string;
  device: string;
  context_length: number;
  capacity: number;
  vocabulary: number;
  parameters: number;
  file_bytes: number;
  quantization: string;
  embedding_width: number;
  encodes: boolean;
  takes_pictures: boolean;
  takes_sound: boolean;
  load_seconds: number;
}

export interface ToolCall {
  name: string;
  arguments: Record<string, unknown>;
}

/** A part of an answer. The last one is of the kind "end" and has the whole answer. */
export type Part =
  | { kind: "progress"; done: number; total: number }
  | { kind: "text"; text: string }
  | { kind: "thinking"; text: string }
  | { kind: "tool_call"; call: ToolCall }
  | { kind: "draft"; text: string; done: number; total: number }
  | ({ kind: "end" } & Answer);

export interface Answer {
  text: string;
  thoughts: string;
  tool_calls: ToolCall[];
  reason: "eog" | "length" | "context" | "cancelled" | "stop";
  seed: number;
  prompt_tokens: number;
  cached_tokens: number;
  tokens: number;
  prompt_seconds: number;
  generate_seconds: number;
}

export interface Message {
  role: "system" | "user" | "assistant" | "tool";
  content: string | Record<string, unknown>[] | null;
  tool_calls?: Record<string, unknown>[];
  tool_call_id?: string;
}

/** Decoded by the browser: any format that it knows. */
export interface Medium {
  kind: "picture" | "sound";
  data: Blob;
}

/** What is left out is as configured, else as the model recommends (docs/configuration.md, block `sampler`). */
export interface GenerateOptions {
  /** Ends the answer within a step; the iterator then throws the signal's reason. */
  signal?: AbortSignal;
  /** In the order of the parts {type: "image"} and {type: "audio"} of the messages, or of the prompt's markers. */
  media?: Medium[];
  max_tokens?: number;
  stop?: string[];
  thinking?: boolean;
  tools?: Record<string, unknown>[];
  json_schema?: Record<string, unknown>;
  seed?: number;
  temperature?: number;
  top_k?: number;
  top_p?: number;
  min_p?: number;
  typical_p?: number;
  repeat_penalty?: number;
  repeat_last_n?: number;
  frequency_penalty?: number;
  presence_penalty?: number;
}

export interface OpenOptions {
  /** Values of the configuration by their names, as in YAML: {"context.capacity": "2048"}. */
  settings?: Record<string, string>;
  /** The file of the model's towers (mmproj), for pictures and sounds, where the model's file has none. */
  towers?: Blob | ArrayBuffer | ArrayBufferView;
}

/** A loaded model in a worker of its own. */
export declare class Model {
  readonly info: Info;
  tokenize(text: string): Promise<number[]>;
  detokenize(ids: number[]): Promise<string>;
  /** Bytes of the module's memory: weights, caches and what it works with. It does not shrink before close(). */
  memory(): Promise<number>;
  embed(text: string, options?: { task?: string; dimensions?: number }): Promise<Float32Array>;
  chat(messages: Message[], options?: GenerateOptions): AsyncGenerator<Part, void, void>;
  complete(prompt: string, options?: GenerateOptions): AsyncGenerator<Part, void, void>;
  /** Ends what still runs and gives the memory back. */
  close(): void;
}

export declare class Rullama {
  /** A File or Blob is read where it is, bytes are copied. */
  static open(source: Blob | ArrayBuffer | ArrayBufferView, options?: OpenOptions): Promise<Model>;
}
