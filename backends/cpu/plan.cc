#include "backends/cpu/plan.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <new>

namespace rullama::cpu {
namespace {

constexpr size_t kCacheLine = 64;
// Pieces each worker gets of a node: enough to even out a disturbed core, few enough that a worker
// streams long runs of a weight.
constexpr int64_t kPiecesPerWorker = 4;

// Rows of a float value to int8 activations: the values, then (with two planes) what rounding left.
class QuantizeNode final : public Node {
 public:
  QuantizeNode(const CompileContext& context, const View& x, std::byte* out)
      : kernels_(context.kernels), planes_(context.planes), x_(x), out_(out) {
    const auto k = static_cast<size_t>(x.RowElements(context.MaxStep()));
    for (int worker = 0; worker < context.workers && planes_ > 1; ++worker) {
      rest_.push_back(reinterpret_cast<float*>(context.workspace.Borrow(k * sizeof(float))));
    }
  }
  [[nodiscard]] int64_t Items(const Step& step) const override { return x_.Rows(step); }
  void Run(const Step& step, int worker, int64_t begin, int64_t end) override {
    const auto k = static_cast<size_t>(x_.RowElements(step));
    const size_t bytes = QuantizedRowBytes(k);
    for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) {
      const float* x = x_.as<const float>() + row * k;
      std::byte* out = out_ + row * static_cast<size_t>(planes_) * bytes;
      kernels_.quantize_row(x, k, out);
      if (planes_ == 1) continue;
      float* rest = rest_[static_cast<size_t>(worker)];
      Subtract(x, out, k, rest);
      kernels_.quantize_row(rest, k, out + bytes);
    }
  }

 private:
  // rest = x - the values of a quantised row (layout: kernels.h).
  static void Subtract(const float* x, const std::byte* row, size_t k, float* rest) {
    const auto* codes = reinterpret_cast<const int8_t*>(row);
    const auto* scales = reinterpret_cast<const float*>(row + PaddedLength(k));
    for (size_t i = 0; i < k; ++i) {
      rest[i] = x[i] - scales[i / kActivationBlock] * static_cast<float>(codes[i]);
    }
  }

  const KernelTable& kernels_;
  int planes_;
  View x_;
  std::byte* out_;
  std::vector<float*> rest_;  // of each worker
};

}  // namespace

CpuBuffer::CpuBuffer(uint64_t bytes)
    : data_(nullptr), size_((bytes + kCacheLine - 1) / kCacheLine * kCacheLine) {
  if (size_ < bytes || size_ + kCacheLine < size_) throw std::bad_alloc();
  // calloc, not aligned_alloc and memset: untouched pages of a large cache stay unbacked. 64 bytes
  // more leave room to align.
  raw_ = static_cast<std::byte*>(std::calloc(size_ + kCacheLine, 1));
  if (raw_ == nullptr) throw std::bad_alloc();
  const auto address = reinterpret_cast<uintptr_t>(raw_);
  data_ = raw_ + ((address + kCacheLine - 1) / kCacheLine * kCacheLine - address);
}

CpuBuffer::~CpuBuffer() { std::free(raw_); }

View View::Of(const rl_value& value) {
  View view;
  view.dtype = static_cast<DType>(value.dtype);
  view.rank = static_cast<int>(value.rank);
  std::copy_n(value.dims, RL_MAX_RANK, view.dims);
  if (value.lifetime == RL_LIFETIME_CONSTANT) {
    // Weights are read only; View has one pointer for both.
    view.data = static_cast<std::byte*>(const_cast<void*>(sdk::WeightOf<CpuWeight>(value)->data()));
  } else {
    view.data = sdk::BufferOf<CpuBuffer>(value)->data() + value.offset;
  }
  return view;
}

void Node::Fail(std::string message) {
  if (claimed_.exchange(true)) return;
  message_ = std::move(message);
  failed_.store(true, std::memory_order_release);
}

std::string Node::TakeFailure() {
  failed_.store(false);
  claimed_.store(false);
  return std::move(message_);
}

std::byte* Workspace::Allocate(uint64_t bytes) {
  blocks_.push_back(std::make_unique<CpuBuffer>(std::max<uint64_t>(bytes, 1)));
  bytes_ += blocks_.back()->size();
  return blocks_.back()->data();
}

std::byte* Workspace::Take(uint64_t bytes) {
  std::byte* data = nullptr;
  uint64_t size = std::max<uint64_t>(bytes, 1);
  if (const auto fits = free_.lower_bound(size); fits != free_.end()) {
    size = fits->first;
    data = fits->second;
    free_.erase(fits);
  } else {
    data = Allocate(size);
  }
  taken_[data] = size;
  return data;
}

void Workspace::GiveBack(std::byte* data) {
  const auto taken = taken_.find(data);
  free_.emplace(taken->second, data);
  taken_.erase(taken);
}

std::byte* Workspace::Borrow(uint64_t bytes) {
  borrowed_.push_back(Take(bytes));
  return borrowed_.back();
}

