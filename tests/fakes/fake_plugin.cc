// A plugin that lies on request. It fills the C tables by hand, without the SDK, and behaves well
// except for what RULLAMA_FAKE says; items are separated by ';' and read at every query:
//
//   major=N  minor=N  struct_size=N   version and size of its table
//   name=TEXT  null_name              its name
//   null=MEMBER                       a function of the table left null
//   null_table                        RL_OK without a table
//   devices=N  reason=TEXT            how many devices, and why none
//   type=N  alignment=N               of its devices; null_device_name
//   stale_errors                      errors filled, but RL_OK returned
//   throw=F  fail=F  silent=F  garbage=F  raw_text=F  null_handle=F  hang=F
//                                     function F (a table member, or "query") throws, fails, fails
//                                     without a text, returns an unknown code, fails with a text
//                                     that is neither terminated nor UTF-8, returns RL_OK and a
//                                     null handle, or sleeps for 1 s
//   crash=F  overflow=F               function F reads from an invalid address, or fills its stack
//   fail_at=F:N                       the N-th call of F fails (1 is the first)
//   meet=F:N                          the calls N and N + 1 of F continue once both were made, by
//                                     different threads; one that waits half a minute fails
//   support=N                         query_ops answers N for every op
//   op_index=N                        of its errors
//   layout=N                          rl_weight_layout.in_place, with 64 bytes
//   huge_layout                       rl_weight_layout.bytes is the largest number
//   exit=F                            function F calls exit(0)
//   wrong_result                      plan_execute computes something else
//
// It runs `copy` of plain types in host memory.
#include <rullama/abi/rullama_abi.h>

#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

struct rl_buffer {
  std::vector<unsigned char> bytes;
};
struct rl_weight {
  std::vector<unsigned char> bytes;
};
struct rl_device {
  int unused;
};
struct rl_plan {
  struct CopyOp {
    const unsigned char* from;
    unsigned char* to;
    uint64_t bytes;
  };
  std::vector<CopyOp> copies;
  uint64_t executions = 0;
};

namespace {

constexpr int32_t kGarbageCode = 4711;
constexpr auto kHang = std::chrono::seconds(1);
constexpr auto kPatience = std::chrono::minutes(5);

// The script in RULLAMA_FAKE, and the number of calls of each function since the last query.
struct Script {
  std::multimap<std::string, std::string> items;
  std::map<std::string, int> calls;
  std::string name = "fake";
  std::string reason;

  bool Has(const std::string& key) const { return items.count(key) > 0; }
  bool Has(const std::string& key, std::string_view value) const {
    for (auto [it, end] = items.equal_range(key); it != end; ++it) {
      if (it->second == value) return true;
    }
    return false;
  }
  long Number(const std::string& key, long otherwise) const {
    const auto it = items.find(key);
    return it == items.end() ? otherwise : std::strtol(it->second.c_str(), nullptr, 10);
  }
};

Script& TheScript() {
  static Script script;
  return script;
}

void ReadScript() {
  Script script;
  const char* variable = std::getenv("RULLAMA_FAKE");
  std::string_view rest = variable == nullptr ? "" : variable;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(';'));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    const size_t equals = item.find('=');
    script.items.emplace(item.substr(0, equals),
                         equals == std::string_view::npos ? "" : item.substr(equals + 1));
  }
  if (const auto it = script.items.find("name"); it != script.items.end()) script.name = it->second;
  if (const auto it = script.items.find("reason"); it != script.items.end()) {
    script.reason = it->second;
  }
  TheScript() = std::move(script);
}

rl_str Str(std::string_view text) { return {text.data(), text.size()}; }

void SetError(rl_error* error, int32_t code, const char* text) {
  error->code = code;
  error->op_index = static_cast<uint32_t>(TheScript().Number("op_index", RL_NO_OP));
  std::strncpy(error->message, text, RL_ERROR_TEXT - 1);
}

