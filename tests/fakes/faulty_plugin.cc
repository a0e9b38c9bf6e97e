// A backend named faulty: the float64 reference, with the results of some ops off by a factor.
// RULLAMA_FAULT says which: "<name of the op's first result>:<factor>[,...]"; without it, it is the
// reference. Each fault that is in a compiled graph is logged as a warning, so that a test sees
// whether a name was there at all. Only results of type f32 can be off.
//
// RULLAMA_FAULTY_READS=N fills everything that is read with this byte, RULLAMA_FAULTY_LAYOUT makes
// each weight need all memory there is, RULLAMA_FAULTY_EXIT calls exit(0) when devices are counted,
// RULLAMA_FAULTY_GPU=N calls the device a GPU with N bytes of memory, and with RULLAMA_FAULTY_LOST
// each execution loses the device. RULLAMA_FAULTY_HANG=F, device_close or one with an rl_error,
// never returns from F; with RULLAMA_FAULTY_ASKS it asks whether to stop, and comes back seven
// seconds after it was told to. RULLAMA_FAULTY_REFUSES=TEXT refuses ops whose first result's name
// begins with it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/reference/reference_backend.h"

namespace {

constexpr std::string_view kName = "faulty";

rl_plugin_v1 table;  // the reference's, with our name and plan_compile
const rl_plugin_v1* reference = nullptr;
const rl_host_v1* host = nullptr;

void LogWarning(const std::string& text) {
  host->log(host->context, RL_LOG_WARNING, {text.data(), text.size()});
}

struct Fault {
  std::string op;
  float factor;
};

std::vector<Fault> ReadFaults() {
  std::vector<Fault> faults;
  const char* variable = std::getenv("RULLAMA_FAULT");
  std::string_view rest = variable == nullptr ? "" : variable;
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    const size_t colon = one.rfind(':');
    if (colon == std::string_view::npos) {
      throw std::invalid_argument(
          fmt::format("RULLAMA_FAULT has '{}', expected <name>:<factor>", one));
    }
    faults.push_back(
        {std::string(one.substr(0, colon)), std::stof(std::string(one.substr(colon + 1)))});
  }
  return faults;
}

template <typename T>
std::vector<T> Elements(const T* first, uint32_t size, uint32_t count) {
  std::vector<T> elements(count);
  for (uint32_t i = 0; i < count; ++i) {
    std::memcpy(&elements[i], reinterpret_cast<const char*>(first) + size_t{size} * i, sizeof(T));
  }
  return elements;
}

// A graph in which an op with a fault writes to a value of its own, and an `affine` op after it
// writes that value times the factor to where the result belongs.
class FaultyGraph {
 public:
  FaultyGraph(const rl_graph& graph, const std::vector<Fault>& faults)
      : graph_(graph), values_(Elements(graph.values, graph.value_size, graph.value_count)) {
    for (const rl_op& op : Elements(graph.ops, graph.op_size, graph.op_count)) {
      ops_.push_back(op);
      for (const Fault& fault : faults) {
        const rl_str name = values_[op.results[0]].name;
        if (std::string_view(name.data, name.size) == fault.op) Spoil(fault);
      }
    }
    graph_.values = values_.data();
    graph_.value_size = sizeof(rl_value);
    graph_.value_count = static_cast<uint32_t>(values_.size());
    graph_.ops = ops_.data();
    graph_.op_size = sizeof(rl_op);
    graph_.op_count = static_cast<uint32_t>(ops_.size());
  }

  [[nodiscard]] const rl_graph& graph() const { return graph_; }

 private:
  struct Extra {
    std::string name;
    std::array<uint32_t, 1> right;  // the value the op writes
    std::array<uint32_t, 1> wrong;  // the value others read
    rl_affine_attrs attrs;
    std::vector<uint32_t> results;
  };

  // The last op gets a fault.
  void Spoil(const Fault& fault) {
    rl_op& op = ops_.back();
    rl_value right = values_[op.results[0]];
    if (right.dtype != RL_DTYPE_F32) {
      throw std::invalid_argument(fmt::format("the result of '{}' is not f32", fault.op));
    }
    Extra& extra = extras_.emplace_back();
    extra.name = fault.op + "/right";
    extra.right = {static_cast<uint32_t>(values_.size())};
    extra.wrong = {op.results[0]};
    extra.attrs = {.struct_size = sizeof(rl_affine_attrs), .scale = fault.factor, .bias = 0};
    extra.results.assign(op.results, op.results + op.result_count);
    extra.results[0] = extra.right[0];
    // The reference keeps transients to itself: this one needs no memory.
    right.name = {extra.name.data(), extra.name.size()};
    right.lifetime = RL_LIFETIME_TRANSIENT;
    right.observed = 0;
    values_.push_back(right);
    op.results = extra.results.data();
    rl_op off{};
    off.kind = RL_OP_affine;
    off.input_count = 1;
    off.inputs = extra.right.data();
    off.result_count = 1;
    off.results = extra.wrong.data();
    off.attrs_size = sizeof(extra.attrs);
    off.attrs = &extra.attrs;
    ops_.push_back(off);
    LogWarning(fmt::format("faulty: {} times {}", fault.op, fault.factor));
  }

  rl_graph graph_;
  std::vector<rl_value> values_;
  std::vector<rl_op> ops_;
  std::deque<Extra> extras_;  // ops point into them
};

