#include "core/passes/memory_plan.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>

#include "core/base/checked_math.h"

namespace rullama {
namespace {

// The lifetime of a value: the first and the last op that need it.
struct Life {
  size_t first = std::numeric_limits<size_t>::max();
  size_t last = 0;

  void Include(size_t op) {
    first = std::min(first, op);
    last = std::max(last, op);
  }
  [[nodiscard]] bool Overlaps(const Life& other) const {
    return first <= other.last && other.first <= last;
  }
};

// Per value in the arena: the value itself or, for the result of a reshape in place, the value
// whose bytes it shares.
std::vector<ValueId> RootsOf(const Graph& graph, const std::vector<bool>& in_arena) {
  std::vector<ValueId> root(graph.values.size());
  std::iota(root.begin(), root.end(), 0U);
  for (const Op& op : graph.ops) {
    if (op.kind != OpKind::kReshape) continue;
    const ValueId x = op.inputs[operands::Reshape::x];
    if (in_arena[x] && in_arena[op.results[0]]) root[op.results[0]] = root[x];
  }
  return root;
}

// Per value: its lifetime. The entry of a root covers all values that share its bytes.
std::vector<Life> LivesOf(const Graph& graph, const std::vector<ValueId>& root) {
  std::vector<Life> lives(graph.values.size());
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for (const ValueId input : graph.ops[i].inputs) {
      if (input != kNoValue) lives[root[input]].Include(i);
    }
    for (const ValueId result : graph.ops[i].results) lives[root[result]].Include(i);
  }
  return lives;
}

struct Block {
  ValueId value = kNoValue;
  uint64_t bytes = 0;
  uint64_t offset = 0;
  Life life;

  [[nodiscard]] uint64_t end() const { return offset + bytes; }
};

// The first offset from `begin` on at which the bytes lie in one buffer.
uint64_t WithinBuffer(uint64_t begin, uint64_t bytes, uint64_t buffer_bytes) {
  const uint64_t in_buffer = begin % buffer_bytes;
  return buffer_bytes - in_buffer >= bytes ? begin : begin - in_buffer + buffer_bytes;
}

// The offset in the smallest sufficient gap between the blocks of `placed` (sorted by offset) that
// are live at the same time.
uint64_t BestGap(const std::vector<Block>& placed, const Block& block, uint64_t buffer_bytes) {
  uint64_t begin = 0;
  std::optional<uint64_t> best;
  uint64_t best_size = std::numeric_limits<uint64_t>::max();
  for (const Block& other : placed) {
    if (!other.life.Overlaps(block.life)) continue;
    if (other.offset > begin) {
      const uint64_t gap = other.offset - begin;
      const uint64_t offset = WithinBuffer(begin, block.bytes, buffer_bytes);
      if (offset + block.bytes <= other.offset && gap < best_size) {
        best = offset;
        best_size = gap;
      }
    }
    begin = std::max(begin, other.end());
  }
  return best.value_or(WithinBuffer(begin, block.bytes, buffer_bytes));
}

tl::unexpected<Error> TooLarge(const TensorType& type, const Extents& extents) {
  return MakeError(ErrorKind::kRuntime, "passes.size",
                   "{} at T = {}, R = {} has no size that fits 64 bits; lower the limits of the "
                   "step or fix the shape",
                   ToString(type), extents.t, extents.r);
}

tl::unexpected<Error> LargerThanBuffer(const Value& value, uint64_t bytes,
                                       const ArenaLimits& limits) {
  return MakeError(ErrorKind::kOutOfMemory, "passes.buffer_size",
                   "'{}' takes {} bytes in the largest step, but the device allows at most {} "
                   "bytes in one buffer; lower the prefill chunk or the batch",
                   value.name, bytes, limits.max_buffer_bytes);
}

std::optional<int64_t> CheckedDim(const Dim& dim, const Extents& extents) {
  const auto t = CheckedMul<int64_t>(dim.t, extents.t);
  const auto r = CheckedMul<int64_t>(dim.r, extents.r);
  if (!t || !r) return std::nullopt;
  const auto sum = CheckedAdd(*t, *r);
  return sum ? CheckedAdd(*sum, dim.constant) : std::nullopt;
}

}  // namespace

Result<uint64_t> CheckedBytes(const TensorType& type, const Extents& extents) {
  const DTypeInfo& info = InfoOf(type.dtype);
  uint64_t elements = 1;
  for (int axis = 0; axis < type.rank; ++axis) {
    const auto dim = CheckedDim(type.dim(axis), extents);
    const auto size = dim ? CheckedCast<uint64_t>(*dim) : std::nullopt;
    const auto product = size ? CheckedMul(elements, *size) : std::nullopt;
    if (!product) return TooLarge(type, extents);
    elements = *product;
  }
  const auto bytes = CheckedMul<uint64_t>(elements / info.block_elements, info.block_bytes);
  if (!bytes) return TooLarge(type, extents);
  return *bytes;
}