std::mutex& CallMutex() {
  static std::mutex mutex;
  return mutex;
}

// The number of this call, from 1.
int CountCall(const std::string& function) {
  const std::lock_guard lock(CallMutex());
  return ++TheScript().calls[function];
}

bool FailsNow(const std::string& function, int call) {
  const Script& script = TheScript();
  return script.Has("fail", function) ||
         script.Has("fail_at", function + ":" + std::to_string(call));
}

// Returns false if the other call of a meeting did not come.
bool Meet(const std::string& function, int call) {
  static std::condition_variable came;
  Script& script = TheScript();
  const bool first = script.Has("meet", function + ":" + std::to_string(call));
  const bool second = script.Has("meet", function + ":" + std::to_string(call - 1));
  if (!first && !second) return true;
  std::unique_lock lock(CallMutex());
  came.notify_all();
  const int last = first ? call + 1 : call;
  return came.wait_for(lock, kPatience, [&] { return script.calls[function] >= last; });
}

void ReadInvalidAddress() {
  const volatile int* volatile nowhere = nullptr;
  [[maybe_unused]] const int value = *nowhere;
}

// Calls itself so often that no stack is large enough.
int FillStack(int calls) {
  constexpr int kFrame = 4096;
  volatile char frame[kFrame];
  frame[calls % kFrame] = 1;
  return calls == 0 ? 0 : FillStack(calls - 1) + frame[calls % kFrame];
}

// The lie the script wants of this function, as the code to return; RL_OK for none.
int32_t Lie(const char* function, rl_error* error) {
  const Script& script = TheScript();
  if (script.Has("hang", function)) std::this_thread::sleep_for(kHang);
  if (script.Has("exit", function)) std::exit(0);
  if (script.Has("crash", function)) ReadInvalidAddress();
  if (script.Has("overflow", function) && FillStack(INT_MAX) == 0) return RL_INTERNAL;
  if (script.Has("throw", function)) throw std::runtime_error("thrown by the fake");
  if (script.Has("stale_errors")) SetError(error, RL_INTERNAL, "not an error");
  if (script.Has("silent", function)) return RL_INTERNAL;
  if (script.Has("garbage", function)) {
    SetError(error, kGarbageCode, "garbage");
    return kGarbageCode;
  }
  if (script.Has("raw_text", function)) {
    SetError(error, RL_INTERNAL, "");
    std::memset(error->message, 0xFF, RL_ERROR_TEXT);
    return RL_INTERNAL;
  }
  const int call = CountCall(function);
  if (!Meet(function, call)) {
    SetError(error, RL_INTERNAL, "nobody came to the meeting");
    return RL_INTERNAL;
  }
  if (FailsNow(function, call)) {
    SetError(error, RL_INTERNAL, "failing as told");
    return RL_INTERNAL;
  }
  return RL_OK;
}

#define RETURN_IF_LYING(function, error)                                  \
  if (const int32_t lie = Lie(function, error); lie != RL_OK) return lie; \
  if (TheScript().Has("null_handle", function)) return RL_OK

uint32_t DeviceCount(void*, rl_str* reason) {
  rl_error ignored{};
  if (Lie("device_count", &ignored) != RL_OK) return UINT32_MAX;
  *reason = Str(TheScript().reason);
  return static_cast<uint32_t>(TheScript().Number("devices", 1));
}

int32_t DeviceInfo(void*, uint32_t index, rl_device_info* info, rl_error* error) {
  RETURN_IF_LYING("device_info", error);
  if (index >= static_cast<uint32_t>(TheScript().Number("devices", 1))) {
    SetError(error, RL_INVALID_ARGUMENT, "no such device");
    return RL_INVALID_ARGUMENT;
  }
  constexpr std::string_view kNames[] = {"Fake One", "Fake Two", "Other"};
  info->type = static_cast<int32_t>(TheScript().Number("type", RL_DEVICE_CPU));
  if (!TheScript().Has("null_device_name")) info->name = Str(kNames[index % 3]);
  info->driver = Str("fake driver 1.0");
  info->memory_total = 1 << 30;
  info->memory_free = 1 << 29;
  info->max_buffer_bytes = 1 << 20;
  info->alignment = static_cast<uint32_t>(TheScript().Number("alignment", 64));
  info->deterministic = 1;
  return RL_OK;
}

