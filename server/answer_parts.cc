#include "server/answer_parts.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <numeric>
#include <random>

#include "core/base/utf8.h"

namespace rullama::server {
namespace {

using nlohmann::json;

// The number that stands for the logarithm of zero.
constexpr float kMinLogprob = -9999.0F;

double PerSecond(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

json TokenLogprobJson(const TokenLogprob& one, const AnswerIdentity& identity) {
  const std::string bytes = identity.token_bytes(one.token);
  json list = json::array();
  for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
  return {{"token", ValidUtf8(bytes)},
          {"logprob", ShownLogprob(one.logprob)},
          {"bytes", std::move(list)}};
}

int64_t NanosecondsNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::string MakeId(std::string_view prefix) {
  constexpr std::string_view kLetters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::uniform_int_distribution<size_t> letter(0, kLetters.size() - 1);
  std::string id(prefix);
  for (int i = 0; i < 24; ++i) id.push_back(kLetters[letter(random)]);
  return id;
}

std::string_view FinishReason(const Completion& answer) {
  if (!answer.tool_calls.empty()) return "tool_calls";
  const bool cut =
      answer.reason == StopReason::kMaxTokens || answer.reason == StopReason::kContextFull;
  return cut ? "length" : "stop";
}

json UsageOf(const std::vector<Choice>& choices, size_t answers) {
  int64_t prompt = 0;
  int64_t cached = 0;
  int64_t drawn = 0;
  int64_t thoughts = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    const Completion& answer = choices[i].completion;
    drawn += std::ssize(answer.ids);
    thoughts += answer.thought_tokens;
    if (i % answers == 0) {
      prompt += answer.prompt_tokens;
      cached += answer.cached_tokens;
    }
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", drawn},
          {"total_tokens", prompt + drawn},
          {"prompt_tokens_details", {{"cached_tokens", cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", thoughts}}}};
}

json TimingsOf(const std::vector<Choice>& choices) {
  const Completion& first = choices.front().completion;
  const int64_t read = first.prompt_tokens - first.cached_tokens;
  int64_t drawn = 0;
  DraftCounts drafts;
  size_t canvases = 0;
  int64_t denoise_steps = 0;
  for (const Choice& choice : choices) {
    drawn += std::ssize(choice.completion.ids);
    drafts.drafted += choice.completion.drafts.drafted;
    drafts.accepted += choice.completion.drafts.accepted;
    canvases += choice.canvases.size();
    denoise_steps += std::reduce(choice.canvases.begin(), choice.canvases.end());
  }
  json timings = {{"cache_n", first.cached_tokens},
                  {"prompt_n", read},
                  {"prompt_ms", first.prompt_seconds * 1e3},
                  {"prompt_per_second", PerSecond(read, first.prompt_seconds)},
                  {"predicted_n", drawn},
                  {"predicted_ms", first.generate_seconds * 1e3},
                  {"predicted_per_second", PerSecond(drawn, first.generate_seconds)},
                  {"queue_ms", first.queue_seconds * 1e3},
                  {"seed", first.seed}};
  if (canvases > 0) {
    timings["canvases"] = canvases;
    timings["denoise_steps"] = denoise_steps;
  }
  if (!first.media.empty()) timings["encode_ms"] = first.encode_seconds * 1e3;
  if (drafts.drafted > 0) {
    timings["draft_n"] = drafts.drafted;
    timings["draft_n_accepted"] = drafts.accepted;
  }
  return timings;
}

json TokenLogprobs(const std::vector<LogprobStep>& steps, const AnswerIdentity& identity) {
  json list = json::array();
  for (const LogprobStep& step : steps) {
    json entry = TokenLogprobJson(step.drawn, identity);
    entry["top_logprobs"] = json::array();
    for (const TokenLogprob& one : step.top) {
      entry["top_logprobs"].push_back(TokenLogprobJson(one, identity));
    }
    list.push_back(std::move(entry));
  }
  return list;
}

float ShownLogprob(float logprob) { return std::max(logprob, kMinLogprob); }

json PromptLogprobs(const Completion& answer, int32_t top, const AnswerIdentity& identity) {
  const auto asked = static_cast<size_t>(top);
  json list = json::array({nullptr});
  for (const PromptLogprob& score : answer.prompt_logprobs) {
    json entry = json::object();
    const auto add = [&](const TokenLogprob& one, int64_t rank) {
      entry[std::to_string(one.token)] = {
          {"logprob", ShownLogprob(one.logprob)},
          {"rank", rank},
          {"decoded_token", ValidUtf8(identity.token_bytes(one.token))}};
    };
    for (size_t i = 0; i < std::min(score.top.size(), asked); ++i)
      add(score.top[i], static_cast<int64_t>(i) + 1);
    add(score.own, score.rank);
    list.push_back(std::move(entry));
  }
  return list;
}

std::string ValidUtf8(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const size_t length = Utf8SequenceLength(bytes);
    text += length == 0 ? std::string_view("\xEF\xBF\xBD") : bytes.substr(0, length);
    bytes.remove_prefix(std::max<size_t>(length, 1));
  }
  return text;
}

int64_t CharacterCount(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;  // begins a character
  });
}

std::string TimeText(int64_t nanoseconds_since_1970) {
  constexpr int64_t kSecond = 1'000'000'000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:09}Z",
                     fmt::gmtime(static_cast<std::time_t>(nanoseconds_since_1970 / kSecond)),
                     nanoseconds_since_1970 % kSecond);
}

std::string TimeTextNow() { return TimeText(NanosecondsNow()); }

int64_t SecondsNow() { return NanosecondsNow() / 1'000'000'000; }

std::string DataEvent(const json& data) { return "data: " + Dump(data) + "\n\n"; }

}  // namespace rullama::server
