#include "engine/request_job.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/json_reader.h"
#include "engine/model_session.h"
#include "engine/system_prompt.h"

namespace rullama {
namespace {

constexpr int32_t kMaxTopLogprobs = kTopLogprobs;

bool IsChat(const Request& request) { return !request.messages.empty() || !request.turns.empty(); }

Result<nlohmann::json> MessagesOf(const Request& request) {
  if (request.turns.empty()) return ParseJson(request.messages, "messages");
  nlohmann::json messages = nlohmann::json::array();
  for (const Turn& turn : request.turns) {
    messages.push_back({{"role", turn.role}, {"content", turn.text}});
  }
  return messages;
}

Status CheckMembers(const Request& request) {
  const int prompts =
      static_cast<int>(!request.messages.empty()) + static_cast<int>(!request.turns.empty()) +
      static_cast<int>(!request.prompt.empty()) + static_cast<int>(!request.ids.empty());
  if (prompts != 1) {
    return MakeError(
        ErrorKind::kUsage, "usage.request",
        "a request has {} of `messages`, `turns`, `prompt` and `ids`, expected exactly one",
        prompts);
  }
  if (!IsChat(request) && (!request.tools.empty() || request.thinking || request.continue_last)) {
    return MakeError(ErrorKind::kUsage, "usage.request",
                     "`tools`, `thinking` and `continue_last` belong to `messages`, which the "
                     "request does not have");
  }
  if (!request.ids.empty() && !request.media.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.request",
                     "`media` belong to `messages` or `prompt`, but the request has `ids`");
  }
  if (request.top_logprobs < -1 || request.top_logprobs > kMaxTopLogprobs) {
    return MakeError(ErrorKind::kUsage, "usage.request",
                     "top_logprobs is {}, expected -1 (none) to {}", request.top_logprobs,
                     kMaxTopLogprobs);
  }
  if (request.prompt_logprobs < -1 || request.prompt_logprobs > kMaxTopLogprobs) {
    return MakeError(ErrorKind::kUsage, "usage.request",
                     "prompt_logprobs is {}, expected -1 (none) to {}", request.prompt_logprobs,
                     kMaxTopLogprobs);
  }
  if (std::isnan(request.min_draft_probability) || request.min_draft_probability > 1) {
    return MakeError(ErrorKind::kUsage, "usage.request",
                     "min_draft_probability is {}, expected a number up to 1",
                     request.min_draft_probability);
  }
  if (request.prompt_logprobs >= 0 && !request.media.empty()) {
    return MakeError(
        ErrorKind::kUsage, "usage.request",
        "`prompt_logprobs` are asked for, but the prompt has pictures or sounds, which "
        "are not tokens");
  }
  if (std::ranges::find(request.stop, std::string()) != request.stop.end()) {
    return MakeError(ErrorKind::kUsage, "usage.request", "a text of `stop` is empty");
  }
  return OkStatus();
}

// Error media.unsupported for a message with a video whose frames are not given.
Status CheckVideos(const nlohmann::json& messages) {
  for (const nlohmann::json& message : messages) {
    if (!message.is_object() || !message.contains("content")) continue;
    for (const nlohmann::json& part : message.at("content")) {
      if (!part.is_object() || part.value("type", nlohmann::json()) != "video") continue;
      if (part.contains("seconds")) continue;
      return MakeError(ErrorKind::kUsage, "media.unsupported",
                       "a message has a video without `seconds`, expected the times of its frames, "
                       "which are given as pictures");
    }
  }
  return OkStatus();
}

// The prompt with a placeholder for each medium.
Result<EncodedChat> TextPromptOf(const LoadedModel& model, const Request& request, bool thinking,
                                 size_t max_tokens) {
  const Tokenizer& tokenizer = *model.tokenizer;
  if (!request.prompt.empty()) {
    const std::string text =
        request.media.empty() ? request.prompt : WithTextAroundMedia(*model.model, request.prompt);
    RL_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                        tokenizer.Encode(text, {.add_bos = true, .max_tokens = max_tokens}));
    return EncodedChat{.ids = std::move(ids)};
  }
  if (!request.ids.empty()) {
    for (const int32_t id : request.ids) {
      if (tokenizer.Contains(id)) continue;
      return MakeError(ErrorKind::kUsage, "tokenizer.id",
                       "token id {} is outside the vocabulary of {} tokens", id, tokenizer.size());
    }
    return EncodedChat{.ids = request.ids};
  }
  RL_ASSIGN_OR_RETURN(nlohmann::json messages, MessagesOf(request));
  nlohmann::json tools;
  if (!request.tools.empty()) {
    RL_ASSIGN_OR_RETURN(tools, ParseJson(request.tools, "tools"));
  }
  if (messages.is_array() && request.default_system) AddSystemPrompt(model.config(), messages);
  if (messages.is_array()) RL_RETURN_IF_ERROR(CheckVideos(messages));
  return model.model->EncodeChat(tokenizer, messages, tools,
                                 {.thinking = thinking,
                                  .continue_last = request.continue_last,
                                  .add_generation_prompt = request.add_generation_prompt,
                                  .max_tokens = max_tokens});
}

