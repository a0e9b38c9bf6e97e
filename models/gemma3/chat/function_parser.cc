#include "models/gemma3/chat/function_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/json_reader.h"
#include "core/base/utf8.h"
#include "models/common/chat/value_reader.h"
#include "models/gemma3/chat/function_markers.h"
#include "models/gemma3/chat/template.h"

namespace rullama::gemma3 {
namespace {

using Json = nlohmann::json;

constexpr auto kMarkers =
    std::to_array<std::string_view>({kCallBegin, kCallEnd, kResponseBegin, kTurnMarkers.end});
constexpr std::string_view kSpaces = " \t\r\n";

class CallReader final : private chat::ValueReader {
 public:
  explicit CallReader(std::string_view text)
      : ValueReader(text, ":,{}[]\"'", EqualNames::kFirstStays) {}

  std::optional<ParsedCall> Read() {
    if (!Take("call:")) return std::nullopt;
    SkipSpace();
    ParsedCall call;
    call.name = FunctionName();
    if (call.name.empty()) return std::nullopt;
    call.arguments = Json::object();
    SkipSpace();
    if (rest_.empty()) return call;
    if (!rest_.starts_with('{')) return std::nullopt;
    auto arguments = Value(0);
    SkipSpace();
    if (!arguments || !rest_.empty()) return std::nullopt;
    call.arguments = *std::move(arguments);
    return call;
  }

 private:
  std::string FunctionName() {
    if (rest_.empty() || !IsNameStart(rest_.front())) return {};
    const auto* const end = std::ranges::find_if_not(rest_, IsNamePart);
    std::string name(rest_.begin(), end);
    rest_.remove_prefix(name.size());
    return name;
  }

  [[nodiscard]] bool IsQuoted() const override { return rest_.starts_with(kEscape); }

  std::optional<std::string> QuotedText() override {
    rest_.remove_prefix(kEscape.size());
    return TakeUntil(kEscape);
  }

  // A number, true, false or null as in JSON; any other word is a string whose marks the model has
  // forgotten, unless it begins with quotes.
  std::optional<Json> Word() override {
    const std::string_view whole = rest_.substr(0, rest_.find_first_of(",}]"));
    const std::string_view word = WithoutSpace(whole);
    if (word.empty() || word.front() == '"' || word.front() == '\'' ||
        word.find(kEscape) != std::string_view::npos) {
      return std::nullopt;
    }
    rest_.remove_prefix(whole.size());
    if (auto value = ReadJson(word, {.depth = 0})) return *std::move(value);
    return Json(std::string(word));
  }
};

}  // namespace

std::optional<ParsedCall> ParseFunctionCall(std::string_view text) {
  if (FindInvalidUtf8(text)) return std::nullopt;
  return CallReader(text).Read();
}

FunctionParser::FunctionParser() : MarkedOutputParser(kMarkers) {}

std::vector<OutputEvent> FunctionParser::Finish() {
  FlushPartial();
  if (state_ == State::kCall) EndCall({});
  if (!has_calls_) Content({});
  auto events = TakeEvents();
  *this = FunctionParser();
  return events;
}

bool FunctionParser::IsActive(std::string_view marker) const {
  if (state_ == State::kEnded) return false;
  return (state_ == State::kCall) == (marker == kCallEnd);
}

void FunctionParser::Marker(std::string_view marker) {
  if (marker == kCallBegin) {
    state_ = State::kCall;
    call_.clear();
  } else if (marker == kCallEnd) {
    EndCall(marker);
  } else {
    state_ = State::kEnded;
  }
}

void FunctionParser::OrdinaryByte(char byte) {
  if (state_ == State::kEnded) return;
  if (state_ == State::kCall) {
    call_ += byte;
  } else if (kSpaces.find(byte) != std::string_view::npos) {
    if (has_content_) space_ += byte;
  } else {
    Content({&byte, 1});
  }
}

void FunctionParser::Content(std::string_view text) {
  const std::string whole = std::exchange(space_, {}) + std::string(text);
  if (whole.empty()) return;
  has_content_ = true;
  if (events().empty() || events().back().kind != OutputEvent::Kind::kContent ||
      events().back().malformed_call) {
    events().emplace_back();
  }
  events().back().text += whole;
}

void FunctionParser::EndCall(std::string_view marker) {
  state_ = State::kContent;
  if (auto call = ParseFunctionCall(call_)) {
    has_calls_ = true;
    OutputEvent& event = events().emplace_back();
    event.kind = OutputEvent::Kind::kToolCall;
    event.call = *std::move(call);
    return;
  }
  Content({});
  has_content_ = true;
  OutputEvent& event = events().emplace_back();
  event.malformed_call = true;
  event.text = kCallBegin;
  event.text += call_;
  event.text += marker;
}

}  // namespace rullama::gemma3
