// Lowers a graph to a list of dispatches. One function per op family appends the dispatches of an
// op. Each dispatch records the memory it reads and writes, so that the schedule (schedule.h) can
// tell which dispatches may run concurrently.
//
// Thread safety: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "backends/gpu/dispatch.h"

namespace rullama::gpu {

// Tiling and fusion parameters of a device. A plan may override its copy.
struct Tuning {
  bool subgroups = false;  // use the shaders' form with subgroup operations
  uint32_t subgroup_size = 1;
  uint32_t wide = 256;              // invocations of a workgroup for long rows
  bool software = false;            // a CPU: few wide workgroups, no splitting for latency
  bool cooperative_matrix = false;  // products of many rows in f16 on matrix units
  bool integer_dot = false;         // products of one row by dot products of bytes
  uint32_t shared_bytes = 0;        // shared memory of a workgroup
  bool profile = false;             // time each dispatch, one after the other
  int64_t most_prologue = 0;        // longest row, in elements, that a GEMV may normalise itself
  uint32_t few_groups = 1;          // workgroups that keep the device busy
  // Use the dedicated kernels for attention with one query row, and for attention and soft
  // embeddings on matrix units.
  bool special_kernels = true;
  // Workgroups, and invocations of each, of the persistent dispatch that runs a whole step of one
  // row (vulkan/persistent.h). 0 workgroups: the device does not use one.
  uint32_t persistent_groups = 0;
  uint32_t persistent_threads = 0;
  uint32_t threads = 0;  // workgroup size of all shaders; 0: each shader chooses its own

  // The workgroup size of a shader that prefers `wanted` invocations.
  [[nodiscard]] uint32_t Threads(uint32_t wanted) const { return threads > 0 ? threads : wanted; }
};

// The rows of a value in f16 and the scale of each row (to_half.comp).
struct HalfRows {
  Scratch rows;
  Scratch factors;
};

// The prologue that a GEMV applies to its input row (norm_fusion.h). With a residual it computes
// y = (residual + norm(x)) * scale. An optional second norm is then applied to y, or to x if there
// is no residual.
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

// The transform that attention with one query row applies to the heads of an operand
// (head_fusion.h): a norm, then a rotation.
struct Heads {
  uint32_t x = RL_NO_VALUE;
  uint32_t weight = RL_NO_VALUE;
  float eps = -1;  // below 0: no norm
  uint32_t pos = RL_NO_VALUE;
  DeviceAddress rates = 0;
  uint32_t half_rot = 0;  // rotated pairs
};

class PlanBuilder;

// Fills in one dispatch. Calls must follow the order of the shader's push constants.
class DispatchBuilder {
 public:
  DispatchBuilder(PlanBuilder& plan, Shader shader, std::vector<uint32_t> constants);
  DispatchBuilder& Read(uint32_t value);  // RL_NO_VALUE: a null pointer
  DispatchBuilder& Write(uint32_t value);
  DispatchBuilder& Read(const Scratch& scratch);
  DispatchBuilder& Write(const Scratch& scratch);
  DispatchBuilder& Pointer(DeviceAddress address);  // memory that no dispatch writes
  // Arguments that do not fit the push constants: the bytes of `record`, which contain addresses at
  // the offsets `pointers`. The record is stored in memory, or in the push constants on devices
  // whose kernels cannot read addresses from memory.
  DispatchBuilder& Record(std::span<const std::byte> record,
                          std::initializer_list<uint32_t> pointers);
  // Declares an access to a value whose address is not among the push constants.
  DispatchBuilder& Reads(uint32_t value) { return Note(value, false); }
  DispatchBuilder& Writes(uint32_t value) { return Note(value, true); }
  DispatchBuilder& Rows(const rl_dim& dim, int64_t times = 1);
  DispatchBuilder& Extent(const rl_dim& dim);
  DispatchBuilder& U32(int64_t value);
  DispatchBuilder& F32(float value);
  DispatchBuilder& Align(uint32_t bytes);
  // Declares weight rows that may be split among any number of workgroups. `division_follows`: the
  // next push constants hold the split.
  DispatchBuilder& Share(Dispatch::Shares shares, bool division_follows);
  // Appends the dispatch. Workgroup counts above the device's limit are clamped, because shaders
  // loop over the rest.
  void Go(uint64_t x, uint64_t y = 1, uint64_t z = 1);