// How many contexts of tokens are counted of a prompt that is too long; an error about a longer one
// says that it has more.
constexpr int64_t kCountedContexts = 4;

// The tokens that prompt and answer may have; `limit`: as Request::max_context.
int64_t ContextOf(const LoadedModel& model, int64_t limit) {
  return limit > 0 ? std::min(limit, model.capacity()) : model.capacity();
}

struct Prompt {
  EncodedChat chat;
  std::vector<PlacedMedium> media;
};

Result<Prompt> PromptOf(const LoadedModel& model, const Request& request, bool thinking,
                        const DecodedMedia& media, int64_t most) {
  Prompt prompt;
  auto text =
      TextPromptOf(model, request, thinking, most < 0 ? kAnyTokens : static_cast<size_t>(most));
  if (!text && text.error().id == "text.size" && most >= 0) {
    return MakeError(ErrorKind::kRuntime, "context.overflow",
                     "the prompt has more than {} tokens, but the context holds {}; shorten the "
                     "prompt",
                     most, ContextOf(model, request.max_context));
  }
  if (!text) return tl::unexpected(std::move(text).error());
  prompt.chat = *std::move(text);
  if (!request.ids.empty()) return prompt;
  RL_ASSIGN_OR_RETURN(prompt.media,
                      PlaceMedia(*model.model, *model.tokenizer, media, prompt.chat.ids));
  return prompt;
}

Result<SamplerSettings> SettingsOf(SamplerSettings settings, const SamplingOptions& options,
                                   int64_t vocabulary) {
  const bool sets_temperature = options.temperature.has_value();
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) \
  if (options.name) settings.name = *options.name;
#include "core/config/sampler_settings.def"
  if (sets_temperature) settings.greedy = false;
  for (const auto& [token, bias] : options.logit_bias) settings.logit_bias[token] = bias;
  if (options.seed) settings.seed = static_cast<uint64_t>(*options.seed);
  RL_RETURN_IF_ERROR(settings.Validate(vocabulary));
  return settings;
}

bool Thinks(const LoadedModel& model, const Request& request) {
  return request.thinking.value_or(model.config().generation.thinking.value_or(false));
}

std::optional<ThoughtBudget> ThoughtBudgetOf(const LoadedModel& model, const Request& request,
                                             bool opens_thought) {
  const auto markers = model.model->MarkersOfThoughts();
  if (request.max_thought_tokens < 0 || !markers || model.facts().denoises()) return std::nullopt;
  const auto begin = model.tokenizer->FindToken(markers->begin);
  const auto end = model.tokenizer->FindToken(markers->end);
  if (!begin || !end) return std::nullopt;
  return ThoughtBudget({.begin = *begin,
                        .end = *end,
                        .tokens = request.max_thought_tokens,
                        .inside = opens_thought,
                        .vocabulary = model.facts().vocabulary});
}

// Puts the prompt of a task before the content of the first message.
void AddTask(std::string_view task, nlohmann::json& messages) {
  if (!messages.is_array() || messages.empty() || !messages[0].is_object()) return;
  nlohmann::json& content = messages[0]["content"];
  const nlohmann::json part = {{"type", "text"}, {"text", task}};
  if (content.is_string()) {
    content = fmt::format("{}{}", task, content.get_ref<const std::string&>());
  } else if (content.is_array()) {
    content.insert(content.begin(), part);
  }
}

void BanTokens(std::span<const TokenId> tokens, std::vector<TokenBias>& biases) {
  for (const TokenId token : tokens) {
    std::erase_if(biases, [token](const TokenBias& bias) { return bias.token == token; });
    biases.push_back({token, -std::numeric_limits<float>::infinity()});
  }
}

}  // namespace

Result<nlohmann::json> ParseJson(std::string_view text, std::string_view what) {
  auto value = ReadJson(text);
  if (value) return *std::move(value);
  return MakeError(ErrorKind::kUsage, "chat.json", "{} ({} bytes) {}, expected a JSON list", what,
                   text.size(), value.error().ToString());
}

Status CheckFits(const LoadedModel& model, int64_t tokens, int64_t canvas, int64_t max_context) {
  const int64_t capacity = ContextOf(model, max_context);
  const bool limited = capacity < model.capacity();
  if (tokens + canvas <= capacity) return OkStatus();
  const int64_t limit = model.facts().context_length;
  const std::string larger =
      !limited && model.capacity() < limit
          ? fmt::format("shorten the prompt or raise context.capacity (this model takes up to {})",
                        limit)
          : "shorten the prompt";
  const std::string with = canvas > 0 ? fmt::format(" and a canvas {}", canvas) : std::string();
  return MakeError(ErrorKind::kRuntime, "context.overflow",
                   "the prompt has {} tokens{}, but the context holds {}; {}", tokens, with,
                   capacity, larger);
}

