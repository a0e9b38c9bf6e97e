#include "cli/chat_loop.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>

#include "cli/prompt.h"
#include "cli/signals.h"

namespace rullama::cli {
namespace {

constexpr size_t kMaxLineBytes = size_t{1} << 20;

// Lines from the terminal. The terminal's own line editing applies.
class LineReader {
 public:
  enum class Event { kLine, kEnd, kInterrupted };

  Event Read(std::string& line) {
    line.clear();
    for (;;) {
      const size_t end = buffer_.find('\n');
      if (end != std::string::npos) {
        line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return Event::kLine;
      }
      char chunk[4096];
      const ssize_t count = ::read(STDIN_FILENO, chunk, sizeof(chunk));
      if (count < 0 && errno == EINTR) {
        buffer_.clear();
        return Event::kInterrupted;
      }
      if (count <= 0 || buffer_.size() > kMaxLineBytes) return Event::kEnd;
      buffer_.append(chunk, static_cast<size_t>(count));
    }
  }

 private:
  std::string buffer_;
};

class Conversation {
 public:
  Conversation(Engine& engine, const AnswerOptions& options, Console& console)
      : engine_(engine),
        options_(options),
        console_(console),
        messages_(OpeningMessages(engine.config())) {}

  Status Say(const std::string& text) {
    if (engine_.config().generation.raw) {
      RL_ASSIGN_OR_RETURN(const auto ids, PromptTokens(engine_, {.text = text, .ids = {}}));
      return AnswerTo(ids).map([](const Answer&) {});
    }
    messages_.push_back({{"role", "user"}, {"content", text}});
    auto answer =
        ChatTokens(engine_, messages_).and_then([this](const auto& ids) { return AnswerTo(ids); });
    if (!answer) {
      messages_.erase(messages_.size() - 1);  // as if it had not been said
      return tl::unexpected(std::move(answer).error());
    }
    messages_.push_back({{"role", "assistant"}, {"content", answer->text}});
    return OkStatus();
  }

 private:
  // Evaluates only what the cache does not hold yet, if the conversation merely went on.
  Result<Answer> AnswerTo(const std::vector<int32_t>& ids) {
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
    if (!answer) return answer;
    RL_RETURN_IF_ERROR(console_.Write("\n"));
    console_.Note(DescribeAnswer(*answer));
    return answer;
  }

  Engine& engine_;
  const AnswerOptions& options_;
  Console& console_;
  nlohmann::json messages_;
  std::vector<int32_t> cached_;  // the tokens whose rows slot 0 holds
};

// Errors after which a conversation can go on.
bool IsSurvivable(const Error& error) {
  return error.id == "context.overflow" || error.id == "text.utf8" || error.id == "run.cancelled";
}

}  // namespace

Result<int> RunChatLoop(Engine& engine, const AnswerOptions& options, Console& console) {
  Conversation conversation(engine, options, console);
  LineReader reader;
  console.Note("/exit or Ctrl-D ends the conversation, Ctrl-C stops an answer");
  std::string line;
  for (;;) {
    console.WriteError(console.Colored("> ", "1"));
    const LineReader::Event event = reader.Read(line);
    if (Terminated() || event == LineReader::Event::kEnd || line == "/exit") {
      console.WriteError("\n");
      return 0;
    }
    ClearInterrupt();
    if (event == LineReader::Event::kInterrupted) {
      console.WriteError("\n");
      continue;
    }
    if (line.empty()) continue;
    const Status said = conversation.Say(line);
    ClearInterrupt();
    if (said) continue;
    if (!IsSurvivable(said.error())) return tl::unexpected(said.error());
    console.Fail(said.error());
  }
}

}  // namespace rullama::cli
