// Foreign JSON: parsing with limits, and errors that name the place in the document.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace rullama::chat {

// Deeper documents are refused: rendering and destroying them recurses.
inline constexpr int kMaxJsonDepth = 64;

// Errors (kUsage): chat.json (not JSON, including invalid UTF-8 and lone surrogates; says where),
// chat.depth.
Result<nlohmann::json> ParseJson(std::string_view text);

// Error chat.depth (kUsage) if `value`, called `path` in the message, nests deeper than
// kMaxJsonDepth.
Status CheckDepth(const nlohmann::json& value, std::string_view path);

// An error of kind kUsage: "<path>: <message>".
template <typename... Args>
tl::unexpected<Error> ErrorAt(std::string_view path, std::string_view id,
                              fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(ErrorKind::kUsage, id, "{}: {}", path,
                   fmt::format(format, std::forward<Args>(args)...));
}

// The member `key` of an object, or null if it is absent or `value` is not an object.
const nlohmann::json& Member(const nlohmann::json& value, std::string_view key);

struct NamedValue {
  std::string_view key;
  const nlohmann::json* value;
};
// The members of an object in the order of their keys, whatever the case of ASCII letters; the
// bytes break ties. Views into `object`.
std::vector<NamedValue> SortedMembers(const nlohmann::json& object);

// Whether Python counts the value as true: not null, false, zero or empty.
bool IsTruthy(const nlohmann::json& value);

// The string of a JSON string. A view into `value`, which must be one.
inline std::string_view Text(const nlohmann::json& value) {
  return value.get_ref<const std::string&>();
}

}  // namespace rullama::chat
