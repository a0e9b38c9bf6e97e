#include "core/plugin/device.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/plugin/call_status.h"
#include "core/plugin/graph_flatten.h"
#include "core/plugin/records.h"

namespace rullama {
namespace {

// Answers of query_ops start as this, which is neither yes nor no, to see which were given.
constexpr int32_t kUnanswered = -1;

// A layout may be larger than the file's: at most a bit that becomes an f64, and padding.
constexpr uint64_t kLargestGrowth = 64;
constexpr uint64_t kLargestPadding = uint64_t{64} << 20;

rl_weight_desc ToAbi(const WeightDesc& desc) {
  RL_CHECK(desc.type.rank >= 1 && desc.type.rank <= kMaxRank);
  rl_weight_desc out{};
  out.struct_size = sizeof(out);
  out.dtype = static_cast<uint32_t>(desc.type.dtype);
  out.rank = static_cast<uint32_t>(desc.type.rank);
  for (int axis = 0; axis < desc.type.rank; ++axis) {
    RL_CHECK(desc.type.dim(axis).IsConstant());
    out.dims[axis] = desc.type.dim(axis).constant;
  }
  out.name = {desc.name.data(), desc.name.size()};
  out.data = desc.data.data();
  out.bytes = desc.type.BytesAt({});
  out.uses = desc.uses;
  return out;
}

CallSite SiteOf(const Device& device, std::string_view function, const Graph* graph = nullptr) {
  return {device.plugin().name(), device.description().name, function, graph};
}

tl::unexpected<Error> Broken(const CallSite& site, std::string_view what) {
  return tl::unexpected<Error>(ContractError(site, what));
}

// Whether an op stores or reads activations in blocks, or attends to values of another type than
// the keys.
bool HasTypedCaches(const Graph& graph, const Op& op) {
  using In = operands::Attention;
  const auto& operands = InfoOf(op.kind).operands;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const bool is_matrix =
        operands[i].role == OperandRole::kWeight || operands[i].role == OperandRole::kTable;
    if (op.inputs[i] != kNoValue && !is_matrix && IsBlockType(graph.type(op.inputs[i]).dtype)) {
      return true;
    }
  }
  const bool quantises = std::ranges::any_of(
      op.results, [&](ValueId id) { return IsBlockType(graph.type(id).dtype); });
  return quantises || (op.kind == OpKind::kAttention && graph.type(op.inputs[In::k_new]).dtype !=
                                                            graph.type(op.inputs[In::v_new]).dtype);
}

// The minor version of the ABI from which on a plugin understands an op of a kind that it knows.
uint16_t RequiredAbiMinor(const Graph& graph, const Op& op) {
  constexpr uint16_t kOptionalStates = 3;  // attention without old rows
  constexpr uint16_t kLastVisible = 4;     // q_end of attention
  constexpr uint16_t kTypedCaches = 8;     // keys and values of any type
  const auto& operands = InfoOf(op.kind).operands;
  uint16_t minor = RequiredAbiMinor(op.kind, op.attrs);
  if (HasTypedCaches(graph, op)) minor = std::max(minor, kTypedCaches);
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const bool state = operands[i].role == OperandRole::kState;
    if (state && op.inputs[i] == kNoValue) minor = std::max(minor, kOptionalStates);
    const bool row_index = operands[i].role == OperandRole::kIndex &&
                           operands[i].rows == RowRule::kSame && operands[i].optional;
    if (row_index && op.inputs[i] != kNoValue) minor = std::max(minor, kLastVisible);
  }
  return minor;
}

// The graph as a plugin of an older version may look at it: it does not know the kind of an op that
// it would misread, and refuses it.
Graph ForOlderPlugin(Graph graph, int minor) {
  for (Op& op : graph.ops) {
    if (RequiredAbiMinor(graph, op) > minor) op.kind = static_cast<OpKind>(RL_OP_MAX_ENUM);
  }
  return graph;
}

// The records of a plan of `graph`, and the fault of the first invalid one.
struct TimesReader {
  const Graph& graph;
  const std::function<void(const OpTime&)>& sink;
  std::string wrong = {};
};

OpTime::Clock::time_point ToTimePoint(uint64_t nanoseconds) {
  return OpTime::Clock::time_point(std::chrono::nanoseconds(nanoseconds));
}

// Returns the fault of a record, or an empty text.
std::string CheckTime(const rl_op_time& time, size_t ops_of_graph) {
  if (time.ops == nullptr || time.op_count == 0) return "without ops";
  const std::span ops(time.ops, time.op_count);
  if (std::ranges::adjacent_find(ops, std::ranges::greater_equal()) != ops.end()) {
    return "whose ops are not ascending";
  }
  if (ops.back() >= ops_of_graph) {
    return fmt::format("of op {}, where the graph has {}", ops.back(), ops_of_graph);
  }
  if (time.end < time.begin) return "that ends before it begins";
  return {};
}

