// The form in which an endpoint writes answers: whole, or in parts as they come.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/api/request.h"
#include "server/answer_request.h"
#include "server/api_error.h"

namespace rullama::server {

// One of the answers to a request, when it is over.
struct Choice {
  Completion completion;
  std::vector<LogprobStep> logprobs;  // of the tokens of its text
  std::vector<int64_t> canvases;      // of a model that denoises: the steps of each
};

// Facts that do not change within an answer.
struct AnswerIdentity {
  std::string model;
  std::string fingerprint;  // of the program and the backend
  int64_t created = 0;      // seconds since 1970
  // The bytes of a token.
  std::function<std::string(int32_t)> token_bytes;
};

// Thread safety: one thread at a time. Watch() is called for the events of an answer that is sent
// at once. The functions for streams are called in the order Begin(), Part() and End() of each
// choice, Last(); each returns bytes for the client, which may be none.
class AnswerFormat {
 public:
  AnswerFormat() = default;
  AnswerFormat(const AnswerFormat&) = delete;
  AnswerFormat& operator=(const AnswerFormat&) = delete;
  virtual ~AnswerFormat() = default;

  virtual void Watch(int64_t /*choice*/, const Event& /*event*/) {}
  // The body of an answer that is sent at once.
  virtual std::string Whole(const std::vector<Choice>& choices) = 0;

  [[nodiscard]] virtual std::string_view stream_type() const {
    return "text/event-stream; charset=utf-8";
  }
  virtual std::string Begin(int64_t choices) = 0;
  // Before the first part of a choice other than progress, or its end: what the answer shows of its
  // prompt. `answer` has the scores of the prompt.
  virtual std::string Prompt(int64_t /*choice*/, const Completion& /*answer*/) { return ""; }
  virtual std::string Part(int64_t choice, const Event& event) = 0;
  virtual std::string End(int64_t choice, const Choice& answer) = 0;
  virtual std::string Last(const std::vector<Choice>& choices) = 0;
  // Instead of the rest: the answer breaks off.
  virtual std::string Failure(const ApiError& error) = 0;
  // Tells a client that the server is still there.
  [[nodiscard]] virtual std::string Ping() const { return ": ping\n\n"; }
};

struct StreamOptions {
  bool usage = false;            // the stream ends with the counts
  bool drafts = false;           // the stream shows canvases as they stand
  int32_t prompt_logprobs = -1;  // best ones of the prompt's tokens, in vLLM's form; -1: not told
};

// /v1/chat/completions.
std::unique_ptr<AnswerFormat> MakeChatFormat(AnswerIdentity identity, StreamOptions options);

// /v1/completions. The answers to a prompt stand next to each other.
std::unique_ptr<AnswerFormat> MakeTextFormat(AnswerIdentity identity, StreamOptions options,
                                             const AnswerRequest& request);

// /v1/responses. `repeated`: the members of the request that the answer repeats.
std::unique_ptr<AnswerFormat> MakeResponsesFormat(AnswerIdentity identity, nlohmann::json repeated);

// /v1/messages.
struct MessagesOptions {
  bool omits_thoughts = false;  // the text of thoughts is not shown
  bool edits_context = false;   // says that there were no edits of the context
};
std::unique_ptr<AnswerFormat> MakeMessagesFormat(AnswerIdentity identity, MessagesOptions options);

// /api/chat and /api/generate.
enum class OllamaAnswer { kChat, kGenerate };
std::unique_ptr<AnswerFormat> MakeOllamaFormat(AnswerIdentity identity, OllamaAnswer kind,
                                               int64_t truncated_messages);

}  // namespace rullama::server
