// Plans are compiled for a few sizes of a step and replayed for ever; a step runs on the smallest
// that holds it. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/passes/row_demand.h"

namespace rullama {

// The largest step a plan is compiled for, and what it computes.
struct Bucket {
  int64_t max_t = 1;
  int64_t max_r = 1;
  DemandMode demand = DemandMode::kAsAsked;

  friend bool operator==(const Bucket&, const Bucket&) = default;
};

// Numbers of rows worth a plan of their own, ascending: one row (decoding one sequence), a few
// (several sequences, or the end of a prompt), a whole chunk of a prompt.
std::vector<int64_t> DefaultBuckets(int64_t prefill_chunk);

// The smallest of `buckets` (ascending) that holds `rows` rows. Error passes.bucket if none does or
// rows < 1.
Result<int64_t> ChooseBucket(std::span<const int64_t> buckets, int64_t rows);

}  // namespace rullama
