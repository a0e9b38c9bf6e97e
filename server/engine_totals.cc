#include "server/engine_totals.h"

#include <algorithm>

namespace rullama::server {
namespace {

void Add(Histogram& sum, const Histogram& from) {
  for (size_t i = 0; i < sum.counts.size(); ++i) sum.counts[i] += from.counts[i];
  sum.sum += from.sum;
}

void Add(StepStats& sum, const StepStats& from) {
  Add(sum.seconds, from.seconds);
  Add(sum.rows, from.rows);
}

}  // namespace

void AddTotals(EngineStats& sum, const EngineStats& stats) {
  sum.prefix_hits += stats.prefix_hits;
  sum.prefix_misses += stats.prefix_misses;
  sum.prefix_evictions += stats.prefix_evictions;
  sum.prefix_oversized += stats.prefix_oversized;
  sum.media_hits += stats.media_hits;
  sum.media_misses += stats.media_misses;
  sum.drafted += stats.drafted;
  sum.drafts_accepted += stats.drafts_accepted;
  for (size_t i = 0; i < stats.drafted_at.size(); ++i) {
    sum.drafted_at[i] += stats.drafted_at[i];
    sum.accepted_at[i] += stats.accepted_at[i];
  }
  sum.constraint_failures += stats.constraint_failures;
  Add(sum.mask_seconds, stats.mask_seconds);
  Add(sum.schema_seconds, stats.schema_seconds);
  Add(sum.snapshot_save, stats.snapshot_save);
  Add(sum.snapshot_restore, stats.snapshot_restore);
  Add(sum.encode_seconds, stats.encode_seconds);
  Add(sum.decode, stats.decode);
  Add(sum.prompt, stats.prompt);
  Add(sum.denoise, stats.denoise);
}

void AddMoment(EngineStats& sum, const EngineStats& stats) {
  sum.slots += stats.slots;
  sum.slots_busy += stats.slots_busy;
  sum.slots_paused += stats.slots_paused;
  sum.waiting += stats.waiting;
  sum.kv_tokens += stats.kv_tokens;
  sum.prefix_bytes += stats.prefix_bytes;
  sum.prefix_entries += stats.prefix_entries;
  sum.media_bytes += stats.media_bytes;
  sum.media_entries += stats.media_entries;
  sum.largest_snapshot = std::max(sum.largest_snapshot, stats.largest_snapshot);
  sum.device_lost = sum.device_lost || stats.device_lost;
}

}  // namespace rullama::server
