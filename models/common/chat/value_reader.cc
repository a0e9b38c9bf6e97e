#include "models/common/chat/value_reader.h"

#include <algorithm>
#include <utility>

#include "models/common/chat/json.h"

namespace rullama::chat {
namespace {

constexpr std::string_view kJsonSpaces = " \t\r\n";

}  // namespace

std::optional<nlohmann::json> ValueReader::Value(int depth) {
  if (depth >= kMaxJsonDepth) return std::nullopt;
  if (Take("{")) return Object(depth);
  if (Take("[")) return List(depth);
  if (!IsQuoted()) return Word();
  auto text = QuotedText();
  if (!text) return std::nullopt;
  return nlohmann::json(*std::move(text));
}

std::string_view ValueReader::WithoutSpace(std::string_view text) {
  const size_t begin = text.find_first_not_of(kJsonSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kJsonSpaces) - begin + 1);
}

void ValueReader::SkipSpace() {
  rest_.remove_prefix(std::min(rest_.find_first_not_of(kJsonSpaces), rest_.size()));
}

bool ValueReader::Take(std::string_view expected) {
  SkipSpace();
  if (!rest_.starts_with(expected)) return false;
  rest_.remove_prefix(expected.size());
  return true;
}

std::optional<std::string> ValueReader::TakeUntil(std::string_view mark) {
  const size_t end = rest_.find(mark);
  if (end == std::string_view::npos) return std::nullopt;
  std::string text(rest_.substr(0, end));
  rest_.remove_prefix(end + mark.size());
  return text;
}

std::optional<nlohmann::json> ValueReader::Object(int depth) {
  nlohmann::json object = nlohmann::json::object();
  if (Take("}")) return object;
  for (;;) {
    auto name = Name();
    if (!name) return std::nullopt;
    auto value = Value(depth + 1);
    if (!value) return std::nullopt;
    if (equal_names_ == EqualNames::kLastStays || !object.contains(*name)) {
      object[*std::move(name)] = *std::move(value);
    }
    if (Take("}")) return object;
    if (!Take(",")) return std::nullopt;
  }
}

std::optional<nlohmann::json> ValueReader::List(int depth) {
  nlohmann::json list = nlohmann::json::array();
  if (Take("]")) return list;
  for (;;) {
    auto value = Value(depth + 1);
    if (!value) return std::nullopt;
    list.push_back(*std::move(value));
    if (Take("]")) return list;
    if (!Take(",")) return std::nullopt;
  }
}

std::optional<std::string> ValueReader::Name() {
  SkipSpace();
  std::optional<std::string> name = IsQuoted() ? QuotedText() : PlainName();
  if (!name || !Take(":")) return std::nullopt;
  return name;
}

std::optional<std::string> ValueReader::PlainName() {
  const size_t end = std::min(rest_.find_first_of(name_ends_), rest_.size());
  const std::string_view name = WithoutSpace(rest_.substr(0, end));
  rest_.remove_prefix(end);
  if (name.empty()) return std::nullopt;
  return std::string(name);
}

}  // namespace rullama::chat
