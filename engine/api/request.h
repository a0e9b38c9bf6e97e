// Requests to an Engine and its answers. Value types.
#pragma once

#include <rullama/base/adapter_limits.h>
#include <rullama/base/media_kind.h>
#include <rullama/base/session_stats.h>
#include <rullama/base/stop_reason.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace rullama {

// Settings of the sampler. One without a value is as configured, else as the model recommends. The
// numbers are those of sampler_settings.def: temperature, top_k, top_p and so on. Their ranges and
// meanings are in docs/configuration.md, block `sampler`.
struct SamplingOptions {
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) \
  std::optional<Type> name = {};
#include <rullama/config/sampler_settings.def>
  std::map<int32_t, float> logit_bias = {};  // token -> added to its logit; -infinity bans it
  // Same build, device, configuration, request and seed: same bytes, whatever else runs. Without a
  // seed one is drawn and told in Completion::seed.
  std::optional<int64_t> seed = {};
};

enum class ToolChoice {
  kAuto,      // text or calls, as the model likes
  kNone,      // no calls
  kRequired,  // at least one call, and no text
};

// A picture or a sound of a request: a file of JPEG, PNG, WebP, BMP or GIF (the first frame), or of
// WAV, FLAC, Ogg or MP3.
struct Medium {
  MediaKind kind = MediaKind::kPicture;
  std::string path = {};  // of the file; empty: `bytes` are its content
  std::string bytes = {};
  // The most soft tokens of a picture, 70, 140, 280, 560 or 1120; Gemma 3 always has 256. More show
  // finer detail and take longer. 0: as configured; if nothing is, by the size of the picture,
  // and 280 for an embedding model.
  int64_t image_tokens = 0;
};

// A low-rank adapter that is loaded, by its number, and the factor of what it adds.
struct AdapterScale {
  int32_t id = 0;
  double scale = 0;  // -kMaxAdapterScale to kMaxAdapterScale; 0: as if it were not there
};

// A low-rank adapter that is loaded.
struct AdapterInfo {
  std::string name;      // the last part of its path
  double scale = 0;      // its factor in requests that choose no adapters
  double own_scale = 0;  // the factor that it was loaded with
  int64_t rank = 0;      // the largest of its weights
  double alpha = 0;      // rank times the factor in its file
};

// A message of a conversation that is nothing but text.
struct Turn {
  std::string role = {};  // "user", "assistant" or "system"
  std::string text = {};  // as it is: markers of the template that it has are text
};

// One answer of the model. Exactly one of `messages`, `turns`, `prompt` and `ids` is given.
struct Request {
  // A conversation as a JSON list of messages in the form of the OpenAI chat API: {"role",
  // "content"}, with "tool_calls" and "tool_call_id". It is rendered with the model's chat
  // template.
  std::string messages = {};
  // Such a conversation without JSON. Where a comment says `messages`, `turns` are meant as well.
  std::vector<Turn> turns = {};
  // Put the configured system prompt (generation.system) before messages without one.
  bool default_system = true;
  // A text to be continued as it is. Markers of the template are recognised; BOS is added once.
  std::string prompt = {};
  std::vector<int32_t> ids = {};  // token ids to be continued as they are
  // The pictures and sounds of `messages` or `prompt`, in the order in which they stand there: in
  // `messages` as parts {"type": "image"} and {"type": "audio"}, whose other members are not read,
  // and in `prompt` as the markers <|image|> and <|audio|>. A part {"type": "video", "seconds":
  // [0, 0.5, ...]} is a video: one picture for each of its frames, with the times of these. Models
  // are trained with 32 frames of 70 tokens.
  std::vector<Medium> media = {};