std::vector<bool> InArena(const Graph& graph) {
  std::vector<bool> in_arena(graph.values.size());
  for (size_t id = 0; id < graph.values.size(); ++id) {
    in_arena[id] = graph.values[id].lifetime == Lifetime::kTransient;
  }
  for (const Output& output : graph.outputs) in_arena[output.value] = false;
  return in_arena;
}

Result<MemoryPlan> PlanMemory(const Graph& graph, const ArenaLimits& limits) {
  const uint64_t alignment = limits.alignment;
  if (!std::has_single_bit(alignment)) {
    return MakeError(ErrorKind::kBackend, "passes.alignment",
                     "the device asks for an alignment of {} bytes, expected a power of two",
                     alignment);
  }
  const std::vector<bool> in_arena = InArena(graph);
  const std::vector<ValueId> root = RootsOf(graph, in_arena);
  const std::vector<Life> lives = LivesOf(graph, root);
  MemoryPlan plan;
  plan.offset.assign(graph.values.size(), 0);
  plan.buffer_bytes = limits.max_buffer_bytes / alignment * alignment;
  // Size without sharing. An offset is below twice that and a buffer, as a block leaves less of a
  // buffer empty than it fills of the next, so that the sums below cannot wrap.
  uint64_t total = 0;
  constexpr uint64_t kMaxTotal = uint64_t{1} << 62;
  std::vector<Block> blocks;
  for (ValueId id = 0; id < graph.values.size(); ++id) {
    if (!in_arena[id] || root[id] != id) continue;
    RL_ASSIGN_OR_RETURN(const uint64_t bytes, CheckedBytes(graph.type(id), graph.MaxExtents()));
    const auto padded = CheckedAlignUp(bytes, alignment);
    const auto sum = padded ? CheckedAdd(total, *padded) : std::nullopt;
    if (!sum || *sum > kMaxTotal) return TooLarge(graph.type(id), graph.MaxExtents());
    if (*padded > plan.buffer_bytes) return LargerThanBuffer(graph.value(id), *padded, limits);
    total = *sum;
    if (*padded > 0) blocks.push_back({id, *padded, 0, lives[id]});
  }
  std::ranges::stable_sort(blocks, std::greater<>{}, &Block::bytes);

  std::vector<Block> placed;  // by offset
  for (Block& block : blocks) {
    block.offset = BestGap(placed, block, plan.buffer_bytes);
    plan.offset[block.value] = block.offset;
    plan.arena_bytes = std::max(plan.arena_bytes, block.end());
    placed.insert(std::ranges::upper_bound(placed, block.offset, {}, &Block::offset), block);
  }
  for (ValueId id = 0; id < graph.values.size(); ++id) {
    if (in_arena[id]) plan.offset[id] = plan.offset[root[id]];
  }
  return plan;
}

Status VerifyMemoryPlan(const Graph& graph, const MemoryPlan& plan, uint64_t alignment) {
  constexpr std::string_view kId = "passes.memory_plan";
  if (plan.offset.size() != graph.values.size()) {
    return MakeError(ErrorKind::kRuntime, kId, "plan of {} values for a graph of {}",
                     plan.offset.size(), graph.values.size());
  }
  const std::vector<bool> in_arena = InArena(graph);
  const std::vector<ValueId> root = RootsOf(graph, in_arena);
  const std::vector<Life> lives = LivesOf(graph, root);
  std::vector<Block> seen;
  for (ValueId id = 0; id < graph.values.size(); ++id) {
    if (!in_arena[id]) continue;
    RL_ASSIGN_OR_RETURN(const uint64_t bytes, CheckedBytes(graph.type(id), graph.MaxExtents()));
    const Block block = {id, bytes, plan.offset[id], lives[root[id]]};
    const std::string& name = graph.value(id).name;
    if (block.offset % alignment != 0 || !RangeFits(block.offset, bytes, plan.arena_bytes)) {
      return MakeError(ErrorKind::kRuntime, kId,
                       "'{}' at [{}, +{}) is outside the arena of {} bytes or not aligned to {}",
                       name, block.offset, bytes, plan.arena_bytes, alignment);
    }
    if (WithinBuffer(block.offset, bytes, plan.buffer_bytes) != block.offset) {
      return MakeError(ErrorKind::kRuntime, kId,
                       "'{}' at [{}, +{}) crosses the buffers of {} bytes", name, block.offset,
                       bytes, plan.buffer_bytes);
    }
    for (const Block& other : seen) {
      const bool shares = block.offset < other.end() && other.offset < block.end();
      const bool same_bytes = root[id] == root[other.value] && block.offset == other.offset;
      if (!shares || same_bytes || !block.life.Overlaps(other.life)) continue;
      return MakeError(
          ErrorKind::kRuntime, kId, "'{}' at [{}, +{}) and '{}' at [{}, +{}) are alive together",
          name, block.offset, bytes, graph.value(other.value).name, other.offset, other.bytes);
    }
    seen.push_back(block);
  }
  return OkStatus();
}

}  // namespace rullama
