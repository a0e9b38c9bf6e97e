#include "cli/bench/device_peaks.h"

#include <fmt/format.h>
#include <rullama/sdk/dtype.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/gguf/quantize.h"
#include "core/ir/builder.h"
#include "core/runtime/session.h"

namespace rullama::cli {
namespace {

constexpr int64_t kProbeColumns = 4096;
constexpr int64_t kProbeRows = 8192;
// The size of all matrices that one step reads: beyond the last caches of most processors.
constexpr int64_t kStreamedBytes = int64_t{400} << 20;
constexpr int64_t kMovedColumns = 65536;
constexpr int64_t kMovedRows = 768;   // read and written: 400 MB
constexpr int kProbeRepetitions = 2;  // they are measured twice, before and after the tests
// Rows of products, doubled until one takes this long.
constexpr int64_t kFewestBatchRows = 32;
constexpr int64_t kMostBatchRows = 2048;
constexpr double kEnoughSeconds = 0.1;

// Matrices of one type, whose rows repeat some values.
class ProbeWeights final : public WeightSource {
 public:
  static Result<ProbeWeights> Create(DType type, int64_t matrices) {
    std::vector<float> values(static_cast<size_t>(kProbeColumns));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(static_cast<int>(i * 37 % 255) - 127) / 127;
    }
    ProbeWeights weights;
    std::vector<std::byte> row(RowBytes(type, values.size()));
    RL_RETURN_IF_ERROR(Quantize(type, values, row));
    weights.matrix_bytes_ = row.size() * static_cast<size_t>(kProbeRows);
    weights.bytes_.resize(weights.matrix_bytes_ * static_cast<size_t>(matrices));
    for (size_t at = 0; at < weights.bytes_.size(); at += row.size()) {
      std::memcpy(weights.bytes_.data() + at, row.data(), row.size());
    }
    return weights;
  }
  static std::string NameOf(int64_t matrix) { return fmt::format("{}", matrix); }
  [[nodiscard]] Result<std::span<const std::byte>> Bytes(const Value& constant) const override {
    const auto matrix = static_cast<size_t>(std::stoll(constant.source));
    return std::span(bytes_).subspan(matrix * matrix_bytes_, matrix_bytes_);
  }

 private:
  size_t matrix_bytes_ = 0;
  std::vector<std::byte> bytes_;
};

// y<i> = x times matrix i.
Result<Graph> ProductsGraph(DType type, int64_t matrices) {
  GraphBuilder builder("products");
  const ValueId x = builder.Input("x", {DType::kF32, {Dim::T(), kProbeColumns}});
  for (int64_t i = 0; i < matrices; ++i) {
    const ValueId weight =
        builder.Constant(ProbeWeights::NameOf(i), {type, {kProbeRows, kProbeColumns}});
    const std::string name = fmt::format("y{}", i);
    builder.Output(name,
                   builder.Add(ops::MatMul{.x = x, .weight = weight, .transpose_weight = 1}, name),
                   RowDemand::kAll);
  }
  return std::move(builder).Finish();
}

// y = 2 x + 1, which moves as many bytes as it reads.
Result<Graph> MoveGraph() {
  GraphBuilder builder("move");
  const ValueId x = builder.Input("x", {DType::kF32, {Dim::T(), kMovedColumns}});
  builder.Output("y", builder.Add(ops::Affine{.x = x, .scale = 2, .bias = 1}, "y"),
                 RowDemand::kAll);
  return std::move(builder).Finish();
}

// Runs a graph of one input x in steps of chosen sizes.
class Probe {
 public:
  static Result<std::unique_ptr<Probe>> Create(Device& device, Graph graph,
                                               const WeightSource& weights,
                                               std::vector<int64_t> buckets) {
    std::unique_ptr<Probe> probe(new Probe());
    probe->columns_ = graph.type(graph.Find("x")).last().constant;
    SessionGraph of;
    of.graph = std::move(graph);
    of.buckets = std::move(buckets);
    of.extends_past = false;
    SessionOptions options;
    options.devices = {&device};
    options.policy.fallback = FallbackPolicy::kDeny;
    options.limits.max_t = of.buckets.back();
    options.slots = 1;
    options.observer = &probe->profiler_;
    std::vector<SessionGraph> graphs;
    graphs.push_back(std::move(of));
    RL_ASSIGN_OR_RETURN(probe->session_,
                        Session::Create(std::move(graphs), weights, std::move(options)));
    return probe;
  }

