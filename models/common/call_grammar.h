// Answers with calls as grammars: an optional thought, then text of a form, or calls in a family's
// own syntax:
//
//   BEGIN call:NAME{key:value,...} END
//
// Keys are bare, strings stand between quotes, which are a marker, and the rest is as in JSON
// without white space.
// Thread safety: pure functions.
#pragma once

#include <span>
#include <string_view>

#include "core/base/status.h"
#include "models/common/answer_form.h"

namespace rullama {

struct CallSyntax {
  // The markers that the grammars name, in the order of their symbols.
  std::span<const std::string_view> markers;
  std::string_view call_begin;
  std::string_view call_end;
  std::string_view quote;
  std::string_view thought_begin;  // empty: the family has no thoughts
  std::string_view thought_end;
  bool (*is_name)(std::string_view name);  // whether a function of this name can be called
  std::string_view name_form;              // for messages: "letters, digits and _"
};

// Errors (kUsage): schema.invalid, schema.unsupported, schema.too_large, which name the place.
Result<AnswerGrammar> MakeCallGrammar(const CallSyntax& syntax, const AnswerForm& form);

}  // namespace rullama
