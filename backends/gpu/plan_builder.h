// Lowers a graph to a list of dispatches: fuses its ops into nodes (fuse.h), then lets one function
// per op family append the dispatches of each node. Each dispatch records the memory it reads and
// writes, so that the schedule (schedule.h) can tell which dispatches may run concurrently.
//
// Thread safety: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <vector>

#include "backends/gpu/dispatch.h"
#include "backends/gpu/fuse.h"
#include "backends/gpu/graph_facts.h"
#include "backends/gpu/tuning.h"

namespace rullama::gpu {

// The rows of a value in f16 and the scale of each row (to_half.comp).
struct HalfRows {
  Scratch rows;
  Scratch factors;
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

  // Appends the dispatches of all nodes.
  void Build();

  // ---- used by the op families
  [[nodiscard]] const sdk::GraphView& graph() const { return graph_; }
  [[nodiscard]] const rl_op& op() const { return graph_.op(op_index()); }
  [[nodiscard]] uint32_t op_index() const { return node_->op; }
  [[nodiscard]] const Tuning& tuning() const { return tuning_; }
  [[nodiscard]] DeviceAddress step() const { return step_; }
  [[nodiscard]] uint32_t InputIndex(uint32_t i) const { return OperandIndex(op(), i); }
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
  // The node that is emitted; op() is its main op.
  [[nodiscard]] const FusedNode& node() const { return *node_; }
  [[nodiscard]] const Prologue* prologue() const {  // null if the node has none
    return node_->prologue ? &*node_->prologue : nullptr;
  }
  // The value that holds the first result of the node, after its epilogue.
  [[nodiscard]] uint32_t StoredIndex() const { return node_->StoredResult(ResultIndex()); }
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

  PlanDevice& device_;
  const sdk::GraphView& graph_;
  const Tuning& tuning_;
  DeviceAddress step_;
  const FusedNode* node_ = nullptr;
  std::vector<Range> places_;  // by value
  std::vector<bool> moved_;    // by value: moved from the host's address to the plan's memory
  std::vector<Dispatch> dispatches_;
  std::map<DeviceAddress, HalfRows> halves_;     // by the address of the f32 source
  std::multimap<uint64_t, DeviceAddress> free_;  // scratch by size
  uint64_t workspace_bytes_ = 0;
};

// Returns why a device cannot run an op, or an empty text if it can. `float64`: the device has
// 64-bit floats. `most_bytes`: its largest allocation.
std::string WhyNot(const sdk::GraphView& graph, const rl_op& op, bool float64, uint64_t most_bytes);

// Each appends the dispatches of the current node and returns true if its main op belongs to its
// family.
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

}  // namespace rullama::gpu
