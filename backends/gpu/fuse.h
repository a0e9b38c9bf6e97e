// Fusion (docs/adr/0009): a pass from a graph to the nodes that are emitted, one after another. A
// node computes its main op and the ops that were fused into it. The pass looks at kinds of ops,
// readers of values, shapes and the device's parameters; it needs no device and no memory.
//
// A value that the host observes is always computed and stored.
//
// Thread safety: pure functions and plain data.
#pragma once

#include <rullama/sdk/backend.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/gpu/target.h"

namespace rullama::gpu {

// The part of a node that comes before its main op, on the row that it reads. With a residual it
// computes y = (residual + norm(x)) * scale. An optional second norm is then applied to y, or to x
// if there is no residual.
struct Prologue {
  uint32_t x = RL_NO_VALUE;
  uint32_t residual = RL_NO_VALUE;
  uint32_t weight = RL_NO_VALUE;
  uint32_t scale = RL_NO_VALUE;
  uint32_t sum = RL_NO_VALUE;  // the value that stores y for later readers
  float eps = 0;
  bool norm = false;
  uint32_t norm_weight = RL_NO_VALUE;
  float norm_eps = 0;
};

// The transform that attention with one query row applies to the heads of an operand: a norm, then
// a rotation.
struct HeadTransform {
  uint32_t operand = 0;  // position among those of attention: q, k_new or v_new
  uint32_t x = RL_NO_VALUE;
  bool norm = false;
  uint32_t norm_weight = RL_NO_VALUE;
  float norm_eps = 0;
  uint32_t rope = RL_NO_OP;  // the rotation; RL_NO_OP: none
};

// The part of a node that comes after its main op, on the result.
enum class EpilogueKind : uint8_t {
  kNone,
  kCastF16,  // stores the result as f16
  kGate,     // gelu(result) * up
  kSoftmax,  // softmax(result * factor), of the values of a top-k
  kNorm,     // a norm of the result; both are stored, unless HalfCopy::only says otherwise
  kClamp,    // the result within bounds
  kBase,     // base + result, of a low-rank product; with a gate gelu(gate) * that
  kAdapter   // result + (x A^T) B^T; with `up`, gelu(that) * the same of up and its adapter
};
// The matrices of a low-rank adapter.
struct LowRank {
  uint32_t a = RL_NO_VALUE, b = RL_NO_VALUE;
};
struct Epilogue {
  EpilogueKind kind = EpilogueKind::kNone;
  // The value that the epilogue stores, unless HalfCopy::only says otherwise.
  uint32_t result = RL_NO_VALUE;
  uint32_t up = RL_NO_VALUE;           // kGate; kAdapter: the weight of a gated product
  float factor = 1;                    // kSoftmax
  uint32_t norm_weight = RL_NO_VALUE;  // kNorm
  float norm_eps = 0;
  float low = 0, high = 0;                          // kClamp
  uint32_t base = RL_NO_VALUE, gate = RL_NO_VALUE;  // kBase
  LowRank adapter{}, up_adapter{};                  // kAdapter
};

// The f16 rows that a node stores for the products on matrix units that read a value of it.
struct HalfCopy {
  uint32_t value = RL_NO_VALUE;  // RL_NO_VALUE: the node stores none
  bool only = false;  // whether the value itself is not stored, for nothing else reads it
};

struct FusedNode {
  uint32_t op = RL_NO_OP;  // the main op
  std::optional<Prologue> prologue;
  std::vector<HeadTransform> heads;
  Epilogue epilogue;
  HalfCopy half;
  // The other ops that the node computes, in order. A norm may be computed by several nodes.
  std::vector<uint32_t> fused;

  [[nodiscard]] bool StoresHalfRows() const { return half.value != RL_NO_VALUE; }
  // The value that holds the node's first result.
  [[nodiscard]] uint32_t StoredResult(uint32_t result) const {
    const bool replaces =
        epilogue.kind != EpilogueKind::kNone && epilogue.kind != EpilogueKind::kNorm;
    return replaces ? epilogue.result : result;
  }
};

struct FusedGraph {
  std::vector<FusedNode> nodes;  // in an order in which they may run one after another
};

FusedGraph Fuse(const sdk::GraphView& graph, const Target& target);

// The nodes, for people and golden files. Values that a node reads or stores in place of those of
// its main op stand below it:
//
//   %12 "q" = matmul(%9 "norm", %3 "attn_q.weight")
//     prologue: %1 "embd", rms_norm with %2 "attn_norm.weight"
//     fused: rms_norm %9 "norm"
std::string PrintFused(const sdk::GraphView& graph, const FusedGraph& fused);

}  // namespace rullama::gpu