  std::string tools = {};             // JSON list of functions in OpenAI's form; with `messages`
  std::optional<bool> thinking = {};  // let the model think first; with `messages`
  // The tokens of thoughts, markers before them included, after which a thought is ended; negative:
  // no limit. Without effect for models that do not think.
  int64_t max_thought_tokens = -1;
  // The last message is the assistant's: the answer continues its text within its turn.
  bool continue_last = false;
  // The conversation is to be answered: its prompt ends with the beginning of the model's turn.
  bool add_generation_prompt = true;
  // Calls are valid by construction: their names are those of tools, their arguments valid under
  // the tools' `parameters`, as far as these can be enforced. A tool with "strict": true is refused
  // where they cannot; of others Completion::unenforced_keywords names the keywords that are left
  // out.
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::vector<std::string> allowed_tools = {};  // names of those that may be called; empty: all
  bool parallel_tool_calls = true;              // several calls may follow one another
  // A JSON schema under which the text of the answer is valid: {"type": "object"} for any object.
  // docs/constrained-output.md says which keywords there are. Properties are written in the order
  // of this text.
  std::string json_schema = {};
  // Other forms of the text, of which a request has one at most: a regular expression, as `pattern`
  // of a schema, that matches the whole text; or the texts that are allowed.
  std::string pattern = {};
  std::vector<std::string> choices = {};

  int64_t max_tokens = -1;  // 0 only reads the prompt; negative: until the end or a full context
  int64_t max_context = 0;  // tokens of prompt and answer; 0: as many as a slot holds
  std::vector<std::string> stop = {};  // texts before which the answer ends
  SamplingOptions sampling = {};
  // -1: no log-probabilities; else those of the drawn tokens and of this many best ones, at
  // most 20.
  int32_t top_logprobs = -1;
  // The same for the tokens of the prompt after the first. All of it is read then: nothing is
  // reused or kept. Not for prompts with media.
  int32_t prompt_logprobs = -1;
  // Use what slots still hold of a prompt with the same beginning. The answer is the same.
  bool reuse_prefix = true;
  // Also use the rows of an answer that a slot still holds, if the prompt continues after it, as a
  // conversation does. They were computed token by token, so the last bits of the logits, and with
  // them the answer, may depend on the earlier requests of the client. Without effect for a request
  // with stop texts.
  bool reuse_answers = false;
  // Check drafts of several tokens at once, if the engine makes any (docs/drafts.md).
  bool drafts = true;
  // Most tokens of a draft, at most drafts.max; 0: no drafts; negative: drafts.max.
  int64_t max_draft = -1;
  // A draft of the model's own drafter ends before a token that it takes to be less likely than
  // that, at most 1; negative: drafts.min_probability.
  double min_draft_probability = -1;
  // Draw no token that ends the answer: it continues to `max_tokens` or a full context.
  bool ignore_end = false;
  // The index of this answer among several to one prompt and seed; each has its own random numbers.
  uint32_t choice = 0;
  // Who asks. Clients take turns for free slots, and a prompt is only reused by its own client.
  uint64_t client = 0;
  // The name of the client in files on disk; it stays the same from start to start.
  std::string owner = {};
  // Exactly these adapters are in force, each named once, at most kMaxAdaptersInForce of them;
  // without a value those of the engine as they are when the request is submitted
  // (Engine::SetAdapterScales).
  std::optional<std::vector<AdapterScale>> adapters = {};
  // The slot to run in, which is waited for; -1: any. Of several answers the first one.
  int32_t slot = -1;
  // What Engine::slots() tells of the request while it runs.
  std::string note = {};
  // An event for every step of a canvas. Otherwise those for which the reader comes too late are
  // left out.
  bool every_draft = false;
};

struct ToolCall {
  std::string name;
  std::string arguments;  // a JSON object
};

// The natural logarithm of a token's probability before bias, penalties and temperature.
struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
  bool operator==(const TokenLogprob&) const = default;
};
struct LogprobStep {
  TokenLogprob drawn = {};
  std::vector<TokenLogprob> top = {};  // descending
  bool operator==(const LogprobStep&) const = default;
};

// A token of a prompt, as the tokens before it predict it.
struct PromptLogprob {
  TokenLogprob own = {};
  int64_t rank = 0;                    // of the token among all; 1: it is the best
  std::vector<TokenLogprob> top = {};  // descending
  bool operator==(const PromptLogprob&) const = default;
};

