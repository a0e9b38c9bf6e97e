#include "backends/cpu/attention_keys.h"

#include <algorithm>

namespace rullama::cpu {
namespace {

// A segment of `count` rows of one head, starting at row `row`, which has position `position`. The
// last two dimensions of keys and values are heads and head dimension.
KvSegment MakeSegment(const View& keys, const View& values, const Step& step, int64_t row,
                      int64_t count, size_t head, int64_t position) {
  const size_t heads = keys.Count(keys.rank - 2, step);
  const size_t dim = keys.Count(keys.rank - 1, step);
  const size_t at = static_cast<size_t>(row) * heads + head;
  const auto key_bytes = static_cast<size_t>(RowBytes(keys.dtype, dim)),
             value_bytes = static_cast<size_t>(RowBytes(values.dtype, dim));
  return {.keys = keys.data + at * key_bytes,
          .values = values.data + at * value_bytes,
          .key_stride = heads * key_bytes,
          .value_stride = heads * value_bytes,
          .count = static_cast<size_t>(count),
          .first_position = position,
          .key_type = keys.dtype,
          .value_type = values.dtype};
}

}  // namespace

void AddStateSegments(const KeyValue& kv, const Step& step, int64_t slot, int64_t past,
                      int64_t first, size_t head, std::vector<KvSegment>& out) {
  const int64_t capacity = CapacityOf(kv.k_state, step);
  for (int64_t position = std::max({first, past - capacity, int64_t{0}}); position < past;) {
    const int64_t at = position % capacity;
    const int64_t count = std::min(capacity - at, past - position);
    out.push_back(
        MakeSegment(kv.k_state, kv.v_state, step, slot * capacity + at, count, head, position));
    out.back().joins = out.size() > 1;
    position += count;
  }
}

void AddFreshSegments(const KeyValue& kv, const AttentionRows& rows, const Step& step, int64_t slot,
                      size_t head, std::vector<KvSegment>& out) {
  const int64_t count = kv.k_new.Rows(step);
  const auto* pos = rows.kv_pos.as<const int32_t>();
  const auto* slots = rows.kv_slot.as<const int32_t>();
  for (int64_t i = 0; i < count; ++i) {
    if (slots[i] != slot) continue;
    const bool extends =
        i > 0 && slots[i - 1] == slot && (rows.mask == RL_MASK_CANVAS || pos[i] == pos[i - 1] + 1);
    if (extends) {
      ++out.back().count;
    } else {
      out.push_back(MakeSegment(kv.k_new, kv.v_new, step, i, 1, head, pos[i]));
    }
  }
}

void JoinUpTo(int64_t last, std::vector<KvSegment>& segments) {
  std::erase_if(segments, [=](const KvSegment& segment) { return segment.first_position > last; });
  for (size_t i = 0; i < segments.size(); ++i) {
    KvSegment& segment = segments[i];
    const auto most = static_cast<size_t>(last - segment.first_position + 1);
    segment.count = std::min(segment.count, most);
    if (i == 0) continue;
    const KvSegment& before = segments[i - 1];
    segment.joins =
        segment.first_position == before.first_position + static_cast<int64_t>(before.count);
  }
}

void KeepPart(std::vector<KvSegment>& segments, size_t part, size_t parts) {
  size_t total = 0;
  for (const KvSegment& segment : segments) total += segment.count;
  const size_t tiles = (total + kAttentionTile - 1) / kAttentionTile;
  const size_t begin = tiles * part / parts * kAttentionTile;
  const size_t end = std::min(tiles * (part + 1) / parts * kAttentionTile, total);
  size_t at = 0;  // index of the segment's first key
  for (KvSegment& segment : segments) {
    const size_t from = std::clamp(begin, at, at + segment.count) - at;
    const size_t to = std::clamp(end, at + from, at + segment.count) - at;
    at += segment.count;
    segment.keys = static_cast<const std::byte*>(segment.keys) + from * segment.key_stride;
    segment.values = static_cast<const std::byte*>(segment.values) + from * segment.value_stride;
    segment.first_position += static_cast<int64_t>(from);
    segment.count = to - from;
  }
  std::erase_if(segments, [](const KvSegment& segment) { return segment.count == 0; });
}

}  // namespace rullama::cpu
