#include "models/common/chat/json.h"

#include <algorithm>

#include "core/base/json_reader.h"
#include "models/common/chat/letter_case.h"

namespace rullama::chat {
namespace {

using Json = nlohmann::json;

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
  // Models write calls, and a conversation continues although one of them repeats a key.
  auto value = ReadJson(text, {.depth = kMaxJsonDepth, .keys_may_repeat = true});
  if (value) return *std::move(value);
  const std::string why = value.error().ToString();
  if (value.error().kind == JsonFault::Kind::kDepth) {
    return MakeError(ErrorKind::kUsage, "chat.depth", "the text {}", why);
  }
  return MakeError(ErrorKind::kUsage, "chat.json", "the text {}", why);
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

std::vector<NamedValue> SortedMembers(const nlohmann::json& object) {
  std::vector<NamedValue> members;
  members.reserve(object.size());
  for (const auto& [key, value] : object.items()) members.push_back({key, &value});
  // items() yields keys in byte order, which breaks ties.
  std::ranges::stable_sort(members, [](const NamedValue& a, const NamedValue& b) {
    return ToLower(a.key) < ToLower(b.key);
  });
  return members;
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