int32_t DeviceOpen(void*, uint32_t, const rl_option* options, uint32_t option_count,
                   rl_device** device, rl_error* error) {
  RETURN_IF_LYING("device_open", error);
  for (uint32_t i = 0; i < option_count; ++i) {
    if (std::string_view(options[i].key.data, options[i].key.size) == "known") continue;
    SetError(error, RL_INVALID_ARGUMENT, "unknown option; known options: known");
    return RL_INVALID_ARGUMENT;
  }
  *device = new rl_device{};
  return RL_OK;
}

void DeviceClose(rl_device* device) {
  rl_error ignored{};
  (void)Lie("device_close", &ignored);
  delete device;
}

int32_t QueryOps(rl_device*, const rl_graph* graph, rl_op_support* support, rl_error* error) {
  RETURN_IF_LYING("query_ops", error);
  for (uint32_t i = 0; i < graph->op_count; ++i) {
    const bool yes = graph->ops[i].kind == RL_OP_copy;
    support[i].supported = static_cast<int32_t>(TheScript().Number("support", yes ? 1 : 0));
    std::strncpy(support[i].reason, yes ? "" : "only copy", sizeof(support[i].reason));
  }
  return RL_OK;
}

int32_t WeightLayout(rl_device*, const rl_weight_desc* desc, rl_weight_layout* layout,
                     rl_error* error) {
  RETURN_IF_LYING("weight_layout", error);
  layout->in_place = static_cast<uint32_t>(TheScript().Number("layout", 0));
  layout->bytes = TheScript().Has("huge_layout") ? UINT64_MAX : desc->bytes;
  return RL_OK;
}

int32_t WeightCreate(rl_device*, const rl_weight_desc* desc, rl_weight** weight, rl_error* error) {
  RETURN_IF_LYING("weight_create", error);
  const auto* data = static_cast<const unsigned char*>(desc->data);
  *weight = new rl_weight{{data, data + desc->bytes}};
  return RL_OK;
}

void WeightFree(rl_device*, rl_weight* weight) {
  rl_error ignored{};
  (void)Lie("weight_free", &ignored);
  delete weight;
}

int32_t BufferCreate(rl_device*, uint64_t bytes, int32_t, rl_buffer** buffer, rl_error* error) {
  RETURN_IF_LYING("buffer_create", error);
  *buffer = new rl_buffer{std::vector<unsigned char>(bytes)};
  return RL_OK;
}

void BufferFree(rl_device*, rl_buffer* buffer) {
  rl_error ignored{};
  (void)Lie("buffer_free", &ignored);
  delete buffer;
}

int32_t BufferWrite(rl_device*, rl_buffer* buffer, uint64_t offset, const void* data, uint64_t size,
                    rl_error* error) {
  RETURN_IF_LYING("buffer_write", error);
  std::memcpy(buffer->bytes.data() + offset, data, size);
  return RL_OK;
}

int32_t BufferRead(rl_device*, rl_buffer* buffer, uint64_t offset, void* data, uint64_t size,
                   rl_error* error) {
  RETURN_IF_LYING("buffer_read", error);
  std::memcpy(data, buffer->bytes.data() + offset, size);
  return RL_OK;
}

