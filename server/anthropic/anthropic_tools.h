// The tools of a request of Anthropic's Messages API, and which of them are to be called.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "server/body_context.h"
#include "server/field_reader.h"
#include "server/tool_fields.h"

namespace rullama::server {

struct AnthropicTools {
  ToolFields tools;
  // Of each of `tools`: its index in the body, where there may be others whose loading is deferred.
  std::vector<size_t> indices;
};

// `tools` and `tool_choice`.
AnthropicTools ReadAnthropicTools(FieldReader& fields, const BodyContext& context);

// "tools[0].function.parameters" -> "tools[2].input_schema": the place in the body of a part that
// the engine names otherwise. Parts of a conversation have no place of their own: "messages".
std::string AnthropicPlace(const std::vector<size_t>& indices, const std::string& place);

}  // namespace rullama::server
