// Emission of attention of many rows on matrix units.
#include <algorithm>
#include <bit>

#include "backends/gpu/attention.h"

namespace rullama::gpu {
namespace {

// These numbers are also in attention_coop.comp.
constexpr uint32_t kCoopThreads = 256;
constexpr int64_t kMatrix = 16;
constexpr int64_t kMaxCoopQueries = 32;   // of a workgroup
constexpr int64_t kQueryElements = 8192;  // of shared memory for their halves
constexpr int64_t kDimStep = 128;         // of eight subgroups with a matrix each
// Rows from which on its tiles have something to do.
constexpr int64_t kMinRows = 16;

int64_t QueriesOf(int64_t dim) {
  const auto fit = static_cast<uint64_t>(std::min(kMaxCoopQueries, kQueryElements / dim));
  return static_cast<int64_t>(std::bit_floor(fit));
}

}  // namespace

bool AttentionOnMatrixUnits(PlanBuilder& plan) {
  const AttentionShape a = AttentionShapeOf(plan);
  if (!plan.tuning().cooperative_matrix || !plan.tuning().special_kernels ||
      a.type != DType::kF16 || a.rows < kMinRows || a.fresh < kMatrix ||
      a.capacity % kMatrix != 0 || a.dim % kDimStep != 0 || a.dim > kQueryElements / kMatrix) {
    return false;
  }
  const int64_t queries = QueriesOf(a.dim), group = std::min(a.HeadsPerKv(), queries);
  if (queries % group != 0 || a.HeadsPerKv() % group != 0) return false;
  const int64_t query_rows = queries / group;
  DispatchBuilder(plan,
                  kernels::AttentionCoop{.threads = kCoopThreads,
                                         .heads = a.heads,
                                         .kv_heads = a.kv_heads,
                                         .group = group,
                                         .queries = queries,
                                         .dim = a.dim,
                                         .slots = a.slots,
                                         .capacity = a.capacity,
                                         .window = a.window,
                                         .canvas = a.canvas,
                                         .scale = a.scale,
                                         .max_fresh = a.fresh},
                  AttentionArgsOf(plan, plan.ResultIndex()))
      .Emit(1, static_cast<uint64_t>(a.heads / group),
            static_cast<uint64_t>((a.rows + query_rows - 1) / query_rows));
  return true;
}

}  // namespace rullama::gpu
