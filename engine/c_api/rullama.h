/* The C interface of librullama, version 1: everything that a program needs to get from a model
 * file to text. C99, also valid C++. It stands on the C++ interface <rullama/engine/engine.h>,
 * whose ranges and defaults hold here as well.
 *
 *   rullama_engine_options options = {.struct_size = sizeof(options)};
 *   options.model = "gemma4:e2b";
 *   rullama_engine* engine = NULL;
 *   rullama_error* error = NULL;
 *   if (rullama_engine_open(&options, &engine, &error)) return Report(error);
 *
 *   rullama_request request = {.struct_size = sizeof(request)};
 *   request.prompt = "Why is the sky blue?";
 *   request.max_tokens = rullama_given_int(100);
 *   rullama_generation* generation = NULL;
 *   if (rullama_engine_submit(engine, &request, &generation, &error)) return Report(error);
 *   const rullama_event* event = NULL;
 *   for (;;) {
 *     if (rullama_generation_next(generation, &event, &error)) return Report(error);
 *     if (event == NULL) break;
 *     if (event->kind == RULLAMA_EVENT_TEXT) fputs(event->text, stdout);
 *   }
 *   rullama_generation_free(generation);
 *   rullama_engine_free(engine);
 *
 * Rules that hold for every struct and function below:
 *
 * Structs. A struct that begins with `struct_size` only ever grows at its end. The caller sets the
 * struct_size of what it hands in to sizeof the struct and the rest to zero, which means the
 * default of every member. Structs of an older header are accepted; those of a newer header are as
 * long as the members that this library does not know are zero. Structs that the library hands out
 * have its own struct_size; a member that came after version 1.0 says so, and is there if
 * struct_size covers it. Structs without struct_size never change. Members named `reserved` are
 * zero.
 *
 * Ownership. A handle that a function hands out is released with the free function of its type, a
 * buffer with rullama_free(). What a function receives is only read until it returns, unless its
 * comment says otherwise: the caller may free it then. Pointers without a free function are
 * borrowed, and the comment says for how long.
 *
 * Strings are UTF-8. Those handed in are terminated by a zero byte, or come with a size in bytes,
 * for which RULLAMA_TERMINATED stands for "up to the zero byte". Those handed out are terminated;
 * their sizes do not count the zero byte.
 *
 * Errors. A function that can fail returns RULLAMA_OK or the kind of the error. If `error` is not
 * NULL, *error becomes a new handle that the caller frees, or NULL on success; what *error was
 * before does not matter. Results are set to NULL or zero by a function that fails. There is no
 * global state and no last error. Every such function may fail with usage.argument (NULL where
 * something is needed, an unknown flag), usage.struct (a wrong struct_size), memory.host and
 * run.exception; the comment names others by their ids, which docs/errors.md explains. No exception
 * leaves the library.
 *
 * Threads. [any]: may be called from any thread, also while other threads use the same handle.
 * [one]: from any thread, but from one at a time for each handle or buffer. A handle is freed when
 * no other call on it is running.
 *
 * A child of fork() has no threads of the engines that it inherits: submitting, waiting, embedding
 * and scoring are the error engine.forked there, and freeing them does nothing.
 *
 * Blocking. [blocks]: waits for the device, for a slot or for a file. The others return at once.
 *
 * Callbacks run on the thread that the comment names. They must not throw, longjmp, or free the
 * handle of the function that calls them.
 */
#ifndef RULLAMA_RULLAMA_H_
#define RULLAMA_RULLAMA_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define RULLAMA_FUNCTION __attribute__((visibility("default")))
#else
#define RULLAMA_FUNCTION
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. The minor number counts additions; another major number means that
 * programs have to be changed. */
#define RULLAMA_C_API_MAJOR 1
#define RULLAMA_C_API_MINOR 6

#define RULLAMA_TERMINATED SIZE_MAX

/* A loaded model on an open device. */
typedef struct rullama_engine rullama_engine;
/* One running request. It keeps its engine alive, also after rullama_engine_free(). */
typedef struct rullama_generation rullama_generation;
/* The error of a call that failed. */
typedef struct rullama_error rullama_error;

/* A number that is given or left to its default. */
typedef struct rullama_optional_int {
  int64_t given; /* 0: no; then `value` does not matter */
  int64_t value;
} rullama_optional_int;

typedef struct rullama_optional_double {
  int64_t given; /* 0: no; then `value` does not matter */
  double value;
} rullama_optional_double;

