#include "core/tokenizer/bpe.h"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>

namespace rullama::tokenizer_internal {
namespace {

// Up to this many symbols a plain scan for the best pair beats any queue.
constexpr size_t kMaxScanned = 48;
// Up to this many symbols one heap beats groups.
constexpr size_t kMaxHeaped = 1 << 15;
// The number of merges between two checks of the stop token (about a millisecond).
constexpr uint32_t kStopInterval = 1 << 14;

void MergeByScanning(const MergeTable& merges, std::vector<TokenId>& ids) {
  std::array<Merge, kMaxScanned> pairs;  // pairs[i] joins symbols i and i + 1
  size_t count = ids.size();
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = merges.Find(ids[i], ids[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == kNoRank) break;
    ids[best] = pairs[best].merged;
    std::copy(ids.begin() + best + 2, ids.begin() + count, ids.begin() + best + 1);
    std::copy(pairs.begin() + best + 1, pairs.begin() + count - 1, pairs.begin() + best);
    --count;
    if (best > 0) pairs[best - 1] = merges.Find(ids[best - 1], ids[best]);
    if (best + 1 < count) pairs[best] = merges.Find(ids[best], ids[best + 1]);
  }
  ids.resize(count);
}

// Positions waiting to merge, lowest rank first and leftmost first among equals: one heap.
class HeapQueue {
 public:
  void Push(uint32_t rank, uint32_t position) { heap_.push(uint64_t{rank} << 32 | position); }

  // False if nothing waits.
  bool Pop(uint32_t& rank, uint32_t& position) {
    if (heap_.empty()) return false;
    rank = static_cast<uint32_t>(heap_.top() >> 32);
    position = static_cast<uint32_t>(heap_.top());
    heap_.pop();
    return true;
  }

 private:
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap_;
};

// The same order, for megabytes without a space, where one heap would thrash the caches: positions
// are grouped by rank. They come almost always in ascending order, so a group is a plain list, and
// stragglers go to a heap. Costs a table over all ranks.
class GroupQueue {
 public:
  void Push(uint32_t rank, uint32_t position) {
    if (rank >= group_of_rank_.size()) group_of_rank_.resize(size_t{rank} + 1, kNoGroup);
    uint32_t& index = group_of_rank_[rank];
    if (index == kNoGroup) {
      index = static_cast<uint32_t>(groups_.size());
      groups_.emplace_back();
    }
    Group& group = groups_[index];
    if (group.empty()) {
      group.list.clear();
      group.next = 0;
      ready_.push_back(rank);
      std::push_heap(ready_.begin(), ready_.end(), std::greater<>());
    }
    if (group.list.empty() || position >= group.list.back()) {
      group.list.push_back(position);
    } else {
      group.stragglers.push(position);
    }
  }

  bool Pop(uint32_t& rank, uint32_t& position) {
    if (ready_.empty()) return false;
    rank = ready_.front();
    Group& group = groups_[group_of_rank_[rank]];
    const bool from_list = group.next < group.list.size();
    if (!group.stragglers.empty() &&
        (!from_list || group.stragglers.top() < group.list[group.next])) {
      position = group.stragglers.top();
      group.stragglers.pop();
    } else {
      position = group.list[group.next++];
    }
    if (group.empty()) {
      std::pop_heap(ready_.begin(), ready_.end(), std::greater<>());
      ready_.pop_back();
    }
    return true;
  }

 private:
  static constexpr uint32_t kNoGroup = kNoRank;
  struct Group {
    std::vector<uint32_t> list;  // ascending; entries before `next` are done
    size_t next = 0;
    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> stragglers;
    [[nodiscard]] bool empty() const { return next == list.size() && stragglers.empty(); }
  };
  std::vector<uint32_t> group_of_rank_;
  std::vector<Group> groups_;
  std::vector<uint32_t> ready_;  // min-heap of the ranks of non-empty groups
};

struct Symbol {
  TokenId id;
  uint32_t previous;
  uint32_t next;
  uint32_t
      rank;  // of the pair (this, next); what the queue says about a position must agree with it
};
constexpr uint32_t kNoSymbol = kNoRank;

template <typename Queue>
class QueueMerger {
 public:
  QueueMerger(const MergeTable& merges, const std::vector<TokenId>& ids)
      : merges_(merges), symbols_(ids.size()) {
    const auto count = static_cast<uint32_t>(ids.size());
    for (uint32_t i = 0; i < count; ++i) {
      symbols_[i] = {ids[i], i == 0 ? kNoSymbol : i - 1, i + 1 == count ? kNoSymbol : i + 1,
                     kNoRank};
    }
    for (uint32_t i = 0; i < count; ++i) UpdatePair(i);
  }

  bool Run(const std::stop_token& stop) {
    uint32_t rank = 0;
    uint32_t at = 0;
    for (uint32_t steps = 1; queue_.Pop(rank, at); ++steps) {
      if (steps % kStopInterval == 0 && stop.stop_requested()) return false;
      if (symbols_[at].rank != rank) continue;  // the pair has changed since it was queued
      Join(at);
    }
    return true;
  }

  void Collect(std::vector<TokenId>& ids) const {
    ids.clear();
    for (uint32_t i = 0; i != kNoSymbol; i = symbols_[i].next) ids.push_back(symbols_[i].id);
  }

 private:
  void UpdatePair(uint32_t at) {
    Symbol& symbol = symbols_[at];
    symbol.rank = kNoRank;
    if (symbol.next == kNoSymbol) return;
    symbol.rank = merges_.Find(symbol.id, symbols_[symbol.next].id).rank;
    if (symbol.rank != kNoRank) queue_.Push(symbol.rank, at);
  }

  void Join(uint32_t at) {
    Symbol& left = symbols_[at];
    Symbol& right = symbols_[left.next];
    left.id = merges_.Find(left.id, right.id).merged;
    left.next = right.next;
    right.rank = kNoRank;  // dead: queued positions of it are stale
    if (left.next != kNoSymbol) symbols_[left.next].previous = at;
    if (left.previous != kNoSymbol) UpdatePair(left.previous);
    UpdatePair(at);
  }

  const MergeTable& merges_;
  std::vector<Symbol> symbols_;
  Queue queue_;
};

template <typename Queue>
bool MergeWithQueue(const MergeTable& merges, const std::stop_token& stop,
                    std::vector<TokenId>& ids) {
  QueueMerger<Queue> merger(merges, ids);
  if (!merger.Run(stop)) return false;
  merger.Collect(ids);
  return true;
}

}  // namespace

bool MergeSymbols(const MergeTable& merges, const std::stop_token& stop,
                  std::vector<TokenId>& ids) {
  if (ids.size() <= kMaxScanned) {
    MergeByScanning(merges, ids);
    return true;
  }
  return ids.size() <= kMaxHeaped ? MergeWithQueue<HeapQueue>(merges, stop, ids)
                                  : MergeWithQueue<GroupQueue>(merges, stop, ids);
}

}  // namespace rullama::tokenizer_internal
