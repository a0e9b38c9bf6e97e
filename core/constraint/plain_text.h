// Rules of texts that stand in an answer as they are, without quotes and escapes.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/constraint/compile_deadline.h"
#include "core/constraint/grammar.h"

namespace rullama::constraint {

// The rule of the texts that a pattern matches from their beginning to their end. Errors of
// CompilePattern().
Result<RuleId> AddPlainPattern(GrammarBuilder& builder, std::string_view pattern,
                               const CompileDeadline& deadline = CompileDeadline());

// The rule of `texts`, which are UTF-8. Error schema.too_large (kUsage): more than 50,000 of them,
// or more than 1 MiB.
Result<RuleId> AddPlainTexts(GrammarBuilder& builder, std::span<const std::string> texts);

}  // namespace rullama::constraint