/* request.seed = rullama_given_int(7); */
static inline rullama_optional_int rullama_given_int(int64_t value) {
  rullama_optional_int given;
  given.given = 1;
  given.value = value;
  return given;
}

/* request.temperature = rullama_given_double(0.7); */
static inline rullama_optional_double rullama_given_double(double value) {
  rullama_optional_double given;
  given.given = 1;
  given.value = value;
  return given;
}

/* The values of members whose default is not "off". */
typedef enum rullama_switch {
  RULLAMA_DEFAULT = 0,
  RULLAMA_ON = 1,
  RULLAMA_OFF = 2,
  RULLAMA_SWITCH_MAX_ENUM = 0x7FFFFFFF
} rullama_switch;

/* ---- version and memory ---------------------------------------------------------------------- */

/* The version of the library, such as "0.2.0"; a constant. [any] */
RULLAMA_FUNCTION const char* rullama_version(void);

/* The version of this interface that the library has, which may be newer than that of this header:
 * RULLAMA_C_API_MAJOR * 65536 + RULLAMA_C_API_MINOR. [any] */
RULLAMA_FUNCTION uint32_t rullama_c_api_version(void);

/* Releases a buffer that a function of this interface handed out; NULL does nothing. [one] */
RULLAMA_FUNCTION void rullama_free(void* buffer);

/* ---- errors ---------------------------------------------------------------------------------- */

/* The kind of an error is the exit code of the `rullama` program. */
typedef enum rullama_code {
  RULLAMA_OK = 0,
  RULLAMA_ERROR_RUNTIME = 1,    /* failure while running: logits that are not numbers */
  RULLAMA_ERROR_USAGE = 2,      /* an argument or the configuration */
  RULLAMA_ERROR_BACKEND = 3,    /* plugin, device or driver cannot be used */
  RULLAMA_ERROR_MODEL_FILE = 4, /* model file, tokenizer or model store is invalid or unsupported */
  RULLAMA_ERROR_MEMORY = 5,     /* out of memory, of the host or the device */
  RULLAMA_ERROR_IO = 6,         /* reading or writing failed */
  RULLAMA_ERROR_THRESHOLD = 7,  /* a comparison exceeded its threshold */
  RULLAMA_CODE_MAX_ENUM = 0x7FFFFFFF
} rullama_code;

/* The kind; RULLAMA_OK for NULL. [any] */
RULLAMA_FUNCTION rullama_code rullama_error_code(const rullama_error* error);
/* Four strings that live as long as `error`; "" for NULL. [any]
 *   id       stable, for programs: "gguf.bad_magic"
 *   message  what was found and what was expected
 *   hint     what to do, or ""
 *   text     all of these in one line, for people: "message; hint [id]" */
RULLAMA_FUNCTION const char* rullama_error_id(const rullama_error* error);
RULLAMA_FUNCTION const char* rullama_error_message(const rullama_error* error);
RULLAMA_FUNCTION const char* rullama_error_hint(const rullama_error* error);
RULLAMA_FUNCTION const char* rullama_error_text(const rullama_error* error);
/* Releases an error; NULL does nothing. [one] */
RULLAMA_FUNCTION void rullama_error_free(rullama_error* error);

/* ---- engines --------------------------------------------------------------------------------- */

typedef enum rullama_log_level {
  RULLAMA_LOG_ERROR = 0,
  RULLAMA_LOG_WARNING = 1,
  RULLAMA_LOG_NOTE = 2,
  RULLAMA_LOG_LEVEL_MAX_ENUM = 0x7FFFFFFF
} rullama_log_level;

/* One line without a line break; `text` lives until the callback returns. Called by the thread that
 * opens the engine and by the engine's own thread, never by two at once. */
typedef void (*rullama_log_callback)(void* data, rullama_log_level level, const char* text);

/* One value of the configuration, by its name in docs/configuration.md: {"context.slots", "4"}. */
typedef struct rullama_setting {
  const char* key;
  const char* value; /* as in YAML, without quotes; a list is [a, b], a block {a: 1, b: 2} */
} rullama_setting;

/* Settings outrank the configuration file; what neither has is as docs/configuration.md and the
 * model file say. */
