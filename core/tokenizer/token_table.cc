#include "core/tokenizer/token_table.h"

#include <array>
#include <atomic>
#include <bit>

#include "core/tokenizer/parallel_ranges.h"

namespace rullama::tokenizer_internal {
namespace {
// Enough look-ups in flight to hide the latency of the last-level cache.
constexpr size_t kBatch = 16;
}  // namespace

void TokenTable::Build(std::span<const std::string_view> tokens) {
  tokens_ = tokens;
  const size_t capacity = std::bit_ceil(tokens.size() * 2);
  slots_ = MakeZeroedArray<uint64_t>(capacity);
  mask_ = capacity - 1;
  ParallelRanges(tokens.size(), [this](size_t begin, size_t end) {
    std::array<uint64_t, kBatch> hashes;
    for (size_t base = begin; base < end; base += kBatch) {
      const size_t count = std::min(kBatch, end - base);
      for (size_t i = 0; i < count; ++i) {
        hashes[i] = HashBytes(tokens_[base + i]);
        Prefetch(hashes[i]);
      }
      for (size_t i = 0; i < count; ++i) Insert(static_cast<TokenId>(base + i), hashes[i]);
    }
  });
}

// Lock-free, and independent of the order in which threads arrive: which slot a token lands in may
// differ from run to run, what Find returns does not.
void TokenTable::Insert(TokenId id, uint64_t hash) {
  const std::string_view text = tokens_[static_cast<size_t>(id)];
  if (text.empty()) return;
  const uint64_t mine = (hash >> 32) << 32 | (static_cast<uint32_t>(id) + 1);
  for (uint64_t at = hash & mask_;;) {
    std::atomic_ref<uint64_t> slot(slots_[at]);
    uint64_t seen = slot.load(std::memory_order_relaxed);
    if (seen == 0) {
      if (slot.compare_exchange_strong(seen, mine, std::memory_order_relaxed)) return;
    }
    const bool same_text =
        (seen >> 32) == (mine >> 32) && tokens_[static_cast<uint32_t>(seen) - 1] == text;
    if (!same_text) {
      at = (at + 1) & mask_;
      continue;
    }
    if (seen <= mine) return;  // equal upper halves: this compares the ids
    if (slot.compare_exchange_strong(seen, mine, std::memory_order_relaxed)) return;
  }
}

}  // namespace rullama::tokenizer_internal
