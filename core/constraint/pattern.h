// Regular expressions of JSON Schema's `pattern`: what ECMA-262 defines, without what no finite
// automaton can do.
#pragma once

#include <string_view>

#include "core/base/status.h"
#include "core/constraint/compile_deadline.h"
#include "core/constraint/content_dfa.h"

namespace rullama::constraint {

// The texts in which a pattern is found. Linear in the size of the automata, which are limited.
// Errors (kUsage): schema.invalid (no regular expression, or one that nothing matches),
// schema.unsupported (back-references, look-around, word boundaries, properties of characters),
// schema.too_large (counted repeats or states beyond the limits, no time left).
Result<ContentDfa> CompilePattern(std::string_view pattern, const CompileDeadline& deadline);
// The same of the texts that it matches from their beginning to their end.
Result<ContentDfa> CompileWholePattern(std::string_view pattern, const CompileDeadline& deadline);

}  // namespace rullama::constraint
