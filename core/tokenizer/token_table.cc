#include "core/tokenizer/token_table.h"

#include <algorithm>
#include <array>
#include <bit>

namespace rullama::tokenizer_internal {
namespace {
// Enough look-ups in flight to hide the latency of the last-level cache.
constexpr size_t kTokensAtOnce = 16;
}  // namespace

void TokenTable::Build(std::span<const std::string_view> tokens) {
  tokens_ = tokens;
  const size_t capacity = std::bit_ceil(tokens.size() * 2);
  slots_ = MakeZeroedArray<uint64_t>(capacity);
  mask_ = capacity - 1;
  std::array<uint64_t, kTokensAtOnce> hashes;
  for (size_t base = 0; base < tokens.size(); base += kTokensAtOnce) {
    const size_t count = std::min(kTokensAtOnce, tokens.size() - base);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = HashBytes(tokens_[base + i]);
      Prefetch(hashes[i]);
    }
    for (size_t i = 0; i < count; ++i) Insert(static_cast<TokenId>(base + i), hashes[i]);
  }
}

void TokenTable::Insert(TokenId id, uint64_t hash) {
  const std::string_view text = tokens_[static_cast<size_t>(id)];
  if (text.empty()) return;
  for (auto at = static_cast<size_t>(hash & mask_);; at = static_cast<size_t>((at + 1) & mask_)) {
    const uint64_t slot = slots_[at];
    if (slot == 0) {
      slots_[at] = (hash >> 32) << 32 | (static_cast<uint32_t>(id) + 1);
      return;
    }
    if ((slot >> 32) != (hash >> 32)) continue;
    if (tokens_[static_cast<uint32_t>(slot) - 1] == text) {  // the lower id stays
      ++duplicates_;
      return;
    }
    has_twins_ = true;
  }
}

}  // namespace rullama::tokenizer_internal
