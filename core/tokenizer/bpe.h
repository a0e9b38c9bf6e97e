// The merge loop of byte-pair encoding: repeatedly joins the adjacent pair with the lowest rank,
// leftmost first among equals, until no pair merges.
#pragma once

#include <stop_token>
#include <vector>

#include "core/tokenizer/merge_table.h"

namespace rullama::tokenizer_internal {

// Merges `ids` in place. Time is O(n log n) in the worst case and O(n) for short words; there is no
// recursion. Returns false, leaving `ids` unspecified, if `stop` was requested.
bool MergeSymbols(const MergeTable& merges, const std::stop_token& stop, std::vector<TokenId>& ids);

}  // namespace rullama::tokenizer_internal
