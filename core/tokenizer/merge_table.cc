#include "core/tokenizer/merge_table.h"

#include <array>
#include <atomic>
#include <bit>
#include <mutex>
#include <string>

#include "core/tokenizer/parallel_ranges.h"

namespace rullama::tokenizer_internal {
namespace {

// Three look-ups per merge in flight at once, to hide the latency of the last-level cache.
constexpr size_t kBatch = 16;
// How much of a damaged line an error message repeats.
constexpr size_t kMaxQuotedBytes = 64;
// Gemma's longest merge is 94 bytes. The limit lets the joined text live on the stack, so that the
// building threads never allocate.
constexpr size_t kMaxMergeBytes = 1024;

struct Pending {
  std::string_view left;
  std::string_view right;
  std::array<char, kMaxMergeBytes> joined_bytes;
  std::string_view joined;
  uint64_t left_hash = 0;
  uint64_t right_hash = 0;
  uint64_t joined_hash = 0;
};

// Splits at the first space that leaves a left part (a left part may itself begin with a space).
bool Split(std::string_view line, Pending& merge) {
  const size_t space = line.find(' ', 1);
  if (space == std::string_view::npos || space + 1 == line.size()) return false;
  if (line.size() > kMaxMergeBytes) return false;
  merge.left = line.substr(0, space);
  merge.right = line.substr(space + 1);
  char* joined = merge.joined_bytes.data();
  std::memcpy(joined, merge.left.data(), merge.left.size());
  std::memcpy(joined + merge.left.size(), merge.right.data(), merge.right.size());
  merge.joined = {joined, line.size() - 1};
  return true;
}

void HashAndPrefetch(Pending& merge, const TokenTable& tokens) {
  merge.left_hash = HashBytes(merge.left);
  merge.right_hash = HashBytes(merge.right);
  merge.joined_hash = HashBytes(merge.joined);
  tokens.Prefetch(merge.left_hash);
  tokens.Prefetch(merge.right_hash);
  tokens.Prefetch(merge.joined_hash);
}

Status BadMerge(std::string_view line, size_t rank, const TokenTable& tokens) {
  Pending merge;
  std::string why =
      fmt::format("no space between two parts, or longer than {} bytes", kMaxMergeBytes);
  if (Split(line, merge)) {
    const std::string_view culprit = tokens.Find(merge.left) == kNoToken    ? merge.left
                                     : tokens.Find(merge.right) == kNoToken ? merge.right
                                                                            : merge.joined;
    why = fmt::format("'{}' is not a token", culprit);
  }
  return MakeError(ErrorKind::kModelFile, "tokenizer.merge",
                   "merge {} ('{}'): {}; expected two tokens that join to a token", rank,
                   line.substr(0, kMaxQuotedBytes), why);
}

}  // namespace

Status MergeTable::Build(std::span<const std::string_view> merges, const TokenTable& tokens) {
  const size_t capacity = std::bit_ceil(merges.size() * 2);
  slots_ = MakeZeroedArray<Slot>(capacity);
  mask_ = capacity - 1;
  std::mutex mutex;
  size_t first_bad = merges.size();
  ParallelRanges(merges.size(), [&](size_t begin, size_t end) {
    size_t bad = end;
    BuildRange(merges, begin, end, tokens, &bad);
    if (bad == end) return;
    const std::lock_guard lock(mutex);
    first_bad = std::min(first_bad, bad);
  });
  if (first_bad != merges.size()) return BadMerge(merges[first_bad], first_bad, tokens);
  return OkStatus();
}

void MergeTable::BuildRange(std::span<const std::string_view> merges, size_t begin, size_t end,
                            const TokenTable& tokens, size_t* first_bad) {
  std::array<Pending, kBatch> batch;
  for (size_t base = begin; base < end; base += kBatch) {
    const size_t wanted = std::min(kBatch, end - base);
    size_t split = 0;
    for (; split < wanted && Split(merges[base + split], batch[split]); ++split) {
      HashAndPrefetch(batch[split], tokens);
    }
    for (size_t i = 0; i < split; ++i) {
      const Pending& merge = batch[i];
      const TokenId left = tokens.Find(merge.left, merge.left_hash);
      const TokenId right = tokens.Find(merge.right, merge.right_hash);
      const TokenId joined = tokens.Find(merge.joined, merge.joined_hash);
      if (left == kNoToken || right == kNoToken || joined == kNoToken) {
        *first_bad = base + i;
        return;
      }
      Insert(left, right, static_cast<uint32_t>(base + i), joined);
    }
    if (split != wanted) {
      *first_bad = base + split;
      return;
    }
  }
}

// Lock-free. The value of a repeated pair settles at the lowest rank whatever the arrival order.
void MergeTable::Insert(TokenId left, TokenId right, uint32_t rank, TokenId merged) {
  const auto l = static_cast<uint32_t>(left);
  const auto r = static_cast<uint32_t>(right);
  const uint64_t key = KeyOf(l, r);
  const uint64_t value = ~(uint64_t{rank} << 32 | static_cast<uint32_t>(merged));
  uint64_t at = HashPair(l, r) & mask_;
  for (;; at = (at + 1) & mask_) {
    uint64_t seen = 0;
    std::atomic_ref<uint64_t> slot_key(slots_[at].key);
    if (slot_key.compare_exchange_strong(seen, key, std::memory_order_relaxed) || seen == key)
      break;
  }
  std::atomic_ref<uint64_t> slot_value(slots_[at].value);
  uint64_t seen = slot_value.load(std::memory_order_relaxed);
  while (seen < value &&
         !slot_value.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

}  // namespace rullama::tokenizer_internal
