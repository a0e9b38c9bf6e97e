#include "models/gemma4/chat/output_parser_call.h"

#include <string>

#include "core/base/json_reader.h"
#include "core/base/utf8.h"
#include "models/common/chat/json.h"
#include "models/gemma4/chat/markers.h"

namespace rullama::gemma4 {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kSpaces = " \t\r\n";

class CallReader {
 public:
  explicit CallReader(std::string_view text) : rest_(text) {}

  std::optional<ParsedCall> Read() {
    SkipSpace();
    if (!Take("call:")) return std::nullopt;
    const size_t brace = rest_.find('{');
    if (brace == std::string_view::npos) return std::nullopt;
    ParsedCall call;
    call.name = Stripped(rest_.substr(0, brace));
    rest_.remove_prefix(brace);
    auto arguments = Value(0);
    SkipSpace();
    if (!arguments || call.name.empty() || !rest_.empty()) return std::nullopt;
    call.arguments = *std::move(arguments);
    return call;
  }

 private:
  static std::string_view Stripped(std::string_view text) {
    const size_t begin = text.find_first_not_of(kSpaces);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
  }
  void SkipSpace() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(kSpaces), rest_.size()));
  }
  bool Take(std::string_view expected) {
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }

  std::optional<Json> Value(int depth) {
    if (depth >= chat::kMaxJsonDepth) return std::nullopt;
    SkipSpace();
    if (rest_.starts_with('{')) return Object(depth);
    if (rest_.starts_with('[')) return List(depth);
    if (rest_.starts_with(kStringDelimiter) || rest_.starts_with('"')) {
      auto text = QuotedText();
      if (!text) return std::nullopt;
      return Json(*std::move(text));
    }
    return Word();
  }

  std::optional<Json> Object(int depth) {
    Take("{");
    Json object = Json::object();
    SkipSpace();
    if (Take("}")) return object;
    for (;;) {
      auto key = Key();
      if (!key) return std::nullopt;
      auto value = Value(depth + 1);
      if (!value) return std::nullopt;
      object[*std::move(key)] = *std::move(value);
      SkipSpace();
      if (Take("}")) return object;
      if (!Take(",")) return std::nullopt;
    }
  }

  std::optional<Json> List(int depth) {
    Take("[");
    Json list = Json::array();
    SkipSpace();
    if (Take("]")) return list;
    for (;;) {
      auto value = Value(depth + 1);
      if (!value) return std::nullopt;
      list.push_back(*std::move(value));
      SkipSpace();
      if (Take("]")) return list;
      if (!Take(",")) return std::nullopt;
    }
  }

  // A key and the colon after it.
  std::optional<std::string> Key() {
    SkipSpace();
    std::optional<std::string> key;
    if (rest_.starts_with(kStringDelimiter) || rest_.starts_with('"')) {
      key = QuotedText();
      SkipSpace();
    } else {
      const size_t colon = rest_.find_first_of(":,{}");
      key = Stripped(rest_.substr(0, colon));
      if (key->empty()) return std::nullopt;
      rest_.remove_prefix(std::min(colon, rest_.size()));
    }
    if (!Take(":")) return std::nullopt;
    return key;
  }

  std::optional<std::string> QuotedText() {
    if (rest_.starts_with('"')) return JsonText();
    Take(kStringDelimiter);
    const size_t end = rest_.find(kStringDelimiter);
    if (end == std::string_view::npos) return std::nullopt;
    std::string text(rest_.substr(0, end));
    rest_.remove_prefix(end + kStringDelimiter.size());
    return text;
  }

  std::optional<std::string> JsonText() {
    size_t end = 1;
    while (end < rest_.size() && rest_[end] != '"') end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) return std::nullopt;
    auto text = Scalar(rest_.substr(0, end + 1));
    rest_.remove_prefix(end + 1);
    if (!text) return std::nullopt;
    return text->get<std::string>();
  }

  // A number, true, false or null.
  std::optional<Json> Word() {
    const std::string_view word = rest_.substr(0, rest_.find_first_of(",}] \t\r\n"));
    rest_.remove_prefix(word.size());
    return Scalar(word);
  }

  static std::optional<Json> Scalar(std::string_view text) {
    auto value = ReadJson(text, {.depth = 0});
    if (!value) return std::nullopt;
    return *std::move(value);
  }

  std::string_view rest_;
};

}  // namespace

std::optional<ParsedCall> ParseToolCall(std::string_view text) {
  if (FindInvalidUtf8(text)) return std::nullopt;
  return CallReader(text).Read();
}

}  // namespace rullama::gemma4
