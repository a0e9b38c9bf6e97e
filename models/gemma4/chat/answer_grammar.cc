#include "models/gemma4/chat/answer_grammar.h"

#include <algorithm>
#include <array>

#include "models/common/call_grammar.h"
#include "models/gemma4/chat/markers.h"

namespace rullama::gemma4 {
namespace {

constexpr auto kAnswerMarkers = std::to_array<std::string_view>(
    {kToolCallBegin, kToolCallEnd, kStringDelimiter, kChannelBegin, kChannelEnd});

// A name ends at the brace that follows it.
bool IsCallName(std::string_view name) {
  const auto fits = [](char c) {
    const bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    return letter || (c >= '0' && c <= '9') ||
           std::string_view("_-.:/").find(c) != std::string_view::npos;
  };
  return !name.empty() && std::ranges::all_of(name, fits);
}

constexpr CallSyntax kCallSyntax = {.markers = kAnswerMarkers,
                                    .call_begin = kToolCallBegin,
                                    .call_end = kToolCallEnd,
                                    .quote = kStringDelimiter,
                                    .thought_begin = kChannelBegin,
                                    .thought_end = kChannelEnd,
                                    .is_name = IsCallName,
                                    .name_form = "letters, digits, _, -, ., : and /"};

}  // namespace

std::span<const std::string_view> AnswerMarkers() { return kAnswerMarkers; }

Result<AnswerGrammar> MakeAnswerGrammar(const AnswerForm& form) {
  return MakeCallGrammar(kCallSyntax, form);
}

}  // namespace rullama::gemma4
