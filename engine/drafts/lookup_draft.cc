#include "engine/drafts/lookup_draft.h"

#include <algorithm>

namespace rullama {
namespace {

// The number of tokens before `end` that equal the last ones of all, at most kMaxLookup.
int64_t MatchBefore(std::span<const int32_t> tokens, int64_t end) {
  const int64_t size = std::ssize(tokens);
  const int64_t most = std::min(end, kMaxLookup);
  int64_t length = 0;
  while (length < most && tokens[static_cast<size_t>(end - 1 - length)] ==
                              tokens[static_cast<size_t>(size - 1 - length)]) {
    ++length;
  }
  return length;
}

}  // namespace

void LookUpDraft(std::span<const int32_t> tokens, int64_t least, int64_t most,
                 std::vector<int32_t>& draft) {
  const int64_t size = std::ssize(tokens);
  int64_t longest = least - 1;
  int64_t from = size;  // where the tokens that followed begin
  for (int64_t end = size - 1; end > 0 && longest < kMaxLookup; --end) {
    const int64_t length = MatchBefore(tokens, end);
    if (length <= longest) continue;
    longest = length;
    from = end;
  }
  if (from == size) return;
  const int64_t period = size - from;
  for (int64_t i = 0; i < most; ++i) {
    draft.push_back(tokens[static_cast<size_t>(from + i % period)]);
  }
}

}  // namespace rullama
