// A model that answers requests. This is the interface of librullama: what a program needs to get
// from a model file to text.
//
//   auto engine = rullama::Engine::Open({.model = "gemma4:e2b", .backend = "auto"});
//   if (!engine) return Report(engine.error());
//   auto answer = (*engine)->Submit({.messages = R"([{"role": "user", "content": "Why?"}])"});
//   if (!answer) return Report(answer.error());
//   while (true) {
//     auto event = answer->Next();
//     if (!event) return Report(event.error());
//     if (!*event) break;
//     std::cout << (*event)->text << std::flush;
//   }
//
// Requests of any number of threads share the slots of one session (`context.slots`) and run in
// steps together. A request's bytes do not depend on what runs at the same time.
#pragma once

#include <rullama/base/error.h>
#include <rullama/engine/export.h>
#include <rullama/engine/options.h>
#include <rullama/engine/request.h>
#include <rullama/engine/stats.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace rullama {

// The settings of the sampler for what a request leaves open: the numbers of SamplingOptions.
// Temperature 0 is greedy.
struct SamplingDefaults {
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) Type name = off;
#include <rullama/config/sampler_settings.def>
};

// A task of an embedding model, and the prompt that comes before its texts.
struct TaskPrompt {
  std::string name;  // "query"
  std::string text;  // "task: search result | query: "
};

struct ModelInfo {
  std::string name;          // the file or the Ollama name
  std::string architecture;  // "gemma4"
  std::string backend;
  std::string device;
  int64_t layers = 0;
  int64_t width = 0;           // of the residual stream
  int64_t vocabulary = 0;      // tokens
  int64_t context_length = 0;  // the longest the model was trained for, tokens
  int64_t capacity = 0;        // tokens per slot
  int64_t slots = 0;
  int64_t slot_bytes = 0;       // of the KV cache of a slot; 0: the model has none
  std::string cache_type;       // "f16", or "q8_0 for keys, q4_0 for values"; empty without a cache
  int64_t canvas_length = 0;    // tokens denoised together; 0: the model writes token by token
  int64_t embedding_width = 0;  // numbers of an embedding; 0: the model makes none
  bool encodes = false;         // it makes embeddings and writes no text
  // Of one that encodes: whether the file has all layers that follow the mean of a text's rows.
  bool dense = false;
  std::vector<TaskPrompt> embedding_prompts;
  int64_t file_bytes = 0;
  int64_t parameters = 0;          // numbers in all tensors
  std::string quantization;        // "Q4_K_M", or "unknown"
  int64_t chunk = 0;               // most tokens of a prompt that a step reads
  int64_t prefix_cache_bytes = 0;  // of host memory for snapshots of prompts; 0: none
  int64_t media_cache_bytes = 0;   // of host memory for soft tokens of recent media; 0: none
  bool takes_pictures = false;
  bool takes_sound = false;
  bool deterministic = true;  // answers depend on nothing but request and configuration
  SamplingDefaults sampling;
  std::string digest;       // SHA-256 of the manifest's blob or of the header of a file, 64 digits
  double load_seconds = 0;  // from opening the file until requests could run
};

// The texts of the tokens that a file names, empty where it has none, and the template of
// conversations of texts for Jinja, which needs `messages` and `add_generation_prompt` alone.
struct TokenizerFacts {
  std::string bos;
  std::string eos;
  std::string padding;
  std::string unknown;
  std::string chat_template;  // empty: the model has no turns
};

struct EmbeddingOptions {
  // What the vector is for, a name of ModelInfo::embedding_prompts; empty: the text has its prompt,
  // or none.
  std::string task = {};
  int64_t dimensions = 0;                                  // numbers of the vector; 0: all
  std::optional<std::vector<AdapterScale>> adapters = {};  // as Request::adapters
};

// A file with what a slot holds.
struct SlotFile {
  std::string path = {};
  std::string owner = {};  // the name of the client, without which the file is not read again
  // The most bytes that a new file may have; called once, before an older one is looked at and
  // replaced. Empty: no limit.
  std::function<uint64_t()> room = {};
};

struct SlotTransfer {
  int64_t tokens = 0;
  uint64_t bytes = 0;  // of the file
};

// One running request. Its text is made on the thread that calls Next().
//
// Thread safety: one thread at a time; Cancel() from any thread. Destroying it cancels the request.
// It keeps the engine alive.
class RULLAMA_API Generation {
 public:
  Generation(Generation&&) noexcept;
  Generation& operator=(Generation&&) noexcept;
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;
  ~Generation();

  // The next part, or nothing after the last one. Blocks until there is one. A reader that is slow
  // holds up its own request only. Errors: backend.nan, sampler.empty, those of the device; after
  // an error the answer is over.
  Result<std::optional<Event>> Next();

