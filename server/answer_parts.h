// Parts of answers that several formats have in common. Pure functions, except for ids and times.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/answer_format.h"

namespace rullama::server {

// `prefix` and 24 random letters and digits: "chatcmpl-...".
std::string MakeId(std::string_view prefix);

// "stop", "length" or "tool_calls".
std::string_view FinishReason(const Completion& answer);

// {"prompt_tokens", ...}. Answers to the same prompt count it once: `answers` is how many there are
// to each.
nlohmann::json UsageOf(const std::vector<Choice>& choices, size_t answers);
// llama.cpp's names, seed and queue_ms; of the first answer, with the tokens of all.
nlohmann::json TimingsOf(const std::vector<Choice>& choices);

// {"token", "logprob", "bytes", "top_logprobs"} for each step.
nlohmann::json TokenLogprobs(const std::vector<LogprobStep>& steps, const AnswerIdentity& identity);

// The number that stands for a log-probability, which may be that of an impossible token.
float ShownLogprob(float logprob);
// One entry for each token of the prompt: {"ID": {"logprob", "rank", "decoded_token"}} for its own
// and the `top` best ones; null for the first.
nlohmann::json PromptLogprobs(const Completion& answer, int32_t top,
                              const AnswerIdentity& identity);

// Bytes with U+FFFD in place of invalid UTF-8.
std::string ValidUtf8(std::string_view bytes);
// The number of characters of valid UTF-8.
int64_t CharacterCount(std::string_view text);

// "2026-11-23T02:00:00.123456789Z".
std::string TimeText(int64_t nanoseconds_since_1970);
std::string TimeTextNow();
int64_t SecondsNow();
inline int64_t Nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

// An event of a stream: "data: ...".
std::string DataEvent(const nlohmann::json& data);

}  // namespace rullama::server
