// The answers of /v1/chat/completions and /v1/completions.
#include <fmt/format.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "server/answer_format.h"
#include "server/answer_parts.h"

namespace rullama::server {
namespace {

using nlohmann::json;

constexpr const char* kEnd = "data: [DONE]\n\n";

json OpenAiCall(const ToolCall& call) {
  return {{"id", MakeId("call_")},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

// Code that both formats share; how a choice looks is left to them.
class OpenAiFormat : public AnswerFormat {
 public:
  OpenAiFormat(AnswerIdentity identity, StreamOptions options, std::string_view id_prefix)
      : identity_(std::move(identity)), options_(options), id_(MakeId(id_prefix)) {}

  std::string Whole(const std::vector<Choice>& choices) final {
    json body = Base(false);
    body["choices"] = json::array();
    for (const Choice& choice : choices) body["choices"].push_back(WholeChoice(choice));
    for (size_t i = 0; i < choices.size(); ++i) {
      body["choices"][i]["index"] = i;
      body["choices"][i]["finish_reason"] = FinishReason(choices[i].completion);
    }
    body["usage"] = UsageOf(choices, AnswersToEach(choices.size()));
    body["timings"] = TimingsOf(choices);
    return Dump(body);
  }

  std::string Last(const std::vector<Choice>& choices) final {
    json last = std::exchange(last_chunk_, nullptr);
    if (options_.usage) {
      const std::string before = last.is_null() ? "" : DataEvent(last);
      json counts = Base(true);
      counts["choices"] = json::array();
      counts["usage"] = UsageOf(choices, AnswersToEach(choices.size()));
      counts["timings"] = TimingsOf(choices);
      return before + DataEvent(counts) + kEnd;
    }
    last["timings"] = TimingsOf(choices);
    return DataEvent(last) + kEnd;
  }

  // The chunk with the reason of the end is kept: the last one has the timings.
  std::string End(int64_t choice, const Choice& answer) final {
    json end = Chunk(choice, EmptyDelta());
    end["choices"][0]["finish_reason"] = FinishReason(answer.completion);
    const json before = std::exchange(last_chunk_, std::move(end));
    return before.is_null() ? "" : DataEvent(before);
  }

  std::string Failure(const ApiError& error) final {
    return DataEvent(ErrorJson(Dialect::kOpenAi, error));
  }

 protected:
  [[nodiscard]] const AnswerIdentity& identity() const { return identity_; }

  // A choice of a whole answer, without index and finish_reason.
  virtual json WholeChoice(const Choice& choice) = 0;
  [[nodiscard]] virtual json EmptyDelta() const = 0;
  [[nodiscard]] virtual const char* DeltaName() const = 0;
  [[nodiscard]] virtual const char* Object(bool chunk) const = 0;
  [[nodiscard]] virtual size_t AnswersToEach(size_t choices) const = 0;

  [[nodiscard]] json Base(bool chunk) const {
    return {{"id", id_},
            {"object", Object(chunk)},
            {"created", identity_.created},
            {"model", identity_.model},
            {"system_fingerprint", identity_.fingerprint}};
  }
  [[nodiscard]] json Chunk(int64_t choice, json delta) const {
    json entry = {{"index", choice}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
    entry[DeltaName()] = std::move(delta);
    json chunk = Base(true);
    chunk["choices"] = json::array({std::move(entry)});
    if (options_.usage) chunk["usage"] = nullptr;
    return chunk;
  }

  // The event of a chunk, of which `make_chunk(text)` is the document, with `text` as its member
  // `name` and nothing else that changes. The rest of the document is written once for each choice
  // and name: most events are such chunks, one for each token.
  template <typename MakeChunk>
  std::string TextEvent(int64_t choice, const char* name, const std::string& text,
                        MakeChunk make_chunk) {
    TextChunk& chunk = text_chunks_[{choice, name}];
    if (chunk.front.empty()) {
      // Inside of texts there is no quotation mark without a backslash.
      const std::string member = fmt::format("\"{}\":", name);
      const std::string event = DataEvent(make_chunk(""));
      const size_t place = event.find(member + "\"\"") + member.size();
      chunk = {event.substr(0, place), event.substr(place + 2)};
    }
    return chunk.front + Dump(text) + chunk.back;
  }

  // A canvas after a step: it replaces the one before, and the text of the canvas replaces the
  // last.
  [[nodiscard]] std::string DraftPart(int64_t choice, const Event& event) const {
    if (!options_.drafts) return "";
    json chunk = Base(true);
    chunk["choices"] = json::array();
    chunk["draft"] = {
        {"index", choice}, {"step", event.done}, {"of", event.total}, {"text", event.text}};
    if (options_.usage) chunk["usage"] = nullptr;
    return DataEvent(chunk);
  }

 private:
  // An event before and after its text.
  struct TextChunk {
    std::string front;
    std::string back;
  };

  AnswerIdentity identity_;
  StreamOptions options_;
  std::string id_;
  json last_chunk_;
  std::map<std::pair<int64_t, std::string_view>, TextChunk> text_chunks_;
};

class ChatFormat final : public OpenAiFormat {
 public:
  ChatFormat(AnswerIdentity identity, StreamOptions options)
      : OpenAiFormat(std::move(identity), options, "chatcmpl-") {}

  std::string Begin(int64_t choices) override {
    calls_.resize(static_cast<size_t>(choices));
    std::string text;
    for (int64_t i = 0; i < choices; ++i) {
      text += DataEvent(Chunk(i, {{"role", "assistant"}, {"content", ""}}));
    }
    return text;
  }

  std::string Part(int64_t choice, const Event& event) override {
    switch (event.kind) {
      case Event::Kind::kText: {
        if (event.logprobs.empty()) return DeltaEvent(choice, "content", event.text);
        json chunk = Chunk(choice, {{"content", event.text}});
        chunk["choices"][0]["logprobs"] = Logprobs(event.logprobs);
        return DataEvent(chunk);
      }
      case Event::Kind::kThinking:
        return DeltaEvent(choice, "reasoning_content", event.text);
      case Event::Kind::kToolCall:
        return CallParts(choice, event.call);
      case Event::Kind::kDraft:
        return DraftPart(choice, event);
      case Event::Kind::kProgress:
        break;
    }
    return "";
  }

 protected:
  json WholeChoice(const Choice& choice) override {
    const Completion& answer = choice.completion;
    json message = {{"role", "assistant"}, {"content", answer.text}, {"refusal", nullptr}};
    if (!answer.thoughts.empty()) message["reasoning_content"] = answer.thoughts;
    if (!answer.tool_calls.empty()) {
      if (answer.text.empty()) message["content"] = nullptr;
      message["tool_calls"] = json::array();
      for (const ToolCall& call : answer.tool_calls)
        message["tool_calls"].push_back(OpenAiCall(call));
    }
    const bool asked = !answer.logprobs.empty();
    return {{"message", std::move(message)},
            {"logprobs", asked ? Logprobs(choice.logprobs) : json(nullptr)}};
  }
  [[nodiscard]] json EmptyDelta() const override { return json::object(); }
  [[nodiscard]] const char* DeltaName() const override { return "delta"; }
  [[nodiscard]] const char* Object(bool chunk) const override {
    return chunk ? "chat.completion.chunk" : "chat.completion";
  }
  [[nodiscard]] size_t AnswersToEach(size_t choices) const override { return choices; }

 private:
  std::string DeltaEvent(int64_t choice, const char* name, const std::string& text) {
    return TextEvent(choice, name, text, [&](const char* delta) {
      return Chunk(choice, {{name, delta}});
    });
  }
  [[nodiscard]] json Logprobs(const std::vector<LogprobStep>& steps) const {
    return {{"content", TokenLogprobs(steps, identity())}, {"refusal", nullptr}};
  }
  // The name of the call, then its arguments.
  std::string CallParts(int64_t choice, const ToolCall& called) {
    const int64_t index = calls_[static_cast<size_t>(choice)]++;
    json call = OpenAiCall(called);
    call["index"] = index;
    call["function"]["arguments"] = "";
    const json arguments = {{"index", index}, {"function", {{"arguments", called.arguments}}}};
    return DataEvent(Chunk(choice, {{"tool_calls", json::array({std::move(call)})}})) +
           DataEvent(Chunk(choice, {{"tool_calls", json::array({arguments})}}));
  }

  std::vector<int64_t> calls_;  // of each choice so far
};

class CompletionFormat final : public OpenAiFormat {
 public:
  CompletionFormat(AnswerIdentity identity, StreamOptions options, std::vector<std::string> echoes,
                   size_t per_prompt)
      : OpenAiFormat(std::move(identity), options, "cmpl-"),
        echoes_(std::move(echoes)),
        per_prompt_(per_prompt) {}

  std::string Begin(int64_t choices) override {
    offsets_.resize(static_cast<size_t>(choices));
    std::string text;
    for (int64_t i = 0; i < choices && !echoes_.empty(); ++i) {
      text += DataEvent(Chunk(i, echoes_[static_cast<size_t>(i) / per_prompt_]));
    }
    return text;
  }
  std::string Part(int64_t choice, const Event& event) override {
    if (event.kind == Event::Kind::kDraft) return DraftPart(choice, event);
    if (event.kind != Event::Kind::kText) return "";
    if (event.logprobs.empty()) {
      return TextEvent(choice, DeltaName(), event.text,
                       [&](const char* text) { return Chunk(choice, text); });
    }
    json chunk = Chunk(choice, event.text);
    int64_t& offset = offsets_[static_cast<size_t>(choice)];
    chunk["choices"][0]["logprobs"] = Logprobs(event.logprobs, offset);
    return DataEvent(chunk);
  }

 protected:
  json WholeChoice(const Choice& choice) override {
    const std::string echo = echoes_.empty() ? "" : echoes_[written_++ / per_prompt_];
    int64_t offset = 0;
    const bool asked = !choice.completion.logprobs.empty();
    return {{"text", echo + choice.completion.text},
            {"logprobs", asked ? Logprobs(choice.logprobs, offset) : json(nullptr)}};
  }
  [[nodiscard]] json EmptyDelta() const override { return ""; }
  [[nodiscard]] const char* DeltaName() const override { return "text"; }
  [[nodiscard]] const char* Object(bool /*chunk*/) const override { return "text_completion"; }
  [[nodiscard]] size_t AnswersToEach(size_t /*choices*/) const override { return per_prompt_; }

 private:
  // OpenAI's older form. `offset`: characters of the text before, moved past these tokens.
  [[nodiscard]] json Logprobs(const std::vector<LogprobStep>& steps, int64_t& offset) const {
    json out = {{"tokens", json::array()},
                {"token_logprobs", json::array()},
                {"top_logprobs", json::array()},
                {"text_offset", json::array()}};
    for (const LogprobStep& step : steps) {
      const std::string token = ValidUtf8(identity().token_bytes(step.drawn.token));
      json top = {{token, step.drawn.logprob}};
      for (const TokenLogprob& one : step.top) {
        top[ValidUtf8(identity().token_bytes(one.token))] = one.logprob;
      }
      out["tokens"].push_back(token);
      out["token_logprobs"].push_back(step.drawn.logprob);
      out["top_logprobs"].push_back(std::move(top));
      out["text_offset"].push_back(offset);
      offset += CharacterCount(token);
    }
    return out;
  }

  std::vector<std::string> echoes_;
  size_t per_prompt_;             // answers to each prompt
  size_t written_ = 0;            // choices of a whole answer
  std::vector<int64_t> offsets_;  // of each choice: characters so far
};

}  // namespace

std::unique_ptr<AnswerFormat> MakeChatFormat(AnswerIdentity identity, StreamOptions options) {
  return std::make_unique<ChatFormat>(std::move(identity), options);
}

std::unique_ptr<AnswerFormat> MakeTextFormat(AnswerIdentity identity, StreamOptions options,
                                             std::vector<std::string> echoes, size_t per_prompt) {
  return std::make_unique<CompletionFormat>(std::move(identity), options, std::move(echoes),
                                            per_prompt);
}

}  // namespace rullama::server