// Takes the records that a plugin passes to `sink`, a TimesReader.
void TakeTimes(void* sink, const rl_op_time* times, uint64_t time_size, uint64_t count) {
  TimesReader& reader = *static_cast<TimesReader*>(sink);
  ReadRecords(times, time_size, count, reader.wrong, [&](const rl_op_time& time) {
    std::string wrong = CheckTime(time, reader.graph.ops.size());
    if (wrong.empty()) {
      reader.sink({.ops = {time.ops, time.op_count},
                   .worker = time.worker,
                   .begin = ToTimePoint(time.begin),
                   .end = ToTimePoint(time.end)});
    }
    return wrong;
  });
}

// Appends the text that a plugin writes to the std::string `sink`.
void AppendText(void* sink, rl_str text) {
  static_cast<std::string*>(sink)->append(text.data, static_cast<size_t>(text.size));
}

}  // namespace

Device::Device(std::shared_ptr<const Plugin> plugin, rl_device* handle,
               DeviceDescription description)
    : plugin_(std::move(plugin)),
      handle_(handle),
      description_(std::move(description)),
      watch_(plugin_->WatchCalls(plugin_->host_->device_patience())) {}

template <typename Function, typename... Args>
Status Device::Call(const CallSite& site, std::string_view object, Function function,
                    Args... args) {
  const CallWatch::Scope scope(watch_, {site.function, site.graph, object});
  rl_error error = EmptyError();
  const int32_t code = CallPlugin(site.plugin, site.function, function, args..., &error);
  return CallStatus(site, code, error);
}

Device::~Device() {
  const CallWatch::Scope scope(watch_, {.function = "device_close"});
  CallPlugin(plugin_->name(), "device_close", plugin_->table().device_close, handle_);
}

Result<std::vector<OpSupport>> Device::QueryOps(const Graph& graph) {
  const CallSite site = SiteOf(*this, "query_ops", &graph);
  const auto [major, minor] = plugin_->abi_version();
  const bool is_older = minor < RL_ABI_MINOR;
  const Graph reduced = is_older ? ForOlderPlugin(graph, minor) : Graph();
  const FlatGraph flat(is_older ? reduced : graph);
  rl_op_support unanswered{};
  unanswered.supported = kUnanswered;
  std::vector<rl_op_support> answers(graph.ops.size(), unanswered);
  RL_RETURN_IF_ERROR(
      Call(site, {}, plugin_->table().query_ops, handle_, flat.view(), answers.data()));
  std::vector<OpSupport> support;
  support.reserve(answers.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    const rl_op_support& answer = answers[i];
    if (answer.supported != 0 && answer.supported != 1) {
      return Broken(site, fmt::format("answered {} for op {} ({}), expected 0 or 1",
                                      answer.supported, i, NameOf(graph.ops[i].kind)));
    }
    if (const int required = RequiredAbiMinor(graph, graph.ops[i]); minor < required) {
      support.push_back({false, fmt::format("needs a plugin of ABI {}.{}, '{}' has {}.{}", major,
                                            required, plugin_->name(), major, minor)});
      continue;
    }
    const size_t size = ::strnlen(answer.reason, sizeof(answer.reason));
    support.push_back({answer.supported == 1, Printable({answer.reason, size}, size)});
  }
  return support;
}

Result<std::string> Device::DescribeGraph(const Graph& graph) {
  const rl_plugin_v1& table = plugin_->table();
  if (table.graph_describe == nullptr) return std::string();
  const CallSite site = SiteOf(*this, "graph_describe", &graph);
  const FlatGraph flat(graph);
  std::string text;
  RL_RETURN_IF_ERROR(Call(site, {}, table.graph_describe, handle_, flat.view(),
                          static_cast<void*>(&text), AppendText));
  return text;
}

Result<WeightLayout> Device::LayoutWeight(const WeightDesc& desc) {
  const CallSite site = SiteOf(*this, "weight_layout");
  rl_weight_desc abi = ToAbi(desc);
  abi.data = nullptr;  // the question is asked before the file's pages are touched
  rl_weight_layout layout{};
  layout.struct_size = sizeof(layout);
  RL_RETURN_IF_ERROR(Call(site, desc.name, plugin_->table().weight_layout, handle_, &abi, &layout));
  if (layout.in_place > 1 || (layout.in_place == 1 && layout.bytes != 0)) {
    return Broken(site,
                  fmt::format("answered in_place {} with {} bytes for '{}', expected in_place "
                              "0, or 1 with 0 bytes",
                              layout.in_place, layout.bytes, desc.name));
  }
  if (layout.bytes > kLargestPadding &&
      (layout.bytes - kLargestPadding) / kLargestGrowth > abi.bytes) {
    return Broken(site, fmt::format("answered {} bytes for '{}', which has {} in the file",
                                    layout.bytes, desc.name, abi.bytes));
  }
  return WeightLayout{layout.in_place == 1, layout.bytes};
}

