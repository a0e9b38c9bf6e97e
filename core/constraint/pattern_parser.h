// The syntax of patterns.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace rullama::constraint {

// Characters first to last.
struct CharacterRange {
  uint32_t first = 0;
  uint32_t last = 0;
};

struct PatternNode {
  enum class Kind : uint8_t {
    kSequence,   // children, one after the other; none: the empty text
    kAlternate,  // any of the children
    kSet,        // a character in `ranges`
    kRepeat,     // min to max times the only child
    kBegin,      // the beginning of the text
    kEnd,        // the end of the text
  };
  Kind kind = Kind::kSequence;
  std::vector<PatternNode> children;
  std::vector<CharacterRange> ranges;  // ascending and apart
  uint32_t min = 0;
  uint32_t max = 0;  // kUnlimited: any number
};

// Errors (kUsage): schema.invalid, schema.unsupported.
Result<PatternNode> ParsePattern(std::string_view pattern);

}  // namespace rullama::constraint
