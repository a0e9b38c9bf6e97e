// The answers of /v1/chat/completions and /v1/completions.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
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
    AddToWhole(choices, body);
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
    AddToEnd(choice, answer.completion, end["choices"][0]);
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
  virtual void AddToEnd(int64_t /*choice*/, const Completion& /*answer*/, json& /*entry*/) {}
  virtual void AddToWhole(const std::vector<Choice>& /*choices*/, json& /*body*/) {}
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
      : OpenAiFormat(std::move(identity), options, "chatcmpl-"),
        prompt_logprobs_(options.prompt_logprobs) {}

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
  void AddToWhole(const std::vector<Choice>& choices, json& body) override {
    if (prompt_logprobs_ < 0) return;
    body["prompt_logprobs"] =
        PromptLogprobs(choices.front().completion, prompt_logprobs_, identity());
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

  int32_t prompt_logprobs_;
  std::vector<int64_t> calls_;  // of each choice so far
};

// The arrays of OpenAI's older form of log-probabilities. `place`: the characters of the text
// before them, moved past their tokens.
class LegacyLogprobs {
 public:
  LegacyLogprobs(const AnswerIdentity& identity, bool top, int64_t& place)
      : identity_(identity), top_(top), place_(place) {}

  // A token without a value: nothing stands before it.
  void AddFirst(int32_t token) { Add(identity_.token_bytes(token), nullptr, nullptr); }
  void Add(const TokenLogprob& own, std::span<const TokenLogprob> best) {
    AddWithText(identity_.token_bytes(own.token), own, best);
  }
  // The end of an answer, which has no text.
  void AddEnd(const LogprobStep& end) { AddWithText("", end.drawn, end.top); }

  json Finish() && {
    if (!top_) out_["top_logprobs"] = nullptr;
    return std::move(out_);
  }

 private:
  void AddWithText(const std::string& bytes, const TokenLogprob& own,
                   std::span<const TokenLogprob> best) {
    const float value = ShownLogprob(own.logprob);
    json top = {{ValidUtf8(bytes), value}};
    for (const TokenLogprob& one : best) {
      // Of tokens with the same text, such as single bytes, the likeliest counts.
      if (one.token == own.token) continue;
      json& entry = top[ValidUtf8(identity_.token_bytes(one.token))];
      const float other = ShownLogprob(one.logprob);
      entry = entry.is_null() ? other : std::max(entry.get<float>(), other);
    }
    Add(bytes, value, std::move(top));
  }

  void Add(const std::string& bytes, json value, json top) {
    // A token that begins inside a character has the place of that character.
    const bool inside = !bytes.empty() && (static_cast<unsigned char>(bytes[0]) & 0xC0U) == 0x80U;
    out_["tokens"].push_back(ValidUtf8(bytes));
    out_["token_logprobs"].push_back(std::move(value));
    out_["top_logprobs"].push_back(std::move(top));
    out_["text_offset"].push_back(std::max<int64_t>(place_ - (inside ? 1 : 0), 0));
    place_ += CharacterCount(bytes);
  }

  const AnswerIdentity& identity_;
  bool top_;
  int64_t& place_;
  json out_ = {{"tokens", json::array()},
               {"token_logprobs", json::array()},
               {"top_logprobs", json::array()},
               {"text_offset", json::array()}};
};

class CompletionFormat final : public OpenAiFormat {
 public:
  CompletionFormat(AnswerIdentity identity, StreamOptions options, const AnswerRequest& request)
      : OpenAiFormat(std::move(identity), options, "cmpl-"),
        views_(request.views),
        per_prompt_(static_cast<size_t>(request.n)),
        logprobs_(request.logprobs),
        echo_(request.echo),
        token_ids_(request.token_ids),
        prompt_logprobs_(options.prompt_logprobs) {}

