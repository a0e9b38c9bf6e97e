#include "cli/chat/chat_input.h"

#include <algorithm>

namespace rullama::cli {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";
constexpr std::string_view kSpace = " \t\r\n";

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::string_view WithoutSpaceAtEnd(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

// An even number of backslashes is text.
bool Continues(std::string_view text) {
  const size_t other = text.find_last_not_of('\\');
  const size_t backslashes = text.size() - (other == std::string_view::npos ? 0 : other + 1);
  return backslashes % 2 == 1;
}

bool IsCommandLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '?';
}

}  // namespace

std::optional<std::string> MessageAssembler::Add(std::string_view text) {
  if (open_) message_ += '\n';
  if (!open_ && text.starts_with(kQuotes)) {
    quoted_ = true;
    text.remove_prefix(kQuotes.size());
  }
  open_ = true;
  if (quoted_) {
    const std::string_view trimmed = WithoutSpaceAtEnd(text);
    if (!trimmed.ends_with(kQuotes)) {
      message_ += text;
      return std::nullopt;
    }
    message_ += trimmed.substr(0, trimmed.size() - kQuotes.size());
    // The lines of the marks hold nothing else, usually.
    if (message_.starts_with('\n')) message_.erase(0, 1);
    if (message_.ends_with('\n')) message_.pop_back();
  } else if (Continues(text)) {
    message_ += text.substr(0, text.size() - 1);
    return std::nullopt;
  } else {
    message_ += text;
  }
  std::string whole = std::move(message_);
  Clear();
  return whole;
}

void MessageAssembler::Clear() {
  message_.clear();
  open_ = false;
  quoted_ = false;
}

bool IsBlank(std::string_view text) { return text.find_first_not_of(kSpace) == text.npos; }

std::optional<ChatCommand> ParseChatCommand(std::string_view message) {
  if (!message.starts_with('/')) return std::nullopt;
  const std::string_view line = WithoutSpaceAtEnd(message.substr(1));
  if (line.find('\n') != line.npos) return std::nullopt;
  const FirstWord split = SplitFirstWord(line);
  const bool is_name = !split.word.empty() && line.starts_with(split.word) &&
                       std::ranges::all_of(split.word, IsCommandLetter);
  if (!is_name) return std::nullopt;
  return ChatCommand{split.word, split.rest};
}

FirstWord SplitFirstWord(std::string_view text) {
  const std::string_view trimmed = Trimmed(text);
  const std::string_view word = trimmed.substr(0, trimmed.find_first_of(kSpace));
  return {word, Trimmed(trimmed.substr(word.size()))};
}

}  // namespace rullama::cli
