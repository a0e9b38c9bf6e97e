#include "backends/cpu/plan.h"

#include <rullama/sdk/slots.h>
#include <rullama/sdk/training.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

constexpr size_t kCacheLine = 64;
// Pieces of a node per worker: enough to balance a core that is slowed down by other processes, few
// enough that a worker streams long runs of a weight.
constexpr int64_t kPiecesPerWorker = 4;

// Converts the rows of a float value to what products with weights of one type read.
class ActivationNode final : public Node {
 public:
  ActivationNode(const CompileContext& context, const View& x, DType weight, RowShare share,
                 std::byte* out)
      : kernels_(context.kernels),
        weight_(weight),
        bits_(BitsFor(weight, context.activation_bits)),
        x_(x),
        share_(share),
        out_(out) {}
  [[nodiscard]] int64_t Items(const Step& step) const override {
    return FormatAt(step) == ActivationFormat::kFloat32 ? 0 : x_.Rows(step);
  }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const auto k = static_cast<size_t>(x_.RowElements(step));
    const ActivationFormat format = FormatAt(step);
    const size_t bytes = ActivationRowBytes(format, k, bits_);
    for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) {
      MakeActivationRow(kernels_, format, x_.as<const float>() + row * k, k, bits_,
                        out_ + row * bytes);
    }
  }

 private:
  [[nodiscard]] ActivationFormat FormatAt(const Step& step) const {
    return FormatFor(kernels_, weight_, share_.Of(x_.Rows(step)));
  }

  const KernelTable& kernels_;
  DType weight_;
  ActivationBits bits_;
  View x_;
  RowShare share_;
  std::byte* out_;
};

// Size of the converted rows of x at the largest step; 0 if products read floats at every step.
uint64_t ConvertedBytes(const CompileContext& context, const View& x, DType weight,
                        RowShare share) {
  const Step max = context.MaxStep();
  const auto k = static_cast<size_t>(x.RowElements(max));
  const auto rows = x.Rows(max);
  // Steps with fewer rows may use another format, whose rows are shorter.
  const ActivationFormat format = FormatFor(context.kernels, weight, share.Of(rows));
  if (format == ActivationFormat::kFloat32) return 0;
  return static_cast<uint64_t>(rows) *
         ActivationRowBytes(format, k, BitsFor(weight, context.activation_bits));
}

// Rounded weights are for gradients, whose rows are dense. Elsewhere most factors of weights as
// they are stored are zero, those of the soft embedding: there rows of W that none needs are left
// out, on which the scales of rounded weights would depend.
KernelTable KernelsOf(const sdk::GraphView& graph, const KernelTable& kernels) {
  KernelTable table = kernels;
  if (sdk::DecodesBatch(graph)) {
    table = WithOneOrderOfSums(table);
  } else if (sdk::ReadsWholeTexts(graph) && !sdk::Learns(graph)) {
    table = WithKernelsOfLargest(table, static_cast<size_t>(graph.max_t()));
  }
  if (table.stored_product_rounds && !sdk::Learns(graph)) {
    table.add_stored_product = nullptr;
    table.stored_product_rounds = false;
  }
  return table;
}

size_t RowLength(const CompileContext& context, const View& x) {
  return static_cast<size_t>(x.RowElements(context.MaxStep()));
}

}  // namespace

CpuBuffer::CpuBuffer(uint64_t bytes)
    : data_(nullptr), size_((bytes + kCacheLine - 1) / kCacheLine * kCacheLine) {
  if (size_ < bytes || size_ + kCacheLine < size_) throw std::bad_alloc();
  // calloc instead of aligned_alloc and memset, so that untouched pages of a large KV cache are not
  // backed by memory. The extra 64 bytes leave room for alignment.
  raw_ = static_cast<std::byte*>(std::calloc(static_cast<size_t>(size_ + kCacheLine), 1));
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
    const auto* weight = sdk::WeightOf<CpuWeight>(value);
    // Weights are read-only; View has one pointer type for weights and buffers.
    view.data = static_cast<std::byte*>(const_cast<void*>(weight->data()));
    view.packed = weight->packed();
  } else {
    view.data = sdk::BufferOf<CpuBuffer>(value)->data() + value.offset;
  }
  return view;
}