int32_t PlanCompile(rl_device*, const rl_graph* graph, rl_plan** plan, rl_error* error) {
  RETURN_IF_LYING("plan_compile", error);
  auto made = std::make_unique<rl_plan>();
  for (uint32_t i = 0; i < graph->op_count; ++i) {
    const rl_op& op = graph->ops[i];
    const rl_value& from = graph->values[op.inputs[0]];
    const rl_value& to = graph->values[op.results[0]];
    made->copies.push_back(
        {from.buffer->bytes.data() + from.offset, to.buffer->bytes.data() + to.offset, to.bytes});
  }
  *plan = made.release();
  return RL_OK;
}

int32_t PlanExecute(rl_plan* plan, const rl_step*, rl_error* error) {
  RETURN_IF_LYING("plan_execute", error);
  for (const rl_plan::CopyOp& copy : plan->copies) {
    std::memcpy(copy.to, copy.from, copy.bytes);
    if (TheScript().Has("wrong_result")) ++copy.to[0];
  }
  ++plan->executions;
  return RL_OK;
}

int32_t PlanStats(rl_plan* plan, rl_plan_stats* stats, rl_error* error) {
  RETURN_IF_LYING("plan_stats", error);
  stats->executions = plan->executions;
  return RL_OK;
}

void PlanFree(rl_device*, rl_plan* plan) {
  rl_error ignored{};
  (void)Lie("plan_free", &ignored);
  delete plan;
}

int32_t DeviceWait(rl_device*, rl_error* error) {
  RETURN_IF_LYING("device_wait", error);
  return RL_OK;
}

void Shutdown(void*) {
  rl_error ignored{};
  (void)Lie("shutdown", &ignored);
}

// Version 14 breaks this list anew each time it runs.
// clang-format off
#define ALL_MEMBERS(X) \
  X(device_count, DeviceCount) \
  X(device_info, DeviceInfo) \
  X(device_open, DeviceOpen) \
  X(device_close, DeviceClose) \
  X(query_ops, QueryOps) \
  X(weight_layout, WeightLayout) \
  X(weight_create, WeightCreate) \
  X(weight_free, WeightFree) \
  X(buffer_create, BufferCreate) \
  X(buffer_free, BufferFree) \
  X(buffer_write, BufferWrite) \
  X(buffer_read, BufferRead) \
  X(plan_compile, PlanCompile) \
  X(plan_execute, PlanExecute) \
  X(plan_stats, PlanStats) \
  X(plan_free, PlanFree) \
  X(device_wait, DeviceWait) \
  X(shutdown, Shutdown)
// clang-format on

rl_plugin_v1 MakeTable() {
  const Script& script = TheScript();
  rl_plugin_v1 table{};
  table.struct_size = static_cast<uint32_t>(script.Number("struct_size", sizeof(table)));
  table.abi_major = static_cast<uint16_t>(script.Number("major", RL_ABI_MAJOR));
  table.abi_minor = static_cast<uint16_t>(script.Number("minor", RL_ABI_MINOR));
  if (!script.Has("null_name")) table.name = Str(script.name);
  table.version = Str("1.2.3");
  table.vendor = Str("rullama tests");
  table.build = Str("scripted");
#define SET_MEMBER(member, function) \
  if (!script.Has("null", #member)) table.member = function;
  ALL_MEMBERS(SET_MEMBER)
  return table;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int32_t rullama_plugin_query_v1(
    const rl_host_v1* host, const rl_plugin_v1** plugin, rl_error* error) {
  // The table is as large as one of a newer minor version may be, so that bytes up to a claimed
  // size can be read.
  static union {
    rl_plugin_v1 table;
    unsigned char space[2 * sizeof(rl_plugin_v1)];
  } storage;
  ReadScript();
  RETURN_IF_LYING("query", error);
  if (TheScript().Has("null_table")) return RL_OK;
  storage.table = MakeTable();
  constexpr std::string_view kHello = "fake plugin loaded";
  host->log(host->context, RL_LOG_DEBUG, Str(kHello));
  *plugin = &storage.table;
  return RL_OK;
}