typedef struct rullama_engine_options {
  uint32_t struct_size;
  uint32_t reserved;
  const char* model;       /* GGUF file, or an Ollama name: "gemma4:e2b" */
  const char* backend;     /* "cpu", "vulkan", ..., "auto" */
  const char* config_file; /* YAML */
  /* {"backend.device", "1"}: the second device; {"drafts.model", FILE}: drafts (docs/drafts.md) */
  const rullama_setting* settings;
  size_t setting_count;
  const char* const* plugin_paths; /* folders or files, searched before those configured */
  size_t plugin_path_count;
  rullama_log_callback log; /* warnings and notes; may be NULL */
  void* log_data; /* handed to `log`; both are used until engine and generations are freed */
  /* Since 1.1. Low-rank adapters (LoRA), which add up: each a file or folder, or "FILE:SCALE".
   * None: those of the configuration file. */
  const char* const* adapters;
  size_t adapter_count;
} rullama_engine_options;

/* Its strings live as long as the engine's handle. */
typedef struct rullama_model_info {
  uint32_t struct_size;
  uint32_t reserved;
  const char* name;         /* the file or the Ollama name */
  const char* architecture; /* "gemma4" */
  const char* backend;
  const char* device;
  int64_t layers;
  int64_t width;          /* of the residual stream, and of embeddings */
  int64_t vocabulary;     /* tokens */
  int64_t context_length; /* the longest the model was trained for, tokens */
  int64_t capacity;       /* tokens per slot */
  int64_t slots;
  int64_t canvas_length; /* tokens denoised together; 0: the model writes token by token */
} rullama_model_info;

/* Loads a model and opens a device; returns when requests can run. Options or configuration file
 * have to name a model. Errors: usage.model, config.*, gguf.*, store.*, model.*, tokenizer.*, io.*,
 * plugin.*, backend.*, device.*, memory.*. [any] [blocks] */
RULLAMA_FUNCTION rullama_code rullama_engine_open(const rullama_engine_options* options,
                                                  rullama_engine** engine, rullama_error** error);

/* Releases the handle. The engine itself ends with its last generation; then it waits for the step
 * that runs. NULL does nothing. [one] [blocks] */
RULLAMA_FUNCTION void rullama_engine_free(rullama_engine* engine);

/* The description of the loaded model; lives as long as the handle. NULL for NULL. [any] */
RULLAMA_FUNCTION const rullama_model_info* rullama_engine_info(const rullama_engine* engine);

/* ---- requests -------------------------------------------------------------------------------- */

typedef struct rullama_logit_bias {
  int32_t token;
  float bias; /* added to its logit; -INFINITY bans it */
} rullama_logit_bias;

typedef enum rullama_tool_choice {
  RULLAMA_TOOLS_AUTO = 0,     /* text or calls, as the model likes */
  RULLAMA_TOOLS_NONE = 1,     /* no calls */
  RULLAMA_TOOLS_REQUIRED = 2, /* at least one call, and no text */
  RULLAMA_TOOL_CHOICE_MAX_ENUM = 0x7FFFFFFF
} rullama_tool_choice;

typedef enum rullama_medium_kind {
  RULLAMA_PICTURE = 0, /* JPEG, PNG, WebP, BMP or GIF, of which the first frame */
  RULLAMA_SOUND = 1,   /* WAV, FLAC, Ogg or MP3 */
  RULLAMA_MEDIUM_KIND_MAX_ENUM = 0x7FFFFFFF
} rullama_medium_kind;

/* Since 1.2. A picture or a sound of a request: a file, or its content. */
typedef struct rullama_medium {
  int32_t kind; /* rullama_medium_kind */
  /* The most soft tokens of a picture, 70, 140, 280, 560 or 1120. 0: as configured; if nothing
   * is, by the size of the picture, and 280 for an embedding model. */
  int32_t image_tokens;
  const char* path;  /* of the file, or NULL */
  const void* bytes; /* the content of the file, if there is no path */
  size_t size;       /* of `bytes` */
} rullama_medium;

/* Since 1.4. A message of a conversation that is nothing but text. */
typedef struct rullama_turn {
  const char* role; /* "user", "assistant" or "system" */
  const char* text; /* as it is: quotes, line breaks and markers of the template are text */
  size_t text_size; /* bytes; 0: up to the zero byte */
} rullama_turn;

/* One answer of the model. Exactly one of `messages`, `turns`, `prompt` and `ids` is given.
 * Settings that are not given are as configured, else as the model file recommends; ranges are
 * those of docs/configuration.md. */
