#include "cli/conversation.h"

#include <algorithm>
#include <span>
#include <utility>

#include "cli/prompt.h"
#include "engine/system_prompt.h"

namespace rullama::cli {
namespace {

// An answer should find a quarter of the context free, so that turns are not dropped one by one.
constexpr int64_t kReservedPart = 4;

// Removes the oldest message of the user and all up to the next one. The last one stays.
bool DropOldestTurn(nlohmann::json& messages) {
  const auto is_user = [](const nlohmann::json& message) { return message["role"] == "user"; };
  const auto first = std::find_if(messages.begin(), messages.end(), is_user);
  if (first == messages.end()) return false;
  const auto next = std::find_if(first + 1, messages.end(), is_user);
  if (next == messages.end()) return false;
  messages.erase(first, next);
  return true;
}

}  // namespace

Conversation::Conversation(ModelSession& engine, const AnswerOptions& options, Console& console)
    : engine_(engine), options_(options), console_(console), messages_(nlohmann::json::array()) {
  AddSystemPrompt(engine.config(), messages_);
}

void Conversation::Clear() {
  messages_.erase(messages_.begin() + (has_system() ? 1 : 0), messages_.end());
  engine_.session().ForgetSlot(0);
  cached_.clear();
}

void Conversation::SetSystem(const std::string& text) {
  if (has_system()) messages_.erase(0);
  if (!text.empty()) {
    messages_.insert(messages_.begin(), nlohmann::json{{"role", "system"}, {"content", text}});
  }
}

void Conversation::SetThinking(bool thinking) { options_.thinking = thinking; }

bool Conversation::has_system() const {
  return !messages_.empty() && messages_[0]["role"] == "system";
}

int64_t Conversation::canvas_length() const {
  const ModelFacts& facts = engine_.model().facts();
  return facts.denoises() ? facts.canvas.length : 0;
}

int64_t Conversation::Reserve() const {
  int64_t wanted = engine_.capacity() / kReservedPart;
  if (options_.max_tokens >= 0) wanted = std::min(wanted, options_.max_tokens);
  return std::max(wanted, canvas_length());
}

Error Conversation::TooLong(size_t tokens) const {
  const int64_t limit = engine_.model().facts().context_length;
  const std::string with = has_system() ? " with the system prompt" : "";
  const std::string canvas =
      canvas_length() > 0 ? fmt::format(" and a canvas {}", canvas_length()) : std::string();
  const std::string larger =
      engine_.capacity() < limit
          ? fmt::format(", or start again with a larger --ctx-size (this model takes up to {})",
                        limit)
          : std::string();
  return {ErrorKind::kRuntime, "context.overflow",
          fmt::format("this message alone has {} tokens{}{}, but the context holds {}; shorten "
                      "it{}; the conversation goes on without it",
                      tokens, with, canvas, engine_.capacity(), larger)};
}

Result<std::vector<int32_t>> Conversation::FittedTokens() {
  nlohmann::json kept = messages_;
  int dropped = 0;
  for (;;) {
    RL_ASSIGN_OR_RETURN(EncodedChat chat,
                        engine_.model().model->EncodeChat(engine_.tokenizer(), kept,
                                                          /*tools=*/nullptr, options_.thinking));
    std::vector<int32_t> ids = std::move(chat.ids);
    const auto count = static_cast<int64_t>(ids.size());
    const bool fits = count + Reserve() <= engine_.capacity();
    if (!fits && DropOldestTurn(kept)) {
      ++dropped;
      continue;
    }
    if (count + canvas_length() > engine_.capacity()) return tl::unexpected(TooLong(ids.size()));
    if (dropped > 0) {
      messages_ = std::move(kept);
      console_.Warn(
          fmt::format("forgot the {} so that the context of {} tokens suffices",
                      dropped == 1 ? "oldest turn" : fmt::format("{} oldest turns", dropped),
                      engine_.capacity()));
    }
    return ids;
  }
}

Result<Answer> Conversation::Say(const std::string& text) {
  if (engine_.config().generation.raw) {
    RL_ASSIGN_OR_RETURN(const auto ids, PromptTokens(engine_, {.text = text, .ids = {}}));
    return AnswerTo(ids);
  }
  messages_.push_back({{"role", "user"}, {"content", text}});
  auto answer = FittedTokens().and_then([this](const auto& ids) { return AnswerTo(ids); });
  if (answer) {
    messages_.push_back({{"role", "assistant"}, {"content", answer->text}});
  } else {
    messages_.erase(messages_.size() - 1);
  }
  return answer;
}

// Evaluates only what the cache does not hold yet, if the conversation merely went on.
Result<Answer> Conversation::AnswerTo(const std::vector<int32_t>& ids) {
  const bool continues =
      ids.size() > cached_.size() && std::equal(cached_.begin(), cached_.end(), ids.begin());
  if (!continues) {
    engine_.session().ForgetSlot(0);
    cached_.clear();
  }
  const auto fresh = std::span(ids).subspan(cached_.size());
  auto answer = GenerateAnswer(engine_, fresh, options_, console_);
  cached_ = ids;
  if (answer) cached_.insert(cached_.end(), answer->ids.begin(), answer->ids.end());
  // The last token that was drawn has not been evaluated, nor has the rest of a prompt that
  // failed.
  cached_.resize(std::min(cached_.size(), static_cast<size_t>(engine_.session().past(0))));
  return answer;
}

}  // namespace rullama::cli
