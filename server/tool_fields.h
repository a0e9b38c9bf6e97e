// The tools that a request offers, and which of them are to be called.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
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
  // The tools as JSON with members in the order of the body, where it has them in another form.
  std::string ordered = {};
};

// Whether a tool may have this name: at most `most` letters, digits, '_' and '-'.
bool IsToolName(std::string_view name, size_t most);
bool OffersTool(const ToolFields& tools, std::string_view name);

// "tools[0].function.parameters" -> "tools[0].parameters": where the body has it with `flat`.
std::string FlatToolPlace(std::string place);

// `tools`, `tool_choice` and `parallel_tool_calls` of chat completions; with `flat` those of
// responses, whose functions have their members next to `type`.
ToolFields ReadTools(FieldReader& fields, bool flat = false);

}  // namespace rullama::server
