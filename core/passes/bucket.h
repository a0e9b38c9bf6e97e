// Buckets: the step sizes for which plans are compiled. A step runs on the plan of the smallest
// bucket that holds its rows. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/passes/row_demand.h"

namespace rullama {

// The largest step of a plan, and the outputs that it computes.
struct Bucket {
  int64_t max_t = 1;
  int64_t max_r = 1;  // with kPerOutput only
  DemandMode demand = DemandMode::kPerOutput;

  friend bool operator==(const Bucket&, const Bucket&) = default;
};

// The default row counts, ascending: one row (decoding one sequence), then for several sequences
// and prompts 8, 32, 128, ..., and a whole chunk of a prompt.
std::vector<int64_t> DefaultBuckets(int64_t prefill_chunk);

// The row counts of steps that decode up to `most` sequences at once: 1, 2, 4, ..., most.
std::vector<int64_t> DecodeBuckets(int64_t most);

// The smallest of `buckets` (ascending) that holds `rows` rows. Error passes.bucket if none does or
// rows < 1.
Result<int64_t> ChooseBucket(std::span<const int64_t> buckets, int64_t rows);

}  // namespace rullama