  std::string Begin(int64_t choices) override {
    places_.resize(static_cast<size_t>(choices));
    return "";
  }
  std::string Prompt(int64_t choice, const Completion& answer) override {
    if (!echo_ && !token_ids_) return "";
    const PromptView& view = ViewOf(static_cast<size_t>(choice));
    json chunk = Chunk(choice, view.text);
    json& entry = chunk["choices"][0];
    if (token_ids_) entry["prompt_token_ids"] = view.ids;
    if (echo_ && logprobs_ >= 0) {
      LegacyLogprobs listed = Listed(places_[static_cast<size_t>(choice)]);
      AddPrompt(view, answer, listed);
      entry["logprobs"] = std::move(listed).Finish();
    }
    return DataEvent(chunk);
  }
  std::string Part(int64_t choice, const Event& event) override {
    if (event.kind == Event::Kind::kDraft) return DraftPart(choice, event);
    if (event.kind != Event::Kind::kText) return "";
    if (event.logprobs.empty()) {
      return TextEvent(choice, DeltaName(), event.text,
                       [&](const char* text) { return Chunk(choice, text); });
    }
    json chunk = Chunk(choice, event.text);
    json& entry = chunk["choices"][0];
    if (logprobs_ >= 0) {
      LegacyLogprobs listed = Listed(places_[static_cast<size_t>(choice)]);
      for (const LogprobStep& step : event.logprobs) listed.Add(step.drawn, step.top);
      entry["logprobs"] = std::move(listed).Finish();
    }
    if (token_ids_) {
      entry["token_ids"] = json::array();
      for (const LogprobStep& step : event.logprobs) entry["token_ids"].push_back(step.drawn.token);
    }
    return DataEvent(chunk);
  }

 protected:
  json WholeChoice(const Choice& choice) override {
    const Completion& answer = choice.completion;
    const PromptView& view = ViewOf(written_++);
    json out = {{"text", view.text + answer.text}, {"logprobs", nullptr}};
    if (logprobs_ >= 0) {
      int64_t place = 0;
      LegacyLogprobs listed = Listed(place);
      if (echo_) AddPrompt(view, answer, listed);
      for (const LogprobStep& step : choice.logprobs) listed.Add(step.drawn, step.top);
      if (ListsEnd(answer)) listed.AddEnd(*answer.end_logprobs);
      out["logprobs"] = std::move(listed).Finish();
    }
    if (prompt_logprobs_ >= 0) {
      out["prompt_logprobs"] = PromptLogprobs(answer, prompt_logprobs_, identity());
    }
    if (token_ids_) {
      out["prompt_token_ids"] = view.ids;
      out["token_ids"] = answer.ids;
    }
    return out;
  }
  void AddToEnd(int64_t choice, const Completion& answer, json& entry) override {
    if (!ListsEnd(answer)) return;
    LegacyLogprobs listed = Listed(places_[static_cast<size_t>(choice)]);
    listed.AddEnd(*answer.end_logprobs);
    entry["logprobs"] = std::move(listed).Finish();
  }
  [[nodiscard]] json EmptyDelta() const override { return ""; }
  [[nodiscard]] const char* DeltaName() const override { return "text"; }
  [[nodiscard]] const char* Object(bool /*chunk*/) const override { return "text_completion"; }
  [[nodiscard]] size_t AnswersToEach(size_t /*choices*/) const override { return per_prompt_; }

 private:
  [[nodiscard]] const PromptView& ViewOf(size_t choice) const {
    static const PromptView kNone;
    return views_.empty() ? kNone : views_[choice / per_prompt_];
  }
  // Those who cut the drawn tokens off an echo count on as many as they asked for.
  [[nodiscard]] bool ListsEnd(const Completion& answer) const {
    return echo_ && logprobs_ >= 0 && answer.end_logprobs;
  }
  [[nodiscard]] LegacyLogprobs Listed(int64_t& place) const {
    return {identity(), logprobs_ > 0, place};
  }
  void AddPrompt(const PromptView& view, const Completion& answer, LegacyLogprobs& listed) const {
    for (size_t i = view.hidden; i < view.ids.size(); ++i) {
      if (i == 0) {
        listed.AddFirst(view.ids[i]);
      } else if (i <= answer.prompt_logprobs.size()) {
        const PromptLogprob& score = answer.prompt_logprobs[i - 1];
        const std::span<const TokenLogprob> best = score.top;
        listed.Add(score.own, best.first(std::min(best.size(), static_cast<size_t>(logprobs_))));
      }
    }
  }

  std::vector<PromptView> views_;
  size_t per_prompt_;  // answers to each prompt
  int32_t logprobs_;
  bool echo_;
  bool token_ids_;
  int32_t prompt_logprobs_;
  size_t written_ = 0;           // choices of a whole answer
  std::vector<int64_t> places_;  // of each choice: characters so far
};

}  // namespace

std::unique_ptr<AnswerFormat> MakeChatFormat(AnswerIdentity identity, StreamOptions options) {
  return std::make_unique<ChatFormat>(std::move(identity), options);
}

std::unique_ptr<AnswerFormat> MakeTextFormat(AnswerIdentity identity, StreamOptions options,
                                             const AnswerRequest& request) {
  return std::make_unique<CompletionFormat>(std::move(identity), options, request);
}

}  // namespace rullama::server
