#include "models/gemma4/chat/output_parser_call.h"

#include <string>

#include "core/base/json_reader.h"
#include "core/base/utf8.h"
#include "models/common/chat/value_reader.h"
#include "models/gemma4/chat/markers.h"

namespace rullama::gemma4 {
namespace {

using Json = nlohmann::json;

class CallReader final : private chat::ValueReader {
 public:
  explicit CallReader(std::string_view text) : ValueReader(text, ":,{}", EqualNames::kLastStays) {}

  std::optional<ParsedCall> Read() {
    if (!Take("call:")) return std::nullopt;
    const size_t brace = rest_.find('{');
    if (brace == std::string_view::npos) return std::nullopt;
    ParsedCall call;
    call.name = WithoutSpace(rest_.substr(0, brace));
    rest_.remove_prefix(brace);
    auto arguments = Value(0);
    SkipSpace();
    if (!arguments || call.name.empty() || !rest_.empty()) return std::nullopt;
    call.arguments = *std::move(arguments);
    return call;
  }

 private:
  [[nodiscard]] bool IsQuoted() const override {
    return rest_.starts_with(kStringDelimiter) || rest_.starts_with('"');
  }

  std::optional<std::string> QuotedText() override {
    if (rest_.starts_with('"')) return JsonText();
    rest_.remove_prefix(kStringDelimiter.size());
    return TakeUntil(kStringDelimiter);
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
  std::optional<Json> Word() override {
    const std::string_view word = rest_.substr(0, rest_.find_first_of(",}] \t\r\n"));
    rest_.remove_prefix(word.size());
    return Scalar(word);
  }

  static std::optional<Json> Scalar(std::string_view text) {
    auto value = ReadJson(text, {.depth = 0});
    if (!value) return std::nullopt;
    return *std::move(value);
  }
};

}  // namespace

std::optional<ParsedCall> ParseToolCall(std::string_view text) {
  if (FindInvalidUtf8(text)) return std::nullopt;
  return CallReader(text).Read();
}

}  // namespace rullama::gemma4
