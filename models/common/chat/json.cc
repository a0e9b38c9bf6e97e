#include "models/common/chat/json.h"

namespace rullama::chat {
namespace {

using Json = nlohmann::json;

// The deepest nesting of brackets outside strings; for text that is no JSON an upper bound.
int NestingDepth(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') in_string = !in_string;
    if (in_string) {
      if (c == '\\') ++i;
      continue;
    }
    if (c == '{' || c == '[') deepest = std::max(deepest, ++depth);
    if (c == '}' || c == ']') --depth;
  }
  return deepest;
}

bool NestsDeeper(const Json& value, int limit) {
  if (!value.is_structured()) return false;
  if (limit == 0) return true;
  for (const Json& child : value) {
    if (NestsDeeper(child, limit - 1)) return true;
  }
  return false;
}

}  // namespace

Result<Json> ParseJson(std::string_view text) {
  if (const int depth = NestingDepth(text); depth > kMaxJsonDepth) {
    return MakeError(ErrorKind::kUsage, "chat.depth",
                     "JSON nests {} levels deep, at most {} are allowed", depth, kMaxJsonDepth);
  }
  try {
    return Json::parse(text);
  } catch (const Json::exception& e) {
    return MakeError(ErrorKind::kUsage, "chat.json", "invalid JSON: {}", e.what());
  }
}

Status CheckDepth(const Json& value, std::string_view path) {
  if (!NestsDeeper(value, kMaxJsonDepth)) return OkStatus();
  return ErrorAt(path, "chat.depth", "nests more than {} levels deep", kMaxJsonDepth);
}

const Json& Member(const Json& value, std::string_view key) {
  static const Json kNull;
  if (!value.is_object()) return kNull;
  const auto found = value.find(key);
  return found == value.end() ? kNull : *found;
}

bool IsTruthy(const Json& value) {
  switch (value.type()) {
    case Json::value_t::boolean:
      return value.get<bool>();
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
    case Json::value_t::number_float:
      return value.get<double>() != 0;
    case Json::value_t::string:
      return !Text(value).empty();
    case Json::value_t::array:
    case Json::value_t::object:
      return !value.empty();
    case Json::value_t::null:
    case Json::value_t::binary:
    case Json::value_t::discarded:
      break;
  }
  return false;
}

}  // namespace rullama::chat