typedef struct rullama_request {
  uint32_t struct_size;
  int32_t thinking; /* rullama_switch: let the model think first; with `messages` */
  /* A conversation as a JSON list of messages in the form of the OpenAI chat API: {"role",
   * "content"}, with "tool_calls" and "tool_call_id". It is rendered with the model's chat
   * template. */
  const char* messages;
  const char* tools; /* JSON list of functions in OpenAI's form; with `messages` */
  /* A text to be continued as it is. Markers of the template are recognised; BOS is added once. */
  const char* prompt;
  size_t prompt_size; /* bytes; 0: up to the zero byte */
  const int32_t* ids; /* token ids to be continued as they are */
  size_t id_count;
  const char* const* stop; /* texts before which the answer ends */
  size_t stop_count;
  /* 0 only reads the prompt; a negative number is as if not given. If none is configured: until the
   * model ends its turn or the context is full. */
  rullama_optional_int max_tokens;
  /* Log-probabilities of the drawn tokens and of this many best ones, 0 to 20. */
  rullama_optional_int top_logprobs;
  rullama_optional_double temperature; /* 0 always takes the most likely token */
  rullama_optional_int top_k;          /* 0 keeps all */
  rullama_optional_double top_p;
  rullama_optional_double min_p;
  rullama_optional_double typical_p;
  rullama_optional_double repeat_penalty;
  rullama_optional_int repeat_last_n;
  rullama_optional_double frequency_penalty;
  rullama_optional_double presence_penalty;
  /* Same build, device, configuration, request and seed: same bytes, whatever else
   * runs. Without a seed one is drawn and told in rullama_completion. */
  rullama_optional_int seed;
  const rullama_logit_bias* logit_bias; /* of two for one token the last counts */
  size_t logit_bias_count;
  /* rullama_switch, on by default: use what slots still hold of a prompt with the same beginning.
   * The answer is the same. */
  int32_t reuse_prefix;
  uint32_t reserved;
  /* Since 1.1, as all that follows. A JSON schema under which the text of the answer is valid:
   * {"type": "object"} for any object. docs/constrained-output.md says which keywords there are. */
  const char* json_schema;
  const char* const* allowed_tools; /* names of those of `tools` that may be called; none: all */
  size_t allowed_tool_count;
  int32_t tool_choice;         /* rullama_tool_choice; calls are valid by construction */
  int32_t parallel_tool_calls; /* rullama_switch, on by default: several calls may follow */
  /* rullama_switch, off by default: also use the rows of an answer that a slot still holds, if the
   * prompt continues after it. The last bits of the logits, and with them the answer, may then
   * depend on earlier requests. Without effect for a request with stop texts. */
  int32_t reuse_answers;
  uint32_t reserved2;
  /* Since 1.2, as all that follows. The pictures and sounds of `messages` or `prompt`, in the order
   * in which they stand there: in `messages` as parts {"type": "image"} and {"type": "audio"}, in
   * `prompt` as the markers <|image|> and <|audio|>. */
  const rullama_medium* media;
  size_t media_count;
  /* Since 1.3, as all that follows. rullama_switch, on by default: check drafts of several tokens
   * at once, if the settings of the engine ask for any (docs/drafts.md). The answer is the same. */
  int32_t drafts;
  /* rullama_switch, off by default: draw no token that ends the answer, which continues to
   * `max_tokens` or a full context. */
  int32_t ignore_end;
  /* Since 1.4. A conversation as `messages`, without JSON. Where a comment says `messages`, `turns`
   * are meant as well. */
  const rullama_turn* turns;
  size_t turn_count;
  /* Since 1.5. The slot to run in, which is waited for; if it is not given, any. */
  rullama_optional_int slot;
} rullama_request;

/* Starts a request; does not wait for a slot. Errors: usage.request (not exactly one prompt, or a
 * member out of range), sampler.*, chat.*, tokenizer.*, text.utf8, schema.*; context.overflow if
 * the prompt does not fit; model.canvas; media.* and io.* of pictures and sounds, which are decoded
 * before it returns. [any] */
RULLAMA_FUNCTION rullama_code rullama_engine_submit(rullama_engine* engine,
                                                    const rullama_request* request,
                                                    rullama_generation** generation,
                                                    rullama_error** error);

/* ---- answers --------------------------------------------------------------------------------- */