Result<std::vector<int32_t>> PromptIds(const LoadedModel& model, const Request& request,
                                       int64_t most, MediaBudget& budget) {
  RL_RETURN_IF_ERROR(CheckMembers(request));
  RL_ASSIGN_OR_RETURN(const DecodedMedia media,
                      MeasureMedia(model, request.media, {.budget = &budget}));
  RL_ASSIGN_OR_RETURN(Prompt prompt, PromptOf(model, request, Thinks(model, request), media, most));
  return std::move(prompt.chat.ids);
}

Result<std::unique_ptr<Job>> EmbeddingJob(const LoadedModel& model, const Request& content,
                                          std::string_view task, const DecodedMedia& media) {
  RL_RETURN_IF_ERROR(CheckMembers(content));
  Request whole = content;
  whole.default_system = false;
  if (!task.empty()) {
    RL_ASSIGN_OR_RETURN(nlohmann::json messages, ParseJson(content.messages, "messages"));
    AddTask(task, messages);
    whole.messages = messages.dump();
  }
  RL_ASSIGN_OR_RETURN(Prompt prompt, PromptOf(model, whole, /*thinking=*/false, media, -1));
  RL_RETURN_IF_ERROR(CheckFits(model, std::ssize(prompt.chat.ids), 0));
  auto job = std::make_unique<Job>();
  job->kind = Job::Kind::kEmbed;
  job->prompt = std::move(prompt.chat.ids);
  job->media = std::move(prompt.media);
  return job;
}

Result<PreparedRequest> PrepareRequest(const LoadedModel& model, const SamplerSettings& sampler,
                                       AnswerConstraints& constraints, const Request& request,
                                       const DecodedMedia& media, const AnswerChoice& answer) {
  RL_RETURN_IF_ERROR(CheckMembers(request));
  const GenerationConfig& defaults = model.config().generation;
  const bool thinking = Thinks(model, request);
  PreparedRequest prepared{.job = std::make_unique<Job>()};
  Job& job = *prepared.job;
  RL_ASSIGN_OR_RETURN(Prompt prompt,
                      PromptOf(model, request, thinking, media,
                               kCountedContexts * ContextOf(model, request.max_context)));
  job.prompt = std::move(prompt.chat.ids);
  job.media = std::move(prompt.media);
  job.max_tokens = request.max_tokens < 0 ? defaults.max_tokens.value_or(-1) : request.max_tokens;
  const bool denoises = model.facts().denoises();
  RL_RETURN_IF_ERROR(CheckFits(model, std::ssize(job.prompt),
                               denoises && job.max_tokens != 0 ? model.facts().canvas.length : 0,
                               request.max_context));
  job.max_context = request.max_context;
  if (denoises && (request.top_logprobs >= 0 || request.prompt_logprobs >= 0)) {
    return MakeError(ErrorKind::kUsage, "model.canvas",
                     "this model denoises canvases and predicts no next token, so there are no "
                     "log-probabilities");
  }
  RL_ASSIGN_OR_RETURN(const SamplerSettings settings,
                      SettingsOf(sampler, request.sampling, model.facts().vocabulary));
  job.bias = BiasesOf(settings);
  if (request.ignore_end) BanTokens(model.tokenizer->end_of_generation_ids(), job.bias);
  job.sampling = RowSamplingOf(settings, answer.choice);
  job.sampling.bias = job.bias;
  RL_ASSIGN_OR_RETURN(job.constraint,
                      constraints.Make(request, thinking, prompt.chat.opens_thought));
  job.thoughts = ThoughtBudgetOf(model, request, prompt.chat.opens_thought);
  job.top_logprobs = request.top_logprobs;
  job.prompt_logprobs = request.prompt_logprobs;
  if (request.max_draft >= 0) job.max_draft = request.max_draft;
  // The rows of a draft are drawn before it is known how long the thought gets.
  if (!request.drafts || job.thoughts) job.max_draft = 0;
  if (request.min_draft_probability >= 0) {
    job.min_draft_probability = request.min_draft_probability;
  }
  const bool scored = request.prompt_logprobs >= 0;
  job.reuse_prefix = request.reuse_prefix && !scored;
  job.space.client = request.client;
  job.slot = request.slot;
  if (!request.note.empty()) job.note = std::make_shared<const std::string>(request.note);
  prepared.logprobs = request.top_logprobs >= 0;
  prepared.text.stop = request.stop.empty() ? defaults.stop : request.stop;
  // The number of tokens drawn after a stop text depends on the speed of the reader.
  job.reuse_answers =
      request.reuse_answers && answer.alone && prepared.text.stop.empty() && !scored;
  if (IsChat(request)) {
    prepared.text.parser = model.model->MakeOutputParser(
        {.report_thinking = thinking, .starts_in_thought = prompt.chat.opens_thought});
  }
  return prepared;
}

}  // namespace rullama
