#include "core/tokenizer/merge_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "core/tokenizer/parallel_ranges.h"

namespace rullama::tokenizer_internal {
namespace {

// Three look-ups per merge in flight at once, to hide the latency of the last-level cache.
constexpr size_t kMergesAtOnce = 16;
// The longest part of a damaged line that an error message repeats.
constexpr size_t kMaxQuotedBytes = 64;
// Gemma's longest merge is 94 bytes. The limit lets the joined text live on the stack, so that the
// building threads never allocate.
constexpr size_t kMaxMergeBytes = 1024;
// Longer tokens never come of merges of a scored vocabulary, which bounds the time to build it:
// every way to cut a token in two is looked up. Gemma's longest token has 93 bytes.
constexpr size_t kMaxScoredBytes = 256;

// The number of places to cut a token between two bytes.
size_t CountCuts(std::string_view text) {
  return text.empty() || text.size() > kMaxScoredBytes ? 0 : text.size() - 1;
}

// Rank of each token by its score, the highest first; equal scores have equal ranks.
std::vector<uint32_t> RanksOf(std::span<const float> scores) {
  std::vector<std::pair<float, uint32_t>> order;
  order.reserve(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) order.emplace_back(scores[i], i);
  std::ranges::sort(order, std::greater<>());
  std::vector<uint32_t> ranks(scores.size());
  uint32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && order[i].first != order[i - 1].first) ++rank;
    ranks[order[i].second] = rank;
  }
  return ranks;
}

}  // namespace

// The state of one merge while its look-ups are under way.
struct MergeTable::Pending {
  std::string_view left;
  std::string_view right;
  std::string_view joined;
  uint64_t left_hash = 0;
  uint64_t right_hash = 0;
  uint64_t joined_hash = 0;
  std::array<char, kMaxMergeBytes> joined_bytes;
};

