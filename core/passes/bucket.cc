#include "core/passes/bucket.h"

#include <rullama/sdk/slots.h>

#include <algorithm>

namespace rullama {

std::vector<int64_t> DefaultBuckets(int64_t prefill_chunk) {
  // A plan for a few rows runs one at almost no extra cost. Beyond them, GPUs divide the work by
  // the largest step of a plan (docs/lab/vulkan.md, "Plans for fewer rows").
  constexpr int64_t kGrowth = 4;
  std::vector<int64_t> buckets = {1};
  for (int64_t rows = sdk::kFewRows; rows < prefill_chunk; rows *= kGrowth) buckets.push_back(rows);
  if (prefill_chunk > 1) buckets.push_back(prefill_chunk);
  return buckets;
}

std::vector<int64_t> DecodeBuckets(int64_t most) {
  std::vector<int64_t> buckets;
  for (int64_t rows = 1; rows < most; rows *= 2) buckets.push_back(rows);
  buckets.push_back(most);
  return buckets;
}

Result<int64_t> ChooseBucket(std::span<const int64_t> buckets, int64_t rows) {
  const auto bucket = std::ranges::lower_bound(buckets, rows);
  if (rows < 1 || bucket == buckets.end()) {
    return MakeError(ErrorKind::kRuntime, "passes.bucket",
                     "a step of {} rows; expected 1 to {} (the prefill chunk)", rows,
                     buckets.empty() ? 0 : buckets.back());
  }
  return *bucket;
}

}  // namespace rullama
