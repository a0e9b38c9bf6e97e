// Bodies from arbitrary bytes, read by the endpoints of all APIs: each gives a request that the
// engine can take, or an error of the client.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "server/anthropic/messages_request.h"
#include "server/json_body.h"
#include "server/ollama/ollama_request.h"
#include "server/openai/chat_request.h"
#include "server/openai/responses_request.h"

namespace {

using nlohmann::json;
using rullama::server::AnswerRequest;
using rullama::server::ApiError;
using rullama::server::BodyContext;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

void CheckError(const ApiError& error) {
  constexpr size_t kMaxMessageBytes = 1024;
  Require(error.status >= 400 && error.status < 500, "the fault is that of the client");
  Require(error.message.size() <= kMaxMessageBytes, "a message repeats little of the input");
  for (const auto dialect : {rullama::server::Dialect::kOpenAi, rullama::server::Dialect::kOllama,
                             rullama::server::Dialect::kAnthropic}) {
    Require(json::accept(ErrorBody(dialect, error, "id")), "an error is JSON");
  }
}

void CheckRequest(const AnswerRequest& request) {
  Require(request.n >= 1 && !request.prompts.empty(), "something is asked for");
  for (const rullama::Request& prompt : request.prompts) {
    for (const auto& text : {prompt.messages, prompt.tools, prompt.json_schema}) {
      Require(text.empty() || json::accept(text), "messages, tools and schema are JSON");
    }
    for (const int32_t id : prompt.ids) Require(id >= 0, "ids are not negative");
    for (const auto& [id, scale] : prompt.adapters.value_or(std::vector<rullama::AdapterScale>())) {
      Require(id >= 0 && id < 3, "adapters are loaded");
      Require(std::abs(scale) <= rullama::kMaxAdapterScale, "factors are in their range");
    }
  }
}

template <typename T, typename Check>
void CheckResult(const rullama::server::ApiResult<T>& result, const Check& check) {
  if (result) return check(*result);
  CheckError(result.error());
}

void ReadAll(const json& body, const BodyContext& context) {
  CheckResult(ReadChatRequest(body, context), CheckRequest);
  CheckResult(ReadTextRequest(body, context), CheckRequest);
  CheckResult(ReadResponsesRequest(body, context),
              [](const auto& request) { CheckRequest(request.answer); });
  CheckResult(ReadMessagesRequest(body, context),
              [](const auto& request) { CheckRequest(request.answer); });
  CheckResult(ReadCountedRequest(body, context),
              [](const auto& request) { CheckRequest(request.answer); });
  CheckResult(ReadOllamaChat(body, context),
              [](const auto& request) { CheckRequest(request.answer); });
  CheckResult(ReadOllamaGenerate(body, context),
              [](const auto& request) { CheckRequest(request.answer); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto body = rullama::server::ParseBody(text);
  if (!body) {
    CheckError(body.error());
    return 0;
  }
  for (const bool denoises : {false, true}) {
    ReadAll(*body, {.text = text,
                    .slots = 4,
                    .capacity = 256,
                    .denoises = denoises,
                    .adapters = 3,
                    .chooses_adapters = true});
  }
  return 0;
}
