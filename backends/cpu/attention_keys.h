// The keys and values that a query row of attention sees: cached rows of its slot, then fresh rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "backends/cpu/kernels/attention_args.h"
#include "backends/cpu/node.h"

namespace rullama::cpu {

// Positions and slots of the query and key rows of a step, and the mask. Without `past` there are
// no cached rows, and without `q_end` a row sees keys up to its own position.
struct AttentionRows {
  View q_pos, q_slot, kv_pos, kv_slot, past, q_end;
  int32_t mask;
  int64_t window;

  // Cached rows of a slot.
  [[nodiscard]] int64_t Past(int64_t slot) const {
    return past.present() ? past.as<const int32_t>()[slot] : 0;
  }

  // The first and last position that a query row sees. With the canvas mask these bound the cached
  // rows of its slot; every fresh row of the slot is visible.
  [[nodiscard]] std::pair<int64_t, int64_t> Visible(int64_t row) const {
    const int64_t pos = q_pos.as<const int32_t>()[row];
    if (mask == RL_MASK_CANVAS) {
      const int64_t old = Past(q_slot.as<const int32_t>()[row]);
      return {window > 0 ? old - window + 1 : 0, std::numeric_limits<int64_t>::max()};
    }
    const int64_t last = q_end.present() ? q_end.as<const int32_t>()[row] : pos;
    return {window > 0 ? pos - window + 1 : 0, last};
  }
};

// Keys and values: cached rows [slots, capacity, heads, dim], unless they are absent, and fresh
// rows [T, heads, dim].
struct KeyValue {
  View k_new, v_new, k_state, v_state;
};

inline int64_t CapacityOf(const View& state, const Step& step) {
  return state.present() ? state.Dim(1, step) : 0;
}

// Appends the cached rows of a slot from position `first` on, oldest first. A ring that wraps gives
// two segments, which join: the sums do not depend on how many rows the ring has.
void AddStateSegments(const KeyValue& kv, const Step& step, int64_t slot, int64_t past,
                      int64_t first, size_t head, std::vector<KvSegment>& out);

// Appends the fresh rows of a slot as segments of consecutive positions. With the canvas mask all
// of them are visible, so that their positions do not matter.
void AddFreshSegments(const KeyValue& kv, const AttentionRows& rows, const Step& step, int64_t slot,
                      size_t head, std::vector<KvSegment>& out);

// Leaves out keys after position `last`, and joins segments without a gap between them.
void JoinUpTo(int64_t last, std::vector<KvSegment>& segments);

// Reduces `segments` to part `part` of `parts` of their keys, cut at multiples of the kernel's
// tile.
void KeepPart(std::vector<KvSegment>& segments, size_t part, size_t parts);

}  // namespace rullama::cpu
