// A line of training data in one of the forms that are learnt, whatever the tool that it was
// written for calls them:
//
//   messages     {"messages": [...], "tools": [...]}; ShareGPT's {"conversations": [{"from":
//   "human",
//                "value": "..."}]}; {"prompt": [messages], "completion": [messages]}, of which the
//                completion is learnt
//   completion   {"prompt": "...", "completion": "..."}; Alpaca's {"instruction": "...", "input":
//                "...", "output": "..."}, where the input follows the instruction on a line of its
//                own
//   text         {"text": "..."}
//   tokens       {"ids": [...], "targets": [...]}
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/status.h"

namespace rullama {

// The names of the members of a line. "tools" comes with the messages, under this name.
struct DataKeys {
  std::string messages = "messages";
  std::string prompt = "prompt";
  std::string completion = "completion";
  std::string text = "text";
};

enum class LineKind : uint8_t { kMessages, kPrompt, kText, kTokens };

struct DataForm {
  LineKind kind = LineKind::kText;
  nlohmann::json messages = {};  // as the OpenAI chat API has them
  nlohmann::json tools = {};     // may be null
  bool last_turn_only = false;   // the turns of the assistant before the last one are given
  std::string prompt = {};
  std::string text = {};  // or the completion
};

inline constexpr const char* kIdsKey = "ids";
inline constexpr const char* kTargetsKey = "targets";

// Error data.line (kUsage), without the place of the line: what was found, what was expected, and
// the options that name members.
Result<DataForm> FormOfLine(const nlohmann::json& object, const DataKeys& keys);

}  // namespace rullama