  // Blocks until the answer is over and returns it; parts that Next() has not returned yet go to
  // `on_event`, if it is not empty, which returns false to cancel. Errors as Next().
  Result<Completion> Wait(const std::function<bool(const Event&)>& on_event = {});

  // The answer so far; complete once Next() has returned nothing.
  [[nodiscard]] const Completion& completion() const;

  // Ends the answer within one step, with reason kCancelled.
  void Cancel();

 private:
  friend class Engine;
  struct Impl;
  explicit Generation(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Thread safety: all member functions may be called from any thread at any time. Open() and
// the destructor block; the destructor cancels what still runs. A child of fork() has no threads of
// an engine: there, what needs them is the error engine.forked, and destructors do nothing.
class RULLAMA_API Engine : public std::enable_shared_from_this<Engine> {
 public:
  // Loads a model and opens a device. Blocks until requests can run. Errors: config.*, gguf.*,
  // store.*, model.*, tokenizer.*, io.*, plugin.*, backend.*, memory.* (docs/errors.md).
  static Result<std::shared_ptr<Engine>> Open(const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  [[nodiscard]] const ModelInfo& info() const;
  // The metadata of the model file as a JSON object. Lists of more than `max_items` are null.
  [[nodiscard]] std::string Metadata(size_t max_items) const;
  // Counts of the work in progress and of all work since the engine was opened.
  [[nodiscard]] EngineStats stats() const;
  // The slots as they are now.
  [[nodiscard]] std::vector<SlotActivity> slots() const;

  // The adapters that are loaded, by their numbers.
  [[nodiscard]] std::vector<AdapterInfo> adapters() const;
  // Whether requests may choose among them (EngineOptions::choose_adapters). If not, all requests
  // have them as they were loaded.
  [[nodiscard]] bool chooses_adapters() const;
  // Requests that choose no adapters have these from now on; those that are not named are off.
  // Error usage.request for a list that a request could not have, which changes nothing.
  Status SetAdapterScales(std::span<const AdapterScale> scales);

  // Starts a request. Does not wait for a slot, but decodes the pictures and sounds of the request,
  // two of all requests at a time.
  // Errors: usage.request (not exactly one prompt, or a member out of range), sampler.*, chat.*,
  // tokenizer.*, text.utf8, schema.*; context.overflow if the prompt does not fit; model.canvas;
  // media.* and io.* of pictures and sounds.
  Result<Generation> Submit(const Request& request);
  // Starts `count` answers to one prompt, which is read once, when as many slots are free. They
  // draw with one seed from random numbers of their own: answer i has `choice` + i. Errors as
  // Submit(); usage.request if `count` is not 1 to the number of slots; run.cancelled if `stop` is
  // requested while pictures and sounds are decoded.
  Result<std::vector<Generation>> SubmitChoices(const Request& request, int64_t count,
                                                const std::stop_token& stop = {});

  // Tokens of the prompt of a request, whether it fits or not. Errors as Submit(). `most`: error
  // context.overflow for a text of more tokens, which is found without counting all of them;
  // negative: no limit.
  [[nodiscard]] Result<int64_t> CountPrompt(const Request& request, int64_t most = -1) const;

  // The token ids of a text. `parse_special`: recognise markers such as <|turn>. `most`: error
  // text.size for more ids; negative: no limit. Errors: text.utf8, text.size.
  [[nodiscard]] Result<std::vector<int32_t>> Tokenize(std::string_view text,
                                                      bool parse_special = true,
                                                      bool add_bos = false,
                                                      int64_t most = -1) const;
  // The text of token ids; `show_control`: with markers. Error tokenizer.id.
  [[nodiscard]] Result<std::string> Detokenize(std::span<const int32_t> ids,
                                               bool show_control = false) const;
  // The bytes of one token, which may be a part of a character; those of markers are their
  // spelling. Error tokenizer.id.
  [[nodiscard]] Result<std::string> TokenBytes(int32_t id) const;
  [[nodiscard]] TokenizerFacts tokenizer_facts() const;
  // The token ids of a conversation, ready for the model's turn; arguments as in Request, `most` as
  // for a text.
  [[nodiscard]] Result<std::vector<int32_t>> ChatTokens(std::string_view messages,
                                                        std::string_view tools = {},
                                                        bool thinking = false,
                                                        int64_t most = -1) const;
  // Those of the conversation of a request, whose media have placeholders. Errors as CountPrompt().
  [[nodiscard]] Result<std::vector<int32_t>> PromptTokens(const Request& request,
                                                          int64_t most = -1) const;

  // The embedding of a text, scaled to length 1; `embedding_width` numbers or the first
  // `dimensions` of them. Of a language model it is the mean over all rows (BOS included) of the
  // output of the last norm. Blocks. Errors: context.overflow, text.utf8; usage.request for
  // dimensions or a task that the model does not have; model.canvas for a model that denoises;
  // backend.nan.
  Result<std::vector<float>> Embed(std::string_view text, const EmbeddingOptions& options = {});
  // The same for token ids as they are: those of EmbeddingTokens(), or others that begin with BOS.
  // `dimensions`: 0 is all; `adapters` as Request::adapters. Errors: tokenizer.id, usage.request.
  Result<std::vector<float>> Embed(std::span<const int32_t> ids, int64_t dimensions = 0,
                                   const std::optional<std::vector<AdapterScale>>& adapters = {});
  // Embed() of the ids of each text; `options.task` is not read. An embedding model reads several
  // in a step, faster than one after another and with the same bytes. Once `stop` is requested,
  // texts that no step has read have the error run.cancelled.
  [[nodiscard]] std::vector<Result<std::vector<float>>> EmbedEach(
      std::span<const std::vector<int32_t>> texts, const EmbeddingOptions& options = {},
      const std::stop_token& stop = {});
  // The embedding of text with pictures and sounds, by an embedding model with towers: `content`
  // has `messages`, one of a user, whose parts are read in their order, and `media`. Errors: those
  // of Embed() and Submit() about them; model.encoder for a language model.
  Result<std::vector<float>> EmbedContent(const Request& content,
                                          const EmbeddingOptions& options = {});
  // The token ids that Embed() reads of a text: BOS, the task's prompt and the text, in which
  // nothing is a marker, and EOS if the model was trained with one. `most` as in Tokenize().
  [[nodiscard]] Result<std::vector<int32_t>> EmbeddingTokens(std::string_view text,
                                                             std::string_view task = {},
                                                             int64_t most = -1) const;

  // The logits that follow each of `ids`, handed to `on_rows` in steps: [rows, vocabulary] that
  // follow ids[first], ids[first + 1], ... `on_rows` is called on this thread and returns false to
  // stop. Blocks. Errors: context.overflow, tokenizer.id, backend.nan, model.canvas.
  Status Logits(std::span<const int32_t> ids,
                const std::function<bool(int64_t first, std::span<const float> logits)>& on_rows);

  // The sum of -ln p over the tokens after the first of `ids`, each predicted from those before it;
  // perplexity is exp(sum / (count - 1)). Blocks. Errors as Logits(), usage.request for fewer than
  // two ids.
  Result<double> NegativeLogLikelihood(std::span<const int32_t> ids);

  // Reads the prompt of a request and stores what the model's caches hold of its whole chunks
  // (context.prefill_chunk, or what the device chose) in a file, which is of use to an engine of
  // the same build, model, device and configuration, and with the adapters of the request
  // (SetAdapterScales). Returns the number of tokens stored. Blocks. Errors: those of Submit();
  // usage.request for a prompt shorter than a chunk; model.canvas; snapshot.memory; io.*.
  Result<int64_t> SavePrompt(const Request& request, const std::string& path);
  // Puts what SavePrompt() stored into a free slot; the adapters that it was read with are those of
  // requests that choose none, else the error is snapshot.mismatch. Requests with `reuse_prefix`
  // that begin with the same tokens read them from there, until the slot is needed for something
  // else; their answers are the same bytes as without. Returns the number of tokens. Blocks until a
  // slot is free. Errors: io.*, gguf.*, snapshot.file for a file that is damaged or no stored
  // prompt, snapshot.mismatch for one of another model or configuration, model.canvas.
  Result<int64_t> LoadPrompt(const std::string& path);

  // The following wait until a slot has no request, and end with run.cancelled if `stop` is
  // requested while they wait. Errors of all: usage.request for a slot number out of range;
  // model.canvas, model.encoder. They block.
  //
  // Stores what a slot holds of its last request, if that was one of `client`, in a file that only
  // its owner may read. Errors: slot.empty, slot.limit, slot.no_space, slot.file if there is
  // something else than a plain file; slot.not_found if there is another owner's; snapshot.memory;
  // io.*.
  Result<SlotTransfer> SaveSlot(int32_t slot, uint64_t client, const SlotFile& file,
                                const std::stop_token& stop = {});
  // Puts into a slot what SaveSlot() stored, in place of what it held. Requests of `client` that
  // begin with the same tokens read them from there; their answers are the same bytes as without.
  // Errors: slot.not_found if there is no such file, or it is another owner's; slot.corrupt;
  // slot.mismatch for one of another model or configuration; slot.too_long if it has more tokens
  // than a slot holds; io.*. After an error the slot holds what it held.
  Result<SlotTransfer> RestoreSlot(int32_t slot, uint64_t client, const SlotFile& file,
                                   const std::stop_token& stop = {});
  // Forgets what a slot holds of a request of `client`, with the snapshots of it, those on disk of
  // `owner` included (Request::owner). Returns the number of tokens.
  Result<int64_t> EraseSlot(int32_t slot, uint64_t client, std::string_view owner = {},
                            const std::stop_token& stop = {});

 private:
  friend struct EngineAccess;
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rullama