// Splits at the first space that leaves a left part (a left part may itself begin with a space).
bool MergeTable::Split(std::string_view line, Pending& merge) {
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

void MergeTable::HashAndPrefetch(Pending& merge, const TokenTable& tokens) {
  merge.left_hash = HashBytes(merge.left);
  merge.right_hash = HashBytes(merge.right);
  merge.joined_hash = HashBytes(merge.joined);
  tokens.Prefetch(merge.left_hash);
  tokens.Prefetch(merge.right_hash);
  tokens.Prefetch(merge.joined_hash);
}

tl::unexpected<Error> MergeTable::BadMerge(std::string_view line, size_t rank,
                                           const TokenTable& tokens) {
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

// The parts of every merge are looked up by all cores; the table is then filled by one, which needs
// no locks and has the result independent of timing.
Status MergeTable::Build(std::span<const std::string_view> merges, const TokenTable& tokens) {
  lines_ = std::make_unique_for_overwrite<Line[]>(merges.size());
  std::mutex mutex;
  size_t first_bad = merges.size();
  ParallelRanges(merges.size(), [&](size_t begin, size_t end) {
    const size_t stopped = Resolve(merges, begin, end, tokens);
    if (stopped == end) return;
    const std::lock_guard lock(mutex);
    first_bad = std::min(first_bad, stopped);
  });
  if (first_bad != merges.size()) {
    if (tokens.duplicates() == 0) return BadMerge(merges[first_bad], first_bad, tokens);
    RL_ASSIGN_OR_RETURN(const auto whole, WithoutLostTexts(merges, tokens));
    return Build(whole, tokens);
  }
  FillSlots(merges.size());
  return OkStatus();
}

// The merges whose parts and results are tokens. Error tokenizer.merge for one that is damaged, or
// if more texts are missing than tokens have the text of others.
Result<std::vector<std::string_view>> MergeTable::WithoutLostTexts(
    std::span<const std::string_view> merges, const TokenTable& tokens) {
  std::set<std::string, std::less<>> lost;
  std::vector<std::string_view> whole;
  whole.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    Pending merge;
    if (!Split(merges[i], merge)) return BadMerge(merges[i], i, tokens);
    bool found = true;
    for (const std::string_view text : {merge.left, merge.right, merge.joined}) {
      if (tokens.Find(text) != kNoToken) continue;
      found = false;
      lost.emplace(text);
    }
    if (lost.size() > tokens.duplicates()) return BadMerge(merges[i], i, tokens);
    if (found) whole.push_back(merges[i]);
  }
  return whole;
}

// Writes lines [begin, end). Returns the first that is not a merge of tokens, or `end`.
size_t MergeTable::Resolve(std::span<const std::string_view> merges, size_t begin, size_t end,
                           const TokenTable& tokens) {
  std::array<Pending, kMergesAtOnce> batch;
  for (size_t base = begin; base < end; base += kMergesAtOnce) {
    const size_t wanted = std::min(kMergesAtOnce, end - base);
    size_t split = 0;
    for (; split < wanted && Split(merges[base + split], batch[split]); ++split) {
      HashAndPrefetch(batch[split], tokens);
    }
    for (size_t i = 0; i < split; ++i) {
      const Pending& merge = batch[i];
      const TokenId left = tokens.FindExpected(merge.left, merge.left_hash);
      const TokenId right = tokens.FindExpected(merge.right, merge.right_hash);
      const TokenId merged = tokens.FindExpected(merge.joined, merge.joined_hash);
      if (left == kNoToken || right == kNoToken || merged == kNoToken) return base + i;
      lines_[base + i] = {left, right, merged};
    }
    if (split != wanted) return base + split;
  }
  return end;
}

// Writes the pairs of tokens that join to the token `merged`, cut between characters, in the order
// of the cuts. Returns how many there are.
size_t MergeTable::FindPairs(std::string_view text, TokenId merged,
                             const std::vector<bool>& is_piece, const TokenTable& tokens,
                             Line* pairs) {
  // Several tokens may have the same text; the lowest id merges.
  if (!is_piece[static_cast<size_t>(merged)] || tokens.Find(text) != merged) return 0;
  const auto find_piece = [&](std::string_view part) {
    const TokenId id = tokens.Find(part);
    return id != kNoToken && is_piece[static_cast<size_t>(id)] ? id : kNoToken;
  };
  size_t count = 0;
  for (size_t cut = 1; cut < text.size(); ++cut) {
    const bool inside_character = (static_cast<uint8_t>(text[cut]) & 0xC0) == 0x80;
    if (inside_character) continue;
    const TokenId left = find_piece(text.substr(0, cut));
    if (left == kNoToken) continue;
    const TokenId right = find_piece(text.substr(cut));
    if (right != kNoToken) pairs[count++] = {left, right, merged};
  }
  return count;
}

// All cores look up the pairs of each token, in a place of its own, as threads must not allocate;
// the gaps between them are then closed.
void MergeTable::BuildFromScores(std::span<const std::string_view> texts,
                                 std::span<const float> scores, const std::vector<bool>& is_piece,
                                 const TokenTable& tokens) {
  std::vector<size_t> first(texts.size() + 1);
  for (size_t i = 0; i < texts.size(); ++i) first[i + 1] = first[i] + CountCuts(texts[i]);
  lines_ = std::make_unique_for_overwrite<Line[]>(first.back());
  std::vector<uint32_t> counts(texts.size());
  ParallelRanges(texts.size(), [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (CountCuts(texts[i]) == 0) continue;
      counts[i] = static_cast<uint32_t>(
          FindPairs(texts[i], static_cast<TokenId>(i), is_piece, tokens, lines_.get() + first[i]));
    }
  });
  size_t count = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    std::memmove(lines_.get() + count, lines_.get() + first[i], counts[i] * sizeof(Line));
    count += counts[i];
  }
  const std::vector<uint32_t> rank_of_token = RanksOf(scores);
  ranks_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    ranks_[i] = rank_of_token[static_cast<size_t>(lines_[i].merged)];
  }
  FillSlots(count);
}

void MergeTable::FillSlots(size_t count) {
  const size_t capacity = std::bit_ceil(count * 2);
  slots_ = MakeZeroedArray<uint32_t>(capacity);
  mask_ = capacity - 1;
  rank_mask_ = std::bit_ceil(static_cast<uint32_t>(count) + 1) - 1;
  for (size_t index = 0; index < count; ++index) {
    if (index + kMergesAtOnce < count) {
      const Line& later = lines_[index + kMergesAtOnce];
      __builtin_prefetch(&slots_[static_cast<size_t>(HashOf(later.left, later.right) & mask_)],
                         /*rw=*/1);
    }
    const Line& line = lines_[index];
    uint32_t& slot = slots_[Locate(line.left, line.right)];
    // The first of several equal pairs stays.
    if (slot == 0) slot = TagOf(HashOf(line.left, line.right)) | (static_cast<uint32_t>(index) + 1);
  }
}

}  // namespace rullama::tokenizer_internal
