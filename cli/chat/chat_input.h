// Parses the lines typed into a conversation: messages of one or more lines, and commands. Thread
// safety: none. It has no side effects.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rullama::cli {

// Joins lines to messages. A backslash at the end of a line continues the message on the next one;
// a message that begins with """ continues to the next """ at the end of a line. Neither of these
// marks is part of the message.
class MessageAssembler {
 public:
  // `text` is a line, or several that were pasted together. Returns the message once it is whole.
  std::optional<std::string> Add(std::string_view text);
  // Whether a message was begun and is not complete yet.
  [[nodiscard]] bool open() const { return open_; }
  // Drops an incomplete message.
  void Clear();

 private:
  std::string message_;
  bool open_ = false;
  bool quoted_ = false;
};

// Whether there is nothing but white space.
bool IsBlank(std::string_view text);

struct ChatCommand {
  std::string_view name;      // without the slash: "set"
  std::string_view argument;  // the rest of the line, without white space around it
};
// The command in a message, or nothing: one slash, then letters or a question mark as the whole
// first word, of one line. Paths and comments ("/etc/hosts", "// x") are messages, and so is what
// begins with a space.
std::optional<ChatCommand> ParseChatCommand(std::string_view message);

// The first word of `text` and what follows it, both without white space around them.
struct FirstWord {
  std::string_view word;
  std::string_view rest;
};
FirstWord SplitFirstWord(std::string_view text);

}  // namespace rullama::cli