 private:
  void Put(const void* data, uint32_t bytes);
  DispatchBuilder& Note(uint32_t value, bool write);

  PlanBuilder& plan_;
  Dispatch dispatch_;
};

class PlanBuilder {
 public:
  // `step`: the address of the step's extents.
  PlanBuilder(PlanDevice& device, const sdk::GraphView& graph, const Tuning& tuning,
              DeviceAddress step);

  // Compiles all ops.
  void Build();

  // ---- used by the op families
  [[nodiscard]] const sdk::GraphView& graph() const { return graph_; }
  [[nodiscard]] const rl_op& op() const { return graph_.op(op_index_); }
  [[nodiscard]] uint32_t op_index() const { return op_index_; }
  [[nodiscard]] const Tuning& tuning() const { return tuning_; }
  [[nodiscard]] DeviceAddress step() const { return step_; }
  [[nodiscard]] uint32_t InputIndex(uint32_t i) const;
  [[nodiscard]] const rl_value& Input(uint32_t i) const { return graph_.value(InputIndex(i)); }
  [[nodiscard]] uint32_t ResultIndex(uint32_t i = 0) const { return op().results[i]; }
  [[nodiscard]] const rl_value& Result(uint32_t i = 0) const {
    return graph_.value(ResultIndex(i));
  }
  template <typename Attrs>
  [[nodiscard]] const Attrs& attrs() const {
    return sdk::GraphView::attrs<Attrs>(op());
  }
  // The value of a dimension at the largest T and R.
  [[nodiscard]] int64_t Most(const rl_dim& dim) const;
  [[nodiscard]] int64_t MostRows(const rl_value& value) const { return Most(value.dims[0]); }
  [[nodiscard]] static const DeviceWeight& WeightOf(const rl_value& value);
  [[nodiscard]] Range Place(uint32_t value) const { return places_[value]; }
  [[nodiscard]] DeviceAddress AddressOf(uint32_t value) const {  // null for RL_NO_VALUE
    return value == RL_NO_VALUE ? 0 : places_[value].begin;
  }
  // Makes the result an alias of the operand's memory, `offset` bytes into it.
  void Alias(uint32_t result, uint32_t operand, uint64_t offset);
  // Whether no private value shares memory with another. Only then may an op write the result of a
  // later op or read an operand of an earlier one: shared memory could hold another value by then.
  [[nodiscard]] bool ValuesKeepTheirPlaces() const;
  // Whether a result may be placed at another address than the host's.
  [[nodiscard]] bool IsPrivate(uint32_t value) const;
  // The ops that read a value, in order.
  [[nodiscard]] const std::vector<uint32_t>& ReadersOf(uint32_t value) const {
    return readers_[value];
  }
  // The only reader of a private value if both ops may be fused (see ValuesKeepTheirPlaces), else
  // RL_NO_OP.
  [[nodiscard]] uint32_t OnlyReader(uint32_t value) const;
  // The same, but only if that reader is a cast to f16.
  [[nodiscard]] uint32_t HalfCastOf(uint32_t value) const;
  // Whether the producer of a value is already compiled, so that the current op may read it.
  [[nodiscard]] bool IsReady(uint32_t value) const {
    return producer_[value] == RL_NO_OP || producer_[value] < op_index_;
  }
  [[nodiscard]] uint32_t ProducerOf(uint32_t value) const { return producer_[value]; }
  // Defers a norm to the product `op_index`, which applies it as its prologue.
  void SetPrologue(uint32_t op_index, const Prologue& prologue) { prologues_[op_index] = prologue; }
  [[nodiscard]] const Prologue* FindPrologue() const;  // of the current op
  // Defers the head transform of `value` to the attention that reads it.
  void SetHeads(uint32_t value, const Heads& heads) { heads_[value] = heads; }
  // Returns and clears the deferred transform of `value`; later readers see the computed value.
  std::optional<Heads> TakeHeads(uint32_t value);
  // Marks an op as fused into another one: it gets no dispatch.
  void Absorb(uint32_t op_index) { absorbed_[op_index] = true; }
  Scratch NewScratch(uint64_t bytes);
  // Returns reusable scratch. GiveBack it after its last reader was appended.
  Scratch Take(uint64_t bytes);
  void GiveBack(const Scratch& scratch) { free_.emplace(scratch.bytes, scratch.address); }
  // The f16 copy of the value or scratch at `address`, or null if there is none or it is stale.
  [[nodiscard]] const HalfRows* FindHalf(DeviceAddress address) const;
  void KeepHalf(DeviceAddress address, const HalfRows& half) { halves_[address] = half; }
  // Returns memory with these contents, owned by the plan.
  DeviceAddress Constant(std::span<const std::byte> bytes);
  [[nodiscard]] uint32_t MostGroups(uint32_t axis) const { return device_.MostGroups(axis); }
  [[nodiscard]] bool FollowsPointers() const { return device_.FollowsPointers(); }
  void Append(Dispatch dispatch);