typedef enum rullama_event_kind {
  RULLAMA_EVENT_PROGRESS = 0,  /* `done` of `total` prompt tokens have been read */
  RULLAMA_EVENT_TEXT = 1,      /* `text`: whole UTF-8 sequences of the answer */
  RULLAMA_EVENT_THINKING = 2,  /* `text` of a thought */
  RULLAMA_EVENT_TOOL_CALL = 3, /* `call` */
  RULLAMA_EVENT_DRAFT = 4,     /* of a model that denoises: `text` after step `done` of `total` */
  RULLAMA_EVENT_KIND_MAX_ENUM = 0x7FFFFFFF
} rullama_event_kind;

typedef enum rullama_stop_reason {
  RULLAMA_STOP_END_OF_GENERATION = 0, /* the model ended its turn */
  RULLAMA_STOP_MAX_TOKENS = 1,
  RULLAMA_STOP_CONTEXT_FULL = 2,
  RULLAMA_STOP_CANCELLED = 3,
  RULLAMA_STOP_STOPPED = 4, /* by a text of `stop` */
  RULLAMA_STOP_REASON_MAX_ENUM = 0x7FFFFFFF
} rullama_stop_reason;

typedef struct rullama_tool_call {
  const char* name;
  const char* arguments; /* a JSON object */
} rullama_tool_call;

/* A part of an answer, in the order in which parts are written. */
typedef struct rullama_event {
  uint32_t struct_size;
  int32_t kind;     /* rullama_event_kind */
  const char* text; /* never NULL */
  size_t text_size;
  rullama_tool_call call; /* strings are never NULL */
  int64_t done;
  int64_t total;
} rullama_event;

/* The natural logarithm of a token's probability before bias, penalties and temperature. */
typedef struct rullama_token_logprob {
  int32_t token;
  float logprob;
} rullama_token_logprob;

typedef struct rullama_logprob_step {
  rullama_token_logprob drawn;
  const rullama_token_logprob* top; /* descending */
  size_t top_count;
} rullama_logprob_step;

/* A whole answer. Events, joined, give the same text, thoughts and calls. */
typedef struct rullama_completion {
  uint32_t struct_size;
  int32_t reason;   /* rullama_stop_reason */
  const char* text; /* never NULL */
  size_t text_size;
  const char* thoughts; /* never NULL */
  size_t thoughts_size;
  const rullama_tool_call* tool_calls;
  size_t tool_call_count;
  const int32_t* ids; /* drawn, without the end token */
  size_t id_count;
  const rullama_logprob_step* logprobs; /* one for each of `ids`, if asked for */
  size_t logprob_count;
  int64_t seed;
  int64_t prompt_tokens;
  int64_t cached_tokens; /* of the prompt: found in a slot and not read again */
  double queue_seconds;  /* until a slot was free */
  double prompt_seconds; /* from then on until the first token was drawn */
  double generate_seconds;
  /* Since 1.3. Tokens that were guessed in advance, and those of them that the answer has. */
  int64_t drafted_tokens;
  int64_t accepted_tokens;
} rullama_completion;

/* Returns 0 to continue; anything else cancels. `event` lives until the callback returns. */
typedef int (*rullama_event_callback)(void* data, const rullama_event* event);

/* Sets *event to the next part, or to NULL after the last one. The event lives until the next call
 * of this function, of rullama_generation_wait() or of the free function on this generation. A
 * reader that is slow holds up its own request only. Errors: backend.nan, sampler.empty, those of
 * the device; after an error the answer is over. [one] [blocks] */
RULLAMA_FUNCTION rullama_code rullama_generation_next(rullama_generation* generation,
                                                      const rullama_event** event,
                                                      rullama_error** error);

/* Returns when the answer is over. Parts that rullama_generation_next() has not returned yet go to
 * `on_event`, on this thread; it may be NULL. Errors are those of rullama_generation_next(). [one]
 * [blocks] */
RULLAMA_FUNCTION rullama_code rullama_generation_wait(rullama_generation* generation,
                                                      rullama_event_callback on_event, void* data,
                                                      rullama_error** error);

/* Sets *completion to what has come so far, which is whole once rullama_generation_next() has
 * returned no event. It and all it points to live until the next call of this function, of
 * rullama_generation_next(), of rullama_generation_wait() or of the free function on this
 * generation. [one] */
RULLAMA_FUNCTION rullama_code rullama_generation_completion(rullama_generation* generation,
                                                            const rullama_completion** completion,
                                                            rullama_error** error);