Result<DeviceWeight> Device::CreateWeight(const WeightDesc& desc) {
  const CallSite site = SiteOf(*this, "weight_create");
  const rl_weight_desc abi = ToAbi(desc);
  RL_CHECK(desc.data.size() == abi.bytes);
  rl_weight* handle = nullptr;
  if (Status status = Call(site, desc.name, plugin_->table().weight_create, handle_, &abi, &handle);
      !status) {
    return tl::unexpected<Error>(
        std::move(status).error().WithContext(fmt::format("weight '{}'", desc.name)));
  }
  if (handle == nullptr) return Broken(site, "returned RL_OK without a weight");
  return DeviceWeight(&plugin_->table(), handle_, handle);
}

Result<DeviceBuffer> Device::CreateBuffer(uint64_t bytes, rl_buffer_usage usage) {
  RL_CHECK(bytes > 0);
  const CallSite site = SiteOf(*this, "buffer_create");
  if (bytes > description_.max_buffer_bytes) {
    return MakeError(
        ErrorKind::kOutOfMemory, "device.buffer_size",
        "{}: a buffer of {} bytes is needed, but the device allows at most {} bytes in "
        "one; lower the context length or the prefill chunk",
        Describe(site), bytes, description_.max_buffer_bytes);
  }
  rl_buffer* handle = nullptr;
  RL_RETURN_IF_ERROR(Call(site, {}, plugin_->table().buffer_create, handle_, bytes,
                          static_cast<int32_t>(usage), &handle));
  if (handle == nullptr) return Broken(site, "returned RL_OK without a buffer");
  return DeviceBuffer(&plugin_->table(), handle_, handle);
}

Status Device::Write(const DeviceBuffer& buffer, uint64_t offset, std::span<const std::byte> data) {
  RL_CHECK(buffer);
  if (data.empty()) return OkStatus();
  return Call(SiteOf(*this, "buffer_write"), {}, plugin_->table().buffer_write, handle_,
              buffer.get(), offset, data.data(), uint64_t{data.size()});
}

Status Device::Read(const DeviceBuffer& buffer, uint64_t offset, std::span<std::byte> data) {
  RL_CHECK(buffer);
  if (data.empty()) return OkStatus();
  return Call(SiteOf(*this, "buffer_read"), {}, plugin_->table().buffer_read, handle_, buffer.get(),
              offset, data.data(), uint64_t{data.size()});
}

Result<DevicePlan> Device::Compile(const Graph& graph, std::span<const Storage> storage,
                                   RecordTimes record_times) {
  const CallSite site = SiteOf(*this, "plan_compile", &graph);
  const FlatGraph flat(graph, storage, record_times);
  rl_plan* handle = nullptr;
  if (Status status = Call(site, {}, plugin_->table().plan_compile, handle_, flat.view(), &handle);
      !status) {
    return tl::unexpected<Error>(
        std::move(status).error().WithContext(fmt::format("graph '{}'", graph.name)));
  }
  if (handle == nullptr) return Broken(site, "returned RL_OK without a plan");
  return DevicePlan(&plugin_->table(), handle_, handle);
}

Status Device::Execute(const DevicePlan& plan, const Extents& extents, const Graph* graph) {
  RL_CHECK(plan);
  rl_step step{};
  step.struct_size = sizeof(step);
  step.t = extents.t;
  step.r = extents.r;
  return Call(SiteOf(*this, "plan_execute", graph), {}, plugin_->table().plan_execute, plan.get(),
              &step);
}

Result<rl_plan_stats> Device::Stats(const DevicePlan& plan) {
  RL_CHECK(plan);
  rl_plan_stats stats{};
  stats.struct_size = sizeof(stats);
  RL_RETURN_IF_ERROR(
      Call(SiteOf(*this, "plan_stats"), {}, plugin_->table().plan_stats, plan.get(), &stats));
  return stats;
}

bool Device::RecordsTimes() const { return plugin_->table().plan_times != nullptr; }

Status Device::ReadTimes(const DevicePlan& plan, const Graph& graph,
                         const std::function<void(const OpTime&)>& sink) {
  RL_CHECK(plan);
  if (!RecordsTimes()) return OkStatus();
  const CallSite site = SiteOf(*this, "plan_times", &graph);
  TimesReader reader{graph, sink};
  RL_RETURN_IF_ERROR(Call(site, {}, plugin_->table().plan_times, plan.get(),
                          static_cast<void*>(&reader), TakeTimes));
  if (!reader.wrong.empty()) return Broken(site, "passed a record " + reader.wrong);
  return OkStatus();
}

Status Device::Wait() {
  return Call(SiteOf(*this, "device_wait"), {}, plugin_->table().device_wait, handle_);
}

}  // namespace rullama