void Workspace::EndOp() {
  for (std::byte* data : borrowed_) GiveBack(data);
  borrowed_.clear();
}

namespace {

uint64_t QuantizedBytes(const CompileContext& context, const View& x) {
  const Step max = context.MaxStep();
  return static_cast<uint64_t>(x.Rows(max)) * static_cast<uint64_t>(context.planes) *
         QuantizedRowBytes(static_cast<size_t>(x.RowElements(max)));
}

}  // namespace

std::byte* NodeList::Quantized(const CompileContext& context, const View& x) {
  if (const auto found = quantized_.find(x.data); found != quantized_.end()) {
    return found->second.codes;
  }
  std::byte* codes = context.workspace.Take(QuantizedBytes(context, x));
  quantized_[x.data] = {codes,
                        static_cast<uint64_t>(x.Elements(context.MaxStep())) * sizeof(float)};
  Add(std::make_unique<QuantizeNode>(context, x, codes));
  return codes;
}

std::byte* NodeList::QuantizedOnce(const CompileContext& context, const View& x) {
  std::byte* codes = context.workspace.Borrow(QuantizedBytes(context, x));
  Add(std::make_unique<QuantizeNode>(context, x, codes));
  return codes;
}

void NodeList::Written(const rl_value& value, Workspace& workspace) {
  const View view = View::Of(value);
  std::erase_if(quantized_, [&](const auto& entry) {
    const std::byte* begin = entry.first;
    const bool stale = begin < view.data + value.bytes && view.data < begin + entry.second.bytes;
    if (stale) workspace.GiveBack(entry.second.codes);
    return stale;
  });
}

CpuPlan::CpuPlan(const sdk::GraphView& graph, const KernelTable& kernels, int planes,
                 ThreadPool& pool)
    : pool_(pool) {
  constexpr std::array kFamilies = {
      CompileStructure, CompilePointwise, CompileReduce,   CompileMatMul, CompileNorm,
      CompileAttention, CompileState,     CompileSampling, CompileCanvas, CompileMoe};
  for (uint32_t i = 0; i < graph.op_count(); ++i) {
    const rl_op& op = graph.op(i);
    list_.set_op_index(i);
    const CompileContext context{graph, op, kernels, planes, pool.workers(), workspace_, list_};
    const bool compiled = std::any_of(kFamilies.begin(), kFamilies.end(),
                                      [&](auto family) { return family(context); });
    if (!compiled) throw sdk::Error(RL_UNSUPPORTED, "op is not supported by the cpu backend", i);
    for (uint32_t result = 0; result < op.result_count; ++result) {
      list_.Written(graph.result(op, result), workspace_);
    }
    workspace_.EndOp();
  }
  items_.resize(list_.nodes().size());
}

void CpuPlan::Execute(int64_t t, int64_t r) {
  const Step step{t, r, pool_.workers()};
  const auto& nodes = list_.nodes();
  for (size_t i = 0; i < nodes.size(); ++i) {
    items_[i] = nodes[i]->Items(step);
    nodes[i]->next_item.store(0, std::memory_order_relaxed);
    dispatches_ += items_[i] > 0 ? 1 : 0;
  }
  // Waking the others takes longer than a few rows of a table, which is what other backends leave
  // here.
  if (std::ranges::all_of(items_, [](int64_t items) { return items <= 1; })) {
    Walk(step, 0);
  } else {
    pool_.Run([&](int worker) { Walk(step, worker); });
  }
  ++executions_;
  for (const auto& node : nodes) {
    if (node->failed()) {
      const uint32_t op_index = node->op_index;
      throw sdk::Error(RL_INVALID_ARGUMENT, node->TakeFailure(), op_index);
    }
  }
}

void CpuPlan::Walk(const Step& step, int worker) {
  const auto& nodes = list_.nodes();
  bool shared = false;  // whether the workers have worked side by side since the last barrier
  bool alone = false;   // whether worker 0 has worked alone since then
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (items_[i] <= 0) continue;
    const bool serial = items_[i] == 1;
    if (shared || (alone && !serial)) {
      pool_.Barrier();
      shared = alone = false;
    }
    if (serial) {
      alone = true;
      if (worker == 0) nodes[i]->Run(step, 0, 0, 1);
      continue;
    }
    shared = true;
    const int64_t piece = std::max<int64_t>(1, items_[i] / (step.workers * kPiecesPerWorker));
    for (;;) {
      const int64_t begin = nodes[i]->next_item.fetch_add(piece, std::memory_order_relaxed);
      if (begin >= items_[i]) break;
      nodes[i]->Run(step, worker, begin, std::min(begin + piece, items_[i]));
    }
  }
}

rl_plan_stats CpuPlan::Stats() const {
  rl_plan_stats stats{};
  stats.executions = executions_;
  stats.compilations = 1;
  stats.allocations = workspace_.allocations();
  stats.recordings = 1;
  stats.dispatches = dispatches_;
  stats.workspace_bytes = workspace_.bytes();
  return stats;
}

}  // namespace rullama::cpu