/* Ends the answer within one step, with the reason RULLAMA_STOP_CANCELLED; a thread that waits for
 * it continues. NULL does nothing. [any] */
RULLAMA_FUNCTION void rullama_generation_cancel(rullama_generation* generation);

/* Cancels the request, if it still runs, and releases the handle. NULL does nothing. [one] [blocks]
 * only if the engine's handle was freed before and no other generation is left. */
RULLAMA_FUNCTION void rullama_generation_free(rullama_generation* generation);

/* ---- tokens ---------------------------------------------------------------------------------- */

typedef enum rullama_token_flags {
  RULLAMA_PLAIN_TEXT = 1,   /* tokenize: markers such as <|turn> are text like any other */
  RULLAMA_ADD_BOS = 2,      /* tokenize: begin with the BOS token */
  RULLAMA_SHOW_CONTROL = 4, /* detokenize: write markers out */
  RULLAMA_THINKING = 8,     /* chat_tokens: let the model think first */
  RULLAMA_TOKEN_FLAGS_MAX_ENUM = 0x7FFFFFFF
} rullama_token_flags;

/* The token ids of a text, in a new buffer. `flags`: RULLAMA_PLAIN_TEXT, RULLAMA_ADD_BOS or 0.
 * Errors: text.utf8, text.size. [any] */
RULLAMA_FUNCTION rullama_code rullama_engine_tokenize(const rullama_engine* engine,
                                                      const char* text, size_t text_size,
                                                      uint32_t flags, int32_t** ids,
                                                      size_t* id_count, rullama_error** error);

/* The text of token ids, in a new buffer; `text_size` may be NULL. `flags`: RULLAMA_SHOW_CONTROL or
 * 0. Error: tokenizer.id. [any] */
RULLAMA_FUNCTION rullama_code rullama_engine_detokenize(const rullama_engine* engine,
                                                        const int32_t* ids, size_t id_count,
                                                        uint32_t flags, char** text,
                                                        size_t* text_size, rullama_error** error);

/* The token ids of a conversation, ready for the model's turn, in a new buffer. `messages` and
 * `tools` as in rullama_request; `tools` may be NULL. `flags`: RULLAMA_THINKING or 0. Errors:
 * chat.*. [any] */
RULLAMA_FUNCTION rullama_code rullama_engine_chat_tokens(const rullama_engine* engine,
                                                         const char* messages, const char* tools,
                                                         uint32_t flags, int32_t** ids,
                                                         size_t* id_count, rullama_error** error);

/* ---- embeddings and logits ------------------------------------------------------------------- */

/* The embedding of a text, in a new buffer: the mean over all rows (BOS included) of the output of
 * the last norm, scaled to length 1; `width` numbers. Errors: context.overflow, text.utf8;
 * model.canvas for a model that denoises. [any] [blocks] */
RULLAMA_FUNCTION rullama_code rullama_engine_embed(rullama_engine* engine, const char* text,
                                                   size_t text_size, float** values,
                                                   size_t* value_count, rullama_error** error);

/* Since 1.6, as all that follows up to the callback. What the vector of an embedding model is for,
 * and how long it is. */
typedef struct rullama_embedding_options {
  uint32_t struct_size;
  uint32_t reserved;
  /* A task of the model, such as "query" or "document", whose prompt comes before the text; NULL:
   * none. */
  const char* task;
  int64_t dimensions; /* the first numbers of the vector, scaled to length 1 again; 0: all */
} rullama_embedding_options;

/* As rullama_engine_embed(), with options; of an embedding model the vector is the one that it was
 * trained to make. Other errors: usage.request for a task or dimensions that the model does not
 * have. [any] [blocks] */
RULLAMA_FUNCTION rullama_code rullama_engine_embed_with(rullama_engine* engine, const char* text,
                                                        size_t text_size,
                                                        const rullama_embedding_options* options,
                                                        float** values, size_t* value_count,
                                                        rullama_error** error);

/* The embedding of text with pictures and sounds, by an embedding model that takes them: `content`
 * has `messages`, one of a user, whose parts are read in their order, and `media`. Errors: those of
 * rullama_engine_embed_with(); those of rullama_engine_submit() about messages and media;
 * model.encoder for a model of another kind. [any] [blocks] */