  // The fastest of some steps of `rows` rows; the first, which compiles, does not count.
  Result<OpTotal> Fastest(int64_t rows) {
    const std::vector<float> x(static_cast<size_t>(rows * columns_), 0.5F);
    RL_RETURN_IF_ERROR(session_->SetInput("x", std::as_bytes(std::span(x))));
    const std::vector<int32_t> tokens(static_cast<size_t>(rows));
    const StepRows step = StepRows::Consecutive(tokens, 0, 0, DemandMode::kAllRows);
    OpTotal fastest;
    for (int i = 0; i <= kProbeRepetitions; ++i) {
      RL_RETURN_IF_ERROR(session_->Run(step));
      OpTotal sum;
      for (const ProfiledOp& op : profiler_.Take().ops) sum += op.total;
      if (i == 1 || (i > 1 && sum.seconds < fastest.seconds)) fastest = sum;
    }
    return fastest;
  }

 private:
  Probe() = default;
  int64_t columns_ = 0;
  OpProfiler profiler_;
  std::unique_ptr<Session> session_;
};

Result<bool> Multiplies(Device& device, DType type) {
  RL_ASSIGN_OR_RETURN(const Graph graph, ProductsGraph(type, 1));
  RL_ASSIGN_OR_RETURN(const std::vector<OpSupport> answers, device.QueryOps(graph));
  return std::ranges::all_of(answers, &OpSupport::supported);
}

// Matrices of one row each, as in generating.
Result<double> StreamedByteRate(Device& device, DType type) {
  const auto matrix_bytes = static_cast<int64_t>(
      RowBytes(type, static_cast<size_t>(kProbeColumns)) * static_cast<size_t>(kProbeRows));
  const int64_t matrices = std::max<int64_t>(1, kStreamedBytes / matrix_bytes);
  RL_ASSIGN_OR_RETURN(const ProbeWeights weights, ProbeWeights::Create(type, matrices));
  RL_ASSIGN_OR_RETURN(Graph graph, ProductsGraph(type, matrices));
  RL_ASSIGN_OR_RETURN(const auto probe, Probe::Create(device, std::move(graph), weights, {1}));
  RL_ASSIGN_OR_RETURN(const OpTotal total, probe->Fastest(1));
  return total.byte_rate();
}

Result<double> MovedByteRate(Device& device) {
  RL_ASSIGN_OR_RETURN(Graph graph, MoveGraph());
  RL_ASSIGN_OR_RETURN(const ProbeWeights none, ProbeWeights::Create(DType::kF32, 0));
  RL_ASSIGN_OR_RETURN(const auto probe,
                      Probe::Create(device, std::move(graph), none, {kMovedRows}));
  RL_ASSIGN_OR_RETURN(const OpTotal total, probe->Fastest(kMovedRows));
  return total.byte_rate();
}

Result<double> OperationRate(Device& device, DType type) {
  std::vector<int64_t> sizes;
  for (int64_t rows = kFewestBatchRows; rows <= kMostBatchRows; rows *= 2) sizes.push_back(rows);
  RL_ASSIGN_OR_RETURN(const ProbeWeights weights, ProbeWeights::Create(type, 1));
  RL_ASSIGN_OR_RETURN(Graph graph, ProductsGraph(type, 1));
  RL_ASSIGN_OR_RETURN(const auto probe, Probe::Create(device, std::move(graph), weights, sizes));
  double highest = 0;
  for (const int64_t rows : sizes) {
    RL_ASSIGN_OR_RETURN(const OpTotal total, probe->Fastest(rows));
    highest = std::max(highest, total.operation_rate());
    if (total.seconds > kEnoughSeconds) break;
  }
  return highest;
}

}  // namespace

Result<DevicePeaks> MeasurePeaks(Device& device) {
  DevicePeaks peaks{.device = device.plugin().name()};
  if (!device.RecordsTimes()) return peaks;
  RL_ASSIGN_OR_RETURN(peaks.byte_rate, MovedByteRate(device));
  for (const DType type : {DType::kF16, DType::kQ8_0, DType::kQ4_K}) {
    RL_ASSIGN_OR_RETURN(const bool supported, Multiplies(device, type));
    if (!supported) continue;
    RL_ASSIGN_OR_RETURN(const double bytes, StreamedByteRate(device, type));
    RL_ASSIGN_OR_RETURN(const double operations, OperationRate(device, type));
    peaks.byte_rate = std::max(peaks.byte_rate, bytes);
    peaks.operation_rate = std::max(peaks.operation_rate, operations);
  }
  return peaks;
}

}  // namespace rullama::cli