View View::RowRange(int64_t first, int64_t most) const {
  View range = *this;
  range.data += static_cast<uint64_t>(first * RowElements({})) * InfoOf(dtype).block_bytes;
  range.first_row = first;
  range.max_rows = most;
  return range;
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

std::byte* Workspace::Acquire(uint64_t bytes) {
  std::byte* data = nullptr;
  uint64_t size = std::max<uint64_t>(bytes, 1);
  if (const auto fits = free_.lower_bound(size); fits != free_.end()) {
    size = fits->first;
    data = fits->second;
    free_.erase(fits);
  } else {
    data = Allocate(size);
  }
  in_use_[data] = size;
  return data;
}

void Workspace::Release(std::byte* data) {
  const auto block = in_use_.find(data);
  free_.emplace(block->second, data);
  in_use_.erase(block);
}

std::byte* Workspace::AllocateForOp(uint64_t bytes) {
  op_blocks_.push_back(Acquire(bytes));
  return op_blocks_.back();
}

void Workspace::EndOp() {
  for (std::byte* data : op_blocks_) Release(data);
  op_blocks_.clear();
}

ProductRows::ProductRows(const CompileContext& context, DType weight, size_t k, RowShare share,
                         const std::byte* floats, const std::byte* converted)
    : kernels_(context.kernels),
      weight_(weight),
      k_(k),
      bits_(BitsFor(weight, context.activation_bits)),
      share_(share),
      floats_(floats),
      converted_(converted) {}

void ProductRows::Describe(int64_t rows, MatMulArgs& args) const {
  args.k = k_;
  args.x = DataAt(rows);
  args.x_stride = StrideAt(rows);
  args.format = FormatAt(rows);
  args.activation_bits = bits_;
}

ProductRows NodeList::Activations(const CompileContext& context, const View& x, DType weight,
                                  RowShare share) {
  const size_t k = RowLength(context, x);
  const uint64_t bytes = ConvertedBytes(context, x, weight, share);
  if (bytes == 0) return {context, weight, k, share, x.data, nullptr};
  const auto same = [&](const ActivationRows& rows) {
    return rows.source == x.data && rows.share == share &&
           ReadSameRows(context.kernels, rows.weight, weight);
  };
  auto found = std::ranges::find_if(activations_, same);
  if (found == activations_.end()) {
    std::byte* rows = context.workspace.Acquire(bytes);
    const auto source_bytes = static_cast<uint64_t>(x.Elements(context.MaxStep())) * sizeof(float);
    found = activations_.insert(found, {x.data, source_bytes, weight, share, rows});
    Add(std::make_unique<ActivationNode>(context, x, weight, share, rows));
  }
  return {context, weight, k, share, x.data, found->rows};
}

ProductRows NodeList::ActivationsOnce(const CompileContext& context, const View& x, DType weight,
                                      RowShare share) {
  std::byte* rows = nullptr;
  if (const uint64_t bytes = ConvertedBytes(context, x, weight, share); bytes > 0) {
    rows = context.workspace.AllocateForOp(bytes);
    Add(std::make_unique<ActivationNode>(context, x, weight, share, rows));
  }
  return {context, weight, RowLength(context, x), share, x.data, rows};
}

NodeList::Table NodeList::TableOf(const CompileContext& context, const View& x,
                                  std::vector<double> parameters, uint64_t bytes) {
  for (const TableRows& table : tables_) {
    if (table.source == x.data && table.parameters == parameters) return {table.rows, false};
  }
  const auto source_bytes =
      static_cast<uint64_t>(x.Elements(context.MaxStep())) * InfoOf(x.dtype).block_bytes;
  std::byte* rows = context.workspace.Acquire(bytes);
  tables_.push_back({x.data, source_bytes, std::move(parameters), rows});
  return {rows, true};
}

void NodeList::Written(const rl_value& value, Workspace& workspace) {
  const View view = View::Of(value);
  DropOverwritten(activations_, view.data, value.bytes, workspace);
  DropOverwritten(tables_, view.data, value.bytes, workspace);
}

CpuPlan::CpuPlan(const sdk::GraphView& graph, const KernelTable& kernels,
                 ActivationBits activation_bits, ThreadPool& pool, WeightArena& arena,
                 sdk::Host host)
    : pool_(pool), host_(host), kernels_(KernelsOf(graph, kernels)) {
  const auto compile = [&](const OpRow& row, const rl_op& op, uint32_t index) {
    list_.set_op_index(index);
    row.build({graph, op, kernels_, activation_bits, pool.workers(), workspace_, list_, arena});
    for (uint32_t result = 0; result < op.result_count; ++result) {
      list_.Written(graph.result(op, result), workspace_);
    }
    workspace_.EndOp();
  };
  OpRows().ForEachOp(graph, compile, kernels);
  const size_t nodes = list_.nodes().size();
  items_.resize(nodes);
  phases_.reserve(nodes);
  if (graph.record_times()) {
    times_ = std::make_unique<OpTimes>(graph.op_count(), nodes, pool.workers());
  }
}

void CpuPlan::MakePhases(const Step& step) {
  const auto& nodes = list_.nodes();
  phases_.clear();
  for (size_t i = 0; i < nodes.size(); ++i) {
    items_[i] = nodes[i]->Items(step);
    nodes[i]->next_item.store(0, std::memory_order_relaxed);
    nodes[i]->items_left.store(items_[i], std::memory_order_relaxed);
    if (items_[i] <= 0) continue;
    ++dispatches_;
    const bool shared = items_[i] > 1;
    if (shared || phases_.empty() || phases_.back().shared) {
      phases_.push_back({i, i + 1, shared});
    } else {
      phases_.back().end = i + 1;
    }
  }
}

void CpuPlan::Execute(int64_t t, int64_t r) {
  const Step step{t, r, pool_.workers()};
  MakePhases(step);
  if (times_) times_->Start();
  // Run inline if no node is shared: waking the pool costs more than the few table rows that a GPU
  // backend leaves to this one.
  if (std::ranges::none_of(phases_, &Phase::shared)) {
    for (const Phase& phase : phases_) RunAlone(phase, step, 0);
  } else {
    pool_.Run(phases_.size(),
              [&](int worker, size_t phase) { return RunPhase(phases_[phase], step, worker); });
  }
  ++executions_;
  for (const auto& node : list_.nodes()) {
    if (node->failed()) {
      const uint32_t op_index = node->op_index;
      if (times_) times_->Start();  // a failed execution has no times
      throw sdk::Error(RL_INVALID_ARGUMENT, node->TakeFailure(), op_index);
    }
  }
}

bool CpuPlan::RunPhase(const Phase& phase, const Step& step, int worker) {
  Node& first = *list_.nodes()[phase.begin];
  if (!phase.shared) {
    if (first.next_item.exchange(1, std::memory_order_relaxed) > 0) return false;
    RunAlone(phase, step, worker);
    return true;
  }
  const uint64_t begin = times_ ? sdk::NowNanoseconds() : 0;
  const int64_t ran = RunItems(phase.begin, step, worker);
  if (ran == 0) return false;
  if (times_) times_->Add(worker, first.op_index, begin, sdk::NowNanoseconds());
  return first.items_left.fetch_sub(ran, std::memory_order_acq_rel) == ran;
}

void CpuPlan::RunAlone(const Phase& phase, const Step& step, int worker) {
  // The clock is read once between two nodes: reading it takes as long as a small op.
  uint64_t begin = times_ ? sdk::NowNanoseconds() : 0;
  for (size_t i = phase.begin; i < phase.end; ++i) {
    if (items_[i] <= 0) continue;
    Node& node = *list_.nodes()[i];
    node.Run(step, worker, 0, 1);
    if (times_) {
      const uint64_t end = sdk::NowNanoseconds();
      times_->Add(worker, node.op_index, begin, end);
      begin = end;
    }
  }
}

int64_t CpuPlan::RunItems(size_t node, const Step& step, int worker) {
  Node& work = *list_.nodes()[node];
  const int64_t items = items_[node];
  const int64_t piece =
      std::max<int64_t>(1, work.EvenItems(step, items) / (step.workers * kPiecesPerWorker));
  for (int64_t ran = 0;;) {
    const int64_t begin = work.next_item.fetch_add(piece, std::memory_order_relaxed);
    if (begin >= items) return ran;
    const int64_t end = std::min(begin + piece, items);
    work.Run(step, worker, begin, end);
    ran += end - begin;
    if (end == items) return ran;
    // A step ends as a whole, since states must not be left half written. The question itself tells
    // the host that a long step is still running: after Ctrl-C it waits for a plugin that asks.
    if (worker == 0) static_cast<void>(host_.Cancelled());
  }
}

std::span<const rl_op_time> CpuPlan::Times() {
  return times_ ? times_->Gather() : std::span<const rl_op_time>();
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
