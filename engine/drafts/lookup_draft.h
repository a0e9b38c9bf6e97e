// Drafts by prompt lookup: what followed the last tokens where they stood before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rullama {

// The fewest last tokens that have to stand elsewhere, and the most that are compared.
inline constexpr int64_t kMinLookup = 2;
inline constexpr int64_t kMaxLookup = 16;

// Appends to `draft` up to `most` tokens that followed the longest run of the last tokens that
// stands earlier in `tokens`, the latest of equally long ones. A run that reaches the end repeats
// itself. Appends nothing if there is no run of `least` tokens, kMinLookup or more. Pure function;
// takes time in proportion to the number of tokens.
void LookUpDraft(std::span<const int32_t> tokens, int64_t least, int64_t most,
                 std::vector<int32_t>& draft);

}  // namespace rullama
