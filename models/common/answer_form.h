// The allowed form of an answer, in terms that every family of models understands, and the
// grammar that a family makes of it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/constraint/grammar.h"
#include "core/constraint/json_text.h"

namespace rullama {

enum class ToolUse : uint8_t {
  kAuto,      // text or calls, as the model likes
  kNone,      // no calls
  kRequired,  // calls only
};

// Without a form of the text and without tools an answer may be anything, and needs no grammar.
struct AnswerForm {
  // The form of the text, by one of these; without any of them any text will do.
  const constraint::Json* schema = nullptr;   // the text is JSON that is valid under it
  std::string_view pattern = {};              // a regular expression that matches the whole text
  std::span<const std::string> choices = {};  // the text is one of these
  [[nodiscard]] bool has_text() const {
    return schema != nullptr || !pattern.empty() || !choices.empty();
  }
  // The functions that may be called, as entries of a request's `tools`, with their places there.
  // Calls of one that is not `strict` are held to as much of its schema as can be.
  struct Tool {
    const constraint::Json* json = nullptr;
    std::string path;  // "tools[0]"
  };
  std::vector<Tool> tools = {};
  ToolUse tool_use = ToolUse::kAuto;
  bool parallel_calls = true;  // several calls may follow one another
  bool thinking = false;       // a thought may come first
  bool opens_thought = false;  // as EncodedChat
};

struct AnswerGrammar {
  std::shared_ptr<const constraint::Grammar> grammar;
  // Keywords of the schemas without an effect, which were skipped.
  std::vector<std::string> ignored;
  // Places in the tools that calls are not held to.
  std::vector<std::string> unenforced = {};
};

}  // namespace rullama
