// The tools that a request offers, and which of them are to be called.
#pragma once

#include <string>
#include <vector>

#include "engine/api/request.h"
#include "server/field_reader.h"

namespace rullama::server {

inline constexpr size_t kMaxTools = 128;

struct ToolFields {
  nlohmann::json tools = nlohmann::json::array();  // in the form of chat completions
  ToolChoice choice = ToolChoice::kAuto;
  std::vector<std::string> allowed;  // names of the tools that may be called; empty: all
  bool parallel = true;              // more than one call
  bool flat = false;                 // the body has them in the form of responses
};

// `tools`, `tool_choice` and `parallel_tool_calls` of chat completions; with `flat` those of
// responses, whose functions have their members next to `type`.
ToolFields ReadTools(FieldReader& fields, bool flat = false);

}  // namespace rullama::server
