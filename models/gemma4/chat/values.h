// JSON values and function declarations in the syntax of Gemma 4's tool markers.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "core/base/status.h"
#include "models/gemma4/chat/prompt.h"

namespace rullama::gemma4 {

// Whether a message of this role gives instructions.
inline bool IsSystem(std::string_view role) { return role == "system" || role == "developer"; }

// Calls and responses write keys bare; values inside declarations quote them.
enum class KeyStyle { kBare, kQuoted };

// {k:v,...}, [a,b], <|"|>text<|"|>, true, null, 1.5. Keys are sorted ignoring (ASCII) case.
void WriteValue(const nlohmann::json& value, KeyStyle keys, PromptWriter& out);

// Writes the k:v,... of an object, without braces, keys bare.
void WriteMembers(const nlohmann::json& object, PromptWriter& out);

// declaration:NAME{...} of one entry of `tools` ({"type": "function", "function": {...}}).
// Error chat.tools (kUsage) naming the place, which begins with `path`.
Status WriteDeclaration(const nlohmann::json& tool, std::string_view path, PromptWriter& out);

}  // namespace rullama::gemma4