  // ---- the result
  [[nodiscard]] std::vector<Dispatch>& dispatches() { return dispatches_; }
  [[nodiscard]] uint64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  void FindPlaces();
  void FindReaders();

  PlanDevice& device_;
  const sdk::GraphView& graph_;
  const Tuning& tuning_;
  DeviceAddress step_;
  uint32_t op_index_ = 0;
  std::vector<Range> places_;  // by value
  std::vector<bool> moved_;    // by value: moved from the host's address to the plan's memory
  std::vector<std::vector<uint32_t>> readers_;  // by value: reading ops, once per operand
  std::vector<uint32_t> producer_;              // by value
  std::vector<bool> absorbed_;                  // by op
  std::vector<Dispatch> dispatches_;
  std::map<uint32_t, Prologue> prologues_;       // by op
  std::map<uint32_t, Heads> heads_;              // by value
  std::map<DeviceAddress, HalfRows> halves_;     // by the address of the f32 source
  std::multimap<uint64_t, DeviceAddress> free_;  // scratch by size
  uint64_t workspace_bytes_ = 0;
};

// Returns why a device cannot run an op, or an empty text if it can. `float64`: the device has
// 64-bit floats. `most_bytes`: its largest allocation.
std::string WhyNot(const sdk::GraphView& graph, const rl_op& op, bool float64, uint64_t most_bytes);

// Each appends the dispatches of the current op and returns true if the op belongs to its family.
bool CompileStructure(PlanBuilder& plan);
bool CompilePointwise(PlanBuilder& plan);
bool CompileRows(PlanBuilder& plan);
bool CompileMatMul(PlanBuilder& plan);
bool CompileMoe(PlanBuilder& plan);
bool CompileAttention(PlanBuilder& plan);
bool CompileSampling(PlanBuilder& plan);

// Appends a copy of rows of `columns` elements to the result of the current op, from column
// `first` on.
void PutColumns(PlanBuilder& plan, const Scratch& from, int64_t columns, int64_t first);
// Appends a copy of the first operand to the result of the current op.
void Copy(PlanBuilder& plan);

// Elements of a row: the product of all dimensions but the first, which are constant.
int64_t RowElements(const rl_value& value);
// The product of the dimensions between the first and the last.
int64_t MiddleElements(const rl_value& value);
inline int64_t Last(const rl_value& value) { return value.dims[value.rank - 1].constant; }
inline DType TypeOf(const rl_value& value) { return static_cast<DType>(value.dtype); }

}  // namespace rullama::gpu
