// A backend named wrong: the float64 reference with a table that breaks one promise of
// rullama_abi.h at a time, for the test that rullama-conformance sees it. RULLAMA_WRONG names the
// fault (kFaults); without it, it is the reference. Thread safety: as the contract demands.
#include <rullama/abi/rullama_abi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <chrono>
#include <climits>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include "core/reference/reference_backend.h"

namespace {

constexpr std::string_view kName = "wrong";

rl_plugin_v1 table;  // the reference's with some functions of this file
const rl_plugin_v1* reference = nullptr;

bool Fault(std::string_view name) {
  const char* variable = std::getenv("RULLAMA_WRONG");
  return variable != nullptr && name == variable;
}

// Calls itself so often that no stack is large enough.
int FillStack(int calls) {
  constexpr int kFrame = 4096;
  volatile char frame[kFrame];
  frame[calls % kFrame] = 1;
  return calls == 0 ? 0 : FillStack(calls - 1) + frame[calls % kFrame];
}

// Ends or holds up the process at one op, so that the tests of other ops continue.
void DisturbAt(const rl_graph& graph) {
  if (graph.op_count == 0 || graph.ops->kind != RL_OP_reshape) return;
  if (Fault("crashes")) static_cast<void>(std::raise(SIGSEGV));
  if (Fault("aborts")) std::abort();
  if (Fault("fills_its_stack")) static_cast<void>(FillStack(INT_MAX));
  if (Fault("leaves")) ::_exit(5);
  if (Fault("exits")) std::exit(0);
  while (Fault("hangs")) std::this_thread::sleep_for(std::chrono::seconds(1));
  if (Fault("prints")) std::puts("here I am");
}

// Changes what belongs to the program.
void DisturbTheProcess() {
  if (Fault("rounds_upward")) std::fesetround(FE_UPWARD);
  if (Fault("ignores_interrupts")) std::signal(SIGINT, SIG_IGN);
  if (Fault("changes_directory")) static_cast<void>(::chdir("/"));
  if (Fault("closes_stdin")) ::close(STDIN_FILENO);
  if (Fault("sets_the_locale")) std::setlocale(LC_ALL, "C.UTF-8");
  if (!Fault("blocks_a_signal")) return;
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

// Reads one byte after `size` bytes and what may follow them as padding.
void ReadBeyond(const void* data, uint64_t size) {
  constexpr uint64_t kPadding = 32;
  const volatile char* bytes = static_cast<const volatile char*>(data);
  [[maybe_unused]] const char beyond = bytes[(size + kPadding - 1) / kPadding * kPadding];
}

// Weights that this plugin copies, in memory that two of them share.
class Copies {
 public:
  // As many bytes as the data has, which stay where they are.
  void* Make(const rl_weight_desc& desc) {
    // By mistake: one place for all, or places counted by how many weights there are.
    std::vector<char>& place = places_[Fault("last_weight_wins") ? 0 : weights_];
    place.resize(std::max<size_t>(place.size(), kLargest));
    std::memcpy(place.data(), desc.data, desc.bytes);
    ++weights_;
    return place.data();
  }
  void Free() { --weights_; }

 private:
  static constexpr size_t kLargest = size_t{1} << 20;
  std::map<size_t, std::vector<char>> places_;
  size_t weights_ = 0;
};
Copies copies;
bool CopiesWeights() { return Fault("last_weight_wins") || Fault("places_of_weights_mixed_up"); }

// The record of a compiled plan.
struct Record {
  rl_device* device = nullptr;
  rl_value input{}, output{};  // the first of each, if `has_` says so
  bool has_input = false, has_output = false, observed = false, cancelled = false;
  uint64_t executions = 0;
  rl_step first{};
};

// Devices are used from several threads, each plan from one.
class Records {
 public:
  Record& operator[](rl_plan* plan) {
    const std::scoped_lock lock(mutex_);
    return records_[plan];
  }
  void Erase(rl_plan* plan) {
    const std::scoped_lock lock(mutex_);
    records_.erase(plan);
  }

 private:
  std::mutex mutex_;
  std::map<rl_plan*, Record> records_;
};
Records records;

int32_t Refuse(rl_error* error, rl_code code, std::string_view text) {
  error->code = code;
  error->op_index = RL_NO_OP;
  const size_t size = std::min(text.size(), sizeof(error->message) - 1);
  std::memcpy(error->message, text.data(), size);
  error->message[size] = '\0';
  return code;
}

const rl_op& OpAt(const rl_graph& graph, uint32_t index) {
  const char* bytes = reinterpret_cast<const char*>(graph.ops);
  return *reinterpret_cast<const rl_op*>(bytes + size_t{graph.op_size} * index);
}

const rl_value& ValueAt(const rl_graph& graph, uint32_t index) {
  const char* bytes = reinterpret_cast<const char*>(graph.values);
  return *reinterpret_cast<const rl_value*>(bytes + size_t{graph.value_size} * index);
}

// The first bytes of a value, which every dtype fills with one element or more.
using Word = std::array<char, 4>;
Word ReadWord(const Record& record, const rl_value& value, rl_error* error) {
  Word word{};
  reference->buffer_read(record.device, value.buffer, value.offset, word.data(), word.size(),
                         error);
  return word;
}
void WriteWord(const Record& record, const rl_value& value, const Word& word, rl_error* error) {
  reference->buffer_write(record.device, value.buffer, value.offset, word.data(), word.size(),
                          error);
}
void FlipLowestBit(const Record& record, const rl_value& value, rl_error* error) {
  Word word = ReadWord(record, value, error);
  word[0] = static_cast<char>(word[0] ^ 1);
  WriteWord(record, value, word, error);
}

// Changes a float by less than f16 would.
void Nudge(const Record& record, const rl_value& value, rl_error* error) {
  constexpr float kFactor = 1 + 1.0F / 1024;
  const auto number = std::bit_cast<float>(ReadWord(record, value, error)) * kFactor;
  WriteWord(record, value, std::bit_cast<Word>(number), error);
}

int32_t Open(void* context, uint32_t index, const rl_option* options, uint32_t option_count,
             rl_device** device, rl_error* error) {
  if (Fault("options_ignored")) option_count = 0;
  if (Fault("crashes_at_open")) static_cast<void>(std::raise(SIGSEGV));
  if (Fault("prints_at_open")) std::puts("opened");
  if (Fault("ignores_hangups_from_open")) std::signal(SIGHUP, SIG_IGN);
  const int32_t code = reference->device_open(context, index, options, option_count, device, error);
  if (code != RL_OK && Fault("text_not_terminated")) {
    std::memset(error->message, 'x', sizeof(error->message));
  }
  return code;
}

int32_t CreateBuffer(rl_device* device, uint64_t bytes, int32_t usage, rl_buffer** buffer,
                     rl_error* error) {
  constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
  if (Fault("any_size")) bytes = std::min(bytes, kMaxBytes);
  const int32_t code = reference->buffer_create(device, bytes, usage, buffer, error);
  if (code == RL_OK && usage == RL_BUFFER_STATE && Fault("state_not_zeroed")) {
    constexpr char kDirt = 1;
    return reference->buffer_write(device, *buffer, bytes - 1, &kDirt, 1, error);
  }
  return code;
}

int32_t WriteBuffer(rl_device* device, rl_buffer* buffer, uint64_t offset, const void* data,
                    uint64_t size, rl_error* error) {
  if (Fault("offsets_rounded")) offset = offset / 4 * 4;
  if (Fault("reads_beyond_inputs") && size % 64 != 0) ReadBeyond(data, size);
  return reference->buffer_write(device, buffer, offset, data, size, error);
}

bool IsProductAsStored(const rl_op& op) {
  return op.kind == RL_OP_matmul &&
         static_cast<const rl_matmul_attrs*>(op.attrs)->transpose_weight == 0;
}

int32_t QueryOps(rl_device* device, const rl_graph* graph, rl_op_support* support,
                 rl_error* error) {
  const int32_t code = reference->query_ops(device, graph, support, error);
  if (code != RL_OK) return code;
  for (uint32_t i = 0; i < graph->op_count; ++i) {
    const bool refuses = Fault("refuses_all") || (Fault("refuses_products_as_stored") &&
                                                  IsProductAsStored(OpAt(*graph, i)));
    if (refuses) support[i].supported = 0;
  }
  return code;
}

int32_t LayoutWeight(rl_device* device, const rl_weight_desc* desc, rl_weight_layout* layout,
                     rl_error* error) {
  const int32_t code = reference->weight_layout(device, desc, layout, error);
  if (Fault("in_place_and_copied")) {
    layout->in_place = 1;
    layout->bytes = 64;
  }
  return code;
}

int32_t CreateWeight(rl_device* device, const rl_weight_desc* desc, rl_weight** weight,
                     rl_error* error) {
  if (Fault("reads_beyond_weights")) ReadBeyond(desc->data, desc->bytes);
  if (Fault("writes_weights")) *static_cast<char*>(const_cast<void*>(desc->data)) ^= 1;
  if (Fault("no_weights")) return Refuse(error, RL_INTERNAL, "weights are not written yet");
  rl_weight_desc mine = *desc;
  if (CopiesWeights()) mine.data = copies.Make(*desc);
  return reference->weight_create(device, &mine, weight, error);
}

void FreeWeight(rl_device* device, rl_weight* weight) {
  if (CopiesWeights()) copies.Free();
  reference->weight_free(device, weight);
}

int32_t Describe(rl_device* device, const rl_graph* graph, void* sink, rl_text_sink write,
                 rl_error* error) {
  if (Fault("crashes_as_it_describes")) static_cast<void>(std::raise(SIGSEGV));
  return reference->graph_describe(device, graph, sink, write, error);
}

void Shutdown(void* context) {
  if (Fault("prints_at_shutdown")) std::puts("good bye");
  reference->shutdown(context);
}

void CloseDevice(rl_device* device) {
  if (Fault("throws_at_close")) throw std::runtime_error("the device is on fire");
  reference->device_close(device);
  if (Fault("crashes_at_close")) static_cast<void>(std::raise(SIGSEGV));
}

int32_t Compile(rl_device* device, const rl_graph* graph, rl_plan** plan, rl_error* error) {
  if (Fault("promise_broken")) {
    return Refuse(error, RL_UNSUPPORTED, "no longer, whatever query_ops said");
  }
  DisturbAt(*graph);
  rl_graph asked = *graph;
  if (Fault("times_unasked")) asked.record_times = 1;
  const int32_t code = reference->plan_compile(device, &asked, plan, error);
  if (code != RL_OK) return code;
  Record& record = records[*plan];
  record = {};
  record.device = device;
  for (uint32_t i = 0; i < graph->value_count; ++i) {
    const rl_value& value = ValueAt(*graph, i);
    record.observed = record.observed || value.observed != 0;
    if (value.lifetime == RL_LIFETIME_INPUT && !record.has_input) {
      record.input = value;
      record.has_input = true;
    } else if (value.lifetime == RL_LIFETIME_OUTPUT && !record.has_output) {
      record.output = value;
      record.has_output = true;
    }
  }
  return code;
}

// Corrupts the outputs of a step in the way that was asked for.
void Spoil(const Record& record, const Word& before, rl_error* error) {
  const rl_value& output = record.output;
  if (Fault("element_not_written")) WriteWord(record, output, before, error);
  if (Fault("not_deterministic") && record.executions % 2 == 0) {
    FlipLowestBit(record, output, error);
  }
  if (Fault("rounds_activations")) Nudge(record, output, error);
  if (Fault("observation_matters") && record.observed) WriteWord(record, output, {}, error);
  if (Fault("writes_outside")) {
    constexpr char kStray = 0;
    reference->buffer_write(record.device, output.buffer, output.offset + output.bytes, &kStray, 1,
                            error);
  }
}

int32_t Execute(rl_plan* plan, const rl_step* step, rl_error* error) {
  Record& record = records[plan];
  if (record.cancelled) return Refuse(error, RL_INTERNAL, "this plan was cancelled once");
  DisturbTheProcess();
  if (Fault("fails_at_its_first_op")) {
    const int32_t code = Refuse(error, RL_INTERNAL, "the device is tired");
    error->op_index = 0;
    return code;
  }
  if (Fault("leaks")) {
    static auto* const kLeaked = new std::vector<std::vector<char>>;
    kLeaked->emplace_back(1000);
  }
  rl_step now = *step;
  if (record.executions++ == 0) record.first = now;
  // A plan that was recorded for the rows of its first step.
  if (Fault("rows_of_first_step")) now = record.first;
  const Word before = record.has_output ? ReadWord(record, record.output, error) : Word{};
  const int32_t code = reference->plan_execute(plan, &now, error);
  if (code == RL_CANCELLED && Fault("cancelled_for_ever")) record.cancelled = true;
  if (code != RL_OK) return code;
  if (record.has_output) Spoil(record, before, error);
  if (step->t > 1 && Fault("neighbours_matter")) FlipLowestBit(record, record.output, error);
  if (record.has_input && Fault("writes_input")) FlipLowestBit(record, record.input, error);
  return RL_OK;
}

// The reference makes tensors as it runs and counts them; here it passes for a plan that does not.
int32_t Stats(rl_plan* plan, rl_plan_stats* stats, rl_error* error) {
  const int32_t code = reference->plan_stats(plan, stats, error);
  if (code == RL_OK) stats->allocations = Fault("allocates_each_time") ? stats->executions : 0;
  return code;
}

// Passes the records of the reference on in the way that was asked for.
struct SpoiltTimes {
  void* sink;
  rl_time_sink write;
};
void SpoilTimes(void* sink, const rl_op_time* times, uint64_t time_size, uint64_t count) {
  const auto* to = static_cast<const SpoiltTimes*>(sink);
  constexpr uint64_t kSecond = 1'000'000'000;
  for (uint64_t i = Fault("op_without_time") ? 1 : 0; i < count; ++i) {
    rl_op_time time =
        *reinterpret_cast<const rl_op_time*>(reinterpret_cast<const char*>(times) + i * time_size);
    if (Fault("time_before_execution")) time.begin -= kSecond;
    if (Fault("time_after_execution")) time.end += kSecond;
    if (Fault("time_of_no_op")) time.op_count = 0;
    to->write(to->sink, &time, sizeof(time), 1);
  }
}
int32_t Times(rl_plan* plan, void* sink, rl_time_sink write, rl_error* error) {
  SpoiltTimes spoilt{sink, write};
  return reference->plan_times(plan, &spoilt, SpoilTimes, error);
}

void FreePlan(rl_device* device, rl_plan* plan) {
  records.Erase(plan);
  reference->plan_free(device, plan);
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): the ABI's name
extern "C" __attribute__((visibility("default"))) int32_t rullama_plugin_query_v1(
    const rl_host_v1* host, const rl_plugin_v1** plugin, rl_error* error) {
  static rl_host_v1 any;  // hosts live as long as the process
  if (host != nullptr && Fault("any_major")) {
    any = *host;
    any.abi_major = RL_ABI_MAJOR;
  }
  const int32_t code =
      rullama::ReferencePluginQuery(Fault("any_major") ? &any : host, &reference, error);
  if (code != RL_OK) return code;
  table = *reference;
  table.name = {kName.data(), kName.size()};
  table.device_open = Open;
  table.device_close = CloseDevice;
  table.weight_layout = LayoutWeight;
  table.weight_create = CreateWeight;
  table.weight_free = FreeWeight;
  table.graph_describe = Describe;
  table.shutdown = Shutdown;
  table.buffer_create = CreateBuffer;
  table.buffer_write = WriteBuffer;
  table.query_ops = QueryOps;
  table.plan_compile = Compile;
  table.plan_execute = Execute;
  table.plan_stats = Stats;
  table.plan_free = FreePlan;
  table.plan_times = Times;
  *plugin = &table;
  return RL_OK;
}