// A canvas after a step of a model that denoises. The vectors have one element for each token.
struct CanvasDraft {
  int64_t canvas = 0;  // of this answer, from 0
  double temperature = 0;
  double mean_entropy = 0;             // nats
  std::vector<int32_t> ids = {};       // the most likely tokens
  std::vector<float> entropy = {};     // nats
  std::vector<uint8_t> accepted = {};  // 1: the token is kept for the next step
};

// A part of an answer, in the order in which parts are written.
struct Event {
  enum class Kind {
    // The request has a slot, and `done` of `total` prompt tokens have been read. An event of this
    // kind that nobody has taken is replaced by the next one.
    kProgress,
    kText,      // `text`: whole UTF-8 sequences of the answer
    kThinking,  // `text` of a thought
    kToolCall,  // `call`
    kDraft,     // of a model that denoises: step `done` of at most `total`, `text` as it stands now
  };
  Kind kind = Kind::kText;
  std::string text = {};
  ToolCall call = {};
  int64_t done = 0;
  int64_t total = 0;
  // kProgress: the number of tokens among `done` that were found and not read again.
  int64_t reused = 0;
  // In kText, if asked for: those of the tokens whose text begins in `text`, or is white space in
  // front of it.
  std::vector<LogprobStep> logprobs = {};
  CanvasDraft draft = {};  // of kDraft
};

// The facts of a request's medium: its kind and the tokens that it takes.
struct MediumFacts {
  MediaKind kind = MediaKind::kPicture;
  int64_t tokens = 0;        // soft tokens in the prompt, its two markers aside
  int64_t image_tokens = 0;  // of a picture: the most it might have had
  int64_t width = 0;         // of a picture, pixels
  int64_t height = 0;
  double seconds = 0;  // of a sound

  bool operator==(const MediumFacts&) const = default;
};

// Tokens that were guessed in advance, and those of them that the answer has.
struct DraftCounts {
  int64_t drafted = 0;
  int64_t accepted = 0;
};

// The tokens and the time that an answer took.
struct AnswerCosts {
  int64_t cached_tokens = 0;  // of the prompt: found in a slot and not read again
  DraftCounts drafts = {};
  double queue_seconds = 0;   // until a slot was free
  double prompt_seconds = 0;  // from then on until the first token was drawn
  double encode_seconds = 0;  // of these, to make soft tokens of pictures and sounds
  double generate_seconds = 0;
  // Statistics of the engine since it was opened, all requests together.
  SessionStats after_prompt = {};  // when the first token was drawn, or the first canvas begins
  SessionStats at_end = {};
};

// A whole answer. Events, joined, give the same text, thoughts and calls.
struct Completion : AnswerCosts {
  std::string text = {};
  std::string thoughts = {};
  std::vector<ToolCall> tool_calls = {};
  std::vector<int32_t> ids = {};           // drawn, without the end token
  std::vector<LogprobStep> logprobs = {};  // one for each of `ids`, if asked for
  // One for each token of the prompt after the first, if asked for; there before the first event of
  // the answer.
  std::vector<PromptLogprob> prompt_logprobs = {};
  std::optional<LogprobStep> end_logprobs = {};  // of the token that ended the answer, if asked for
  int64_t thought_tokens = 0;                    // of `ids`: those whose text is in `thoughts`
  // Keywords of `json_schema` and `tools` without an effect, which were skipped.
  std::vector<std::string> ignored_keywords = {};
  // Places in `tools` that calls are not held to, such as
  // "tools[0].function.parameters.properties.x.minProperties"; never in a tool with "strict": true.
  std::vector<std::string> unenforced_keywords = {};
  StopReason reason = StopReason::kEndOfGeneration;
  std::string stop_text = {};  // of kStopped: the one of Request::stop that the answer came to
  int64_t seed = 0;
  int64_t prompt_tokens = 0;            // soft tokens of media among them
  std::vector<MediumFacts> media = {};  // of the request; there from the start
};

}  // namespace rullama