RULLAMA_FUNCTION rullama_code rullama_engine_embed_content(rullama_engine* engine,
                                                           const rullama_request* content,
                                                           const rullama_embedding_options* options,
                                                           float** values, size_t* value_count,
                                                           rullama_error** error);

/* `logits`: [rows, vocabulary], those that follow ids[first], ids[first + 1], ...; they live until
 * the callback returns. Returns 0 to continue; anything else stops. */
typedef int (*rullama_logits_callback)(void* data, int64_t first, int64_t rows, int64_t vocabulary,
                                       const float* logits);

/* The logits that follow each of `ids`, handed to `on_rows` in steps, on this thread. Stopping is
 * not an error. Errors: context.overflow, tokenizer.id, usage.request for no ids, backend.nan,
 * model.canvas. [any] [blocks] */
RULLAMA_FUNCTION rullama_code rullama_engine_logits(rullama_engine* engine, const int32_t* ids,
                                                    size_t id_count,
                                                    rullama_logits_callback on_rows, void* data,
                                                    rullama_error** error);

/* Sets *sum to the sum of -ln p over the tokens after the first of `ids`, each predicted from
 * those before it; perplexity is exp(*sum / (id_count - 1)). Errors as
 * rullama_engine_logits(), usage.request for fewer than two ids. [any] [blocks] */
RULLAMA_FUNCTION rullama_code rullama_engine_negative_log_likelihood(rullama_engine* engine,
                                                                     const int32_t* ids,
                                                                     size_t id_count, double* sum,
                                                                     rullama_error** error);

/* Reads the prompt of a request and stores what the model's caches hold of its whole chunks (the
 * setting context.prefill_chunk, or what the device chose) in the file `path`, for engines of the
 * same build, model, device and configuration. Sets *tokens to how many were stored. Errors: those
 * of rullama_engine_submit(), usage.request for a prompt shorter than a chunk, model.canvas,
 * snapshot.memory, io.*. [any] [blocks] */
RULLAMA_FUNCTION rullama_code rullama_engine_save_prompt(rullama_engine* engine,
                                                         const rullama_request* request,
                                                         const char* path, int64_t* tokens,
                                                         rullama_error** error);

/* Puts what rullama_engine_save_prompt() stored into a free slot, where requests that reuse
 * prefixes find it until the slot is needed for something else; their answers are the same bytes as
 * without. Sets *tokens to how many there are. Errors: io.*, gguf.*, snapshot.file for a file that
 * is damaged or no stored prompt, snapshot.mismatch for one of another model or configuration,
 * model.canvas. [any] [blocks] */
RULLAMA_FUNCTION rullama_code rullama_engine_load_prompt(rullama_engine* engine, const char* path,
                                                         int64_t* tokens, rullama_error** error);

/* ---- slots ----------------------------------------------------------------------------------- */

/* Since 1.5, as all that follows. These wait until a slot has no request. Errors of all:
 * usage.request for a slot number out of range; model.canvas, model.encoder.
 *
 * Stores what a slot holds of its last request, prompt and answer, in the file `path`, which only
 * its owner may read, for engines of the same build, model, device and configuration. Sets *tokens
 * to how many were stored. Errors: slot.empty, slot.no_space, slot.file if `path` is no plain file;
 * snapshot.memory, io.*. [any] [blocks] */
RULLAMA_FUNCTION rullama_code rullama_engine_save_slot(rullama_engine* engine, int32_t slot,
                                                       const char* path, int64_t* tokens,
                                                       rullama_error** error);

/* Puts into a slot what rullama_engine_save_slot() stored, in place of what it held. Requests that
 * begin with the same tokens read them from there; their answers are the same bytes as without.
 * Sets *tokens to how many there are. Errors: slot.not_found, slot.corrupt, slot.mismatch for one
 * of another model or configuration, slot.too_long, io.*; then the slot holds what it held.
 * [any] [blocks] */
RULLAMA_FUNCTION rullama_code rullama_engine_restore_slot(rullama_engine* engine, int32_t slot,
                                                          const char* path, int64_t* tokens,
                                                          rullama_error** error);

/* Forgets what a slot holds, and sets *tokens to how many that were. [any] [blocks] */
RULLAMA_FUNCTION rullama_code rullama_engine_erase_slot(rullama_engine* engine, int32_t slot,
                                                        int64_t* tokens, rullama_error** error);

#ifdef __cplusplus
}
#endif

#endif /* RULLAMA_RULLAMA_H_ */