// Returns RL_OK at once unless `function` is to hang.
int32_t MayHang(std::string_view function, rl_error* error) {
  const char* variable = std::getenv("RULLAMA_FAULTY_HANG");
  if (variable == nullptr || function != variable) return RL_OK;
  const bool asks = std::getenv("RULLAMA_FAULTY_ASKS") != nullptr;
  LogWarning(fmt::format("faulty: hangs in {}", function));
  constexpr auto kMoment = std::chrono::milliseconds(20);
  constexpr auto kLate = std::chrono::seconds(7);
  for (auto told = std::chrono::milliseconds(0); told < kLate;) {
    std::this_thread::sleep_for(kMoment);
    if (asks && host->cancelled(host->context) != 0) told += kMoment;
  }
  LogWarning("faulty: comes back");
  error->code = RL_CANCELLED;
  error->op_index = RL_NO_OP;
  std::strncpy(error->message, "told to stop", RL_ERROR_TEXT - 1);
  return RL_CANCELLED;
}

int32_t OpenWithFaults(void* context, uint32_t index, const rl_option* options, uint32_t count,
                       rl_device** device, rl_error* error) {
  if (const int32_t code = MayHang("device_open", error); code != RL_OK) return code;
  return reference->device_open(context, index, options, count, device, error);
}

void CloseWithFaults(rl_device* device) {
  rl_error ignored{};
  MayHang("device_close", &ignored);
  reference->device_close(device);
}

int32_t CreateWithFaults(rl_device* device, const rl_weight_desc* desc, rl_weight** weight,
                         rl_error* error) {
  if (const int32_t code = MayHang("weight_create", error); code != RL_OK) return code;
  return reference->weight_create(device, desc, weight, error);
}

int32_t QueryWithFaults(rl_device* device, const rl_graph* graph, rl_op_support* support,
                        rl_error* error) {
  const int32_t code = reference->query_ops(device, graph, support, error);
  const char* refused = std::getenv("RULLAMA_FAULTY_REFUSES");
  if (code != RL_OK || refused == nullptr) return code;
  const auto values = Elements(graph->values, graph->value_size, graph->value_count);
  const auto ops = Elements(graph->ops, graph->op_size, graph->op_count);
  for (size_t i = 0; i < ops.size(); ++i) {
    const rl_str name = values[ops[i].results[0]].name;
    if (!std::string_view(name.data, name.size).starts_with(refused)) continue;
    support[i].supported = 0;
    std::strncpy(support[i].reason, "not today", sizeof(support[i].reason) - 1);
  }
  return code;
}

int32_t ReadWithFaults(rl_device* device, rl_buffer* buffer, uint64_t offset, void* data,
                       uint64_t size, rl_error* error) {
  const int32_t code = reference->buffer_read(device, buffer, offset, data, size, error);
  const char* byte = std::getenv("RULLAMA_FAULTY_READS");
  if (byte != nullptr) std::memset(data, std::atoi(byte), size);
  return code;
}

int32_t LayoutWithFaults(rl_device* device, const rl_weight_desc* desc, rl_weight_layout* layout,
                         rl_error* error) {
  const int32_t code = reference->weight_layout(device, desc, layout, error);
  if (std::getenv("RULLAMA_FAULTY_LAYOUT") != nullptr) {
    layout->in_place = 0;
    layout->bytes = UINT64_MAX;
  }
  return code;
}

int32_t InfoWithFaults(void* context, uint32_t index, rl_device_info* info, rl_error* error) {
  const int32_t code = reference->device_info(context, index, info, error);
  if (const char* bytes = std::getenv("RULLAMA_FAULTY_GPU")) {
    info->type = RL_DEVICE_GPU;
    info->memory_total = info->memory_free = std::strtoull(bytes, nullptr, 10);
  }
  return code;
}

int32_t ExecuteWithFaults(rl_plan* plan, const rl_step* step, rl_error* error) {
  if (const int32_t code = MayHang("plan_execute", error); code != RL_OK) return code;
  if (std::getenv("RULLAMA_FAULTY_LOST") == nullptr) {
    return reference->plan_execute(plan, step, error);
  }
  error->code = RL_DEVICE_LOST;
  error->op_index = RL_NO_OP;
  std::strncpy(error->message, "gone", RL_ERROR_TEXT - 1);
  return RL_DEVICE_LOST;
}

uint32_t CountWithFaults(void* context, rl_str* reason) {
  if (std::getenv("RULLAMA_FAULTY_EXIT") != nullptr) std::exit(0);
  return reference->device_count(context, reason);
}

int32_t CompileWithFaults(rl_device* device, const rl_graph* graph, rl_plan** plan,
                          rl_error* error) noexcept {
  if (const int32_t code = MayHang("plan_compile", error); code != RL_OK) return code;
  try {
    const FaultyGraph faulty(*graph, ReadFaults());
    return reference->plan_compile(device, &faulty.graph(), plan, error);
  } catch (const std::exception& exception) {
    error->code = RL_INVALID_ARGUMENT;
    error->op_index = RL_NO_OP;
    std::strncpy(error->message, exception.what(), RL_ERROR_TEXT - 1);
    error->message[RL_ERROR_TEXT - 1] = '\0';
    return RL_INVALID_ARGUMENT;
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int32_t rullama_plugin_query_v1(
    const rl_host_v1* from, const rl_plugin_v1** plugin, rl_error* error) {
  const int32_t code = rullama::ReferencePluginQuery(from, &reference, error);
  if (code != RL_OK) return code;
  host = from;
  table = *reference;
  table.name = {kName.data(), kName.size()};
  table.device_open = OpenWithFaults;
  table.device_close = CloseWithFaults;
  table.weight_create = CreateWithFaults;
  table.query_ops = QueryWithFaults;
  table.plan_compile = CompileWithFaults;
  table.plan_execute = ExecuteWithFaults;
  table.buffer_read = ReadWithFaults;
  table.weight_layout = LayoutWithFaults;
  table.device_count = CountWithFaults;
  table.device_info = InfoWithFaults;
  *plugin = &table;
  return RL_OK;
}
