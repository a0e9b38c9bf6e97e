// From a graph to a list of dispatches. One function for each family of ops appends what computes
// an op; what a dispatch reads and writes is noted, so that the schedule (schedule.h) can tell
// which may run side by side.
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

// How work is cut for a device, and in a plan's own copy for its graph.
struct Tuning {
  bool subgroups = false;  // use the shaders' form with subgroup operations
  uint32_t subgroup_size = 1;
  uint32_t wide = 256;              // invocations of a workgroup for long rows
  bool software = false;            // a CPU: few wide workgroups, no splitting for latency
  bool cooperative_matrix = false;  // products of many rows in f16 on matrix units
  bool integer_dot = false;         // products of one row by dot products of bytes
  uint32_t shared_bytes = 0;        // of a workgroup
  bool profile = false;             // time each dispatch, one after the other
  int64_t most_prologue = 0;        // elements of a row that a product may norm itself
  uint32_t few_groups = 1;          // workgroups that keep the device busy
  // Whether attention of one row, and attention and soft embeddings on matrix units, have kernels
  // of their own.
  bool special_kernels = true;
  // Of steps of one row that are one dispatch (vulkan/persistent.h): its workgroups, 0 if there are
  // none such, and the invocations of each.
  uint32_t persistent_groups = 0;
  uint32_t persistent_threads = 0;
  uint32_t threads = 0;  // invocations of all workgroups, or 0: each shader has its own number

  // Invocations of a workgroup of a shader for which `wanted` would be best.
  [[nodiscard]] uint32_t Threads(uint32_t wanted) const { return threads > 0 ? threads : wanted; }
};

// A value's rows in f16, with the factor of each (to_half.comp).
struct HalfRows {
  Scratch rows;
  Scratch factors;
};

// What a product of one row does to it first (norm_fusion.h): y = (residual + norm(x)) * scale if
// there is a residual, and a norm of that or of x.
struct Prologue {
  uint32_t x = RL_NO_VALUE;
  uint32_t residual = RL_NO_VALUE;
  uint32_t weight = RL_NO_VALUE;
  uint32_t scale = RL_NO_VALUE;
  uint32_t sum = RL_NO_VALUE;  // where y goes, for those who read it later
  float eps = 0;
  bool norm = false;
  uint32_t norm_weight = RL_NO_VALUE;
  float norm_eps = 0;
};

// What attention of one row does to the heads of an operand first (head_fusion.h): a norm, then a
// rotation.
struct Heads {
  uint32_t x = RL_NO_VALUE;
  uint32_t weight = RL_NO_VALUE;
  float eps = -1;  // below 0: no norm
  uint32_t pos = RL_NO_VALUE;
  DeviceAddress rates = 0;
  uint32_t half_rot = 0;  // pairs that turn
};

class PlanBuilder;

// Fills in one dispatch; the order of the calls is the order of the shader's push constants.
class DispatchBuilder {
 public:
  DispatchBuilder(PlanBuilder& plan, Shader shader, std::vector<uint32_t> constants);
  DispatchBuilder& Read(uint32_t value);  // RL_NO_VALUE: a null pointer
  DispatchBuilder& Write(uint32_t value);
  DispatchBuilder& Read(const Scratch& scratch);
  DispatchBuilder& Write(const Scratch& scratch);
  DispatchBuilder& Pointer(DeviceAddress address);  // to something no dispatch writes
  // What the push constants have no room for: its bytes, with addresses at these offsets. It lies
  // in memory, or on devices that follow no pointers it is part of the push constants.
  DispatchBuilder& Record(std::span<const std::byte> record,
                          std::initializer_list<uint32_t> pointers);
  // The dispatch finds the value by itself.
  DispatchBuilder& Reads(uint32_t value) { return Note(value, false); }
  DispatchBuilder& Writes(uint32_t value) { return Note(value, true); }
  DispatchBuilder& Rows(const rl_dim& dim, int64_t times = 1);
  DispatchBuilder& Extent(const rl_dim& dim);
  DispatchBuilder& U32(int64_t value);
  DispatchBuilder& F32(float value);
  DispatchBuilder& Align(uint32_t bytes);
  // Any number of workgroups can share these rows of weights. `division_follows`: what is put next
  // says who takes which.
  DispatchBuilder& Share(Dispatch::Shares shares, bool division_follows);
  // Appends the dispatch. Counts beyond what a device takes are cut: shaders loop.
  void Go(uint64_t x, uint64_t y = 1, uint64_t z = 1);

 private:
  void Put(const void* data, uint32_t bytes);
  DispatchBuilder& Note(uint32_t value, bool write);

  PlanBuilder& plan_;
  Dispatch dispatch_;
};

class PlanBuilder {
 public:
  // `step`: where the extents of a step are.
  PlanBuilder(PlanDevice& device, const sdk::GraphView& graph, const Tuning& tuning,
              DeviceAddress step);

  // Compiles all ops.
  void Build();

  // ---- for the families of ops
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
  // At the largest T and R.
  [[nodiscard]] int64_t Most(const rl_dim& dim) const;
  [[nodiscard]] int64_t MostRows(const rl_value& value) const { return Most(value.dims[0]); }
  [[nodiscard]] static const DeviceWeight& WeightOf(const rl_value& value);
  [[nodiscard]] Range Place(uint32_t value) const { return places_[value]; }
  [[nodiscard]] DeviceAddress AddressOf(uint32_t value) const {  // null for RL_NO_VALUE
    return value == RL_NO_VALUE ? 0 : places_[value].begin;
  }
  // The result is (a part of) an operand's memory: nothing to do.
  void Alias(uint32_t result, uint32_t operand, uint64_t offset);
  // Whether every private value has memory of its own, so that one op may write the result of a
  // later one or read what an earlier one did: elsewhere that memory may hold something else by
  // then.
  [[nodiscard]] bool ValuesKeepTheirPlaces() const;
  // Whether a result may live elsewhere than where the host said.
  [[nodiscard]] bool IsPrivate(uint32_t value) const;
  // The ops that read a value, in order.
  [[nodiscard]] const std::vector<uint32_t>& ReadersOf(uint32_t value) const {
    return readers_[value];
  }
  // The one op that reads a value nobody else needs, if the two may be computed as one (see
  // ValuesKeepTheirPlaces), or RL_NO_OP.
  [[nodiscard]] uint32_t OnlyReader(uint32_t value) const;
  // The same if that op is a cast to f16.
  [[nodiscard]] uint32_t HalfCastOf(uint32_t value) const;
  // Whether the op at hand may already read a value: what makes it is compiled.
  [[nodiscard]] bool IsReady(uint32_t value) const {
    return producer_[value] == RL_NO_OP || producer_[value] < op_index_;
  }
  [[nodiscard]] uint32_t ProducerOf(uint32_t value) const { return producer_[value]; }
  // What a product does to its row; another op leaves it to it.
  void SetPrologue(uint32_t op_index, const Prologue& prologue) { prologues_[op_index] = prologue; }
  [[nodiscard]] const Prologue* FindPrologue() const;  // of the op at hand
  // How attention is to make an operand; another op leaves it to it.
  void SetHeads(uint32_t value, const Heads& heads) { heads_[value] = heads; }
  // That, if it is so; who reads the operand later finds it made.
  std::optional<Heads> TakeHeads(uint32_t value);
  // Another op takes over what this one computes.
  void Absorb(uint32_t op_index) { absorbed_[op_index] = true; }
  Scratch NewScratch(uint64_t bytes);
  // The same for memory that is given back when nothing reads it any more, to be used again.
  Scratch Take(uint64_t bytes);
  void GiveBack(const Scratch& scratch) { free_.emplace(scratch.bytes, scratch.address); }
  // The f16 form of the value or scratch that begins here, if one was made and still holds.
  [[nodiscard]] const HalfRows* FindHalf(DeviceAddress address) const;
  void KeepHalf(DeviceAddress address, const HalfRows& half) { halves_[address] = half; }
  // Memory with these contents, which the plan keeps.
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
  std::vector<Range> places_;                   // by value
  std::vector<bool> moved_;                     // by value: it has a place of this plan's own
  std::vector<std::vector<uint32_t>> readers_;  // by value: ops, one for each operand it is
  std::vector<uint32_t> producer_;              // by value
  std::vector<bool> absorbed_;                  // by op
  std::vector<Dispatch> dispatches_;
  std::map<uint32_t, Prologue> prologues_;       // by op
  std::map<uint32_t, Heads> heads_;              // by value
  std::map<DeviceAddress, HalfRows> halves_;     // by the address of what they were made from
  std::multimap<uint64_t, DeviceAddress> free_;  // scratch by size
  uint64_t workspace_bytes_ = 0;
};

// Whether a device runs an op: an empty text, or why not. Of one with numbers of 64 bits or
// without, whose allocations have up to `most_bytes`.
std::string WhyNot(const sdk::GraphView& graph, const rl_op& op, bool float64, uint64_t most_bytes);

// Each appends the op at hand if its kind belongs to the family.
bool CompileStructure(PlanBuilder& plan);
bool CompilePointwise(PlanBuilder& plan);
bool CompileRows(PlanBuilder& plan);
bool CompileMatMul(PlanBuilder& plan);
bool CompileMoe(PlanBuilder& plan);
bool CompileAttention(PlanBuilder& plan);
bool CompileSampling(PlanBuilder& plan);

// Appends the copy of rows of `columns` elements to columns of the result of the op at hand.
void PutColumns(PlanBuilder& plan, const Scratch& from, int64_t columns, int64_t first);
// Appends the copy of the first operand to the result of the op at hand.
void Copy(PlanBuilder& plan);

// Elements of a row: the product of the inner dimensions, which are constant.
int64_t RowElements(const rl_value& value);
// Rows in front of the last dimension: dimension 0 times this.
int64_t MiddleElements(const rl_value& value);
inline int64_t Last(const rl_value& value) { return value.dims[value.rank - 1].constant; }
inline DType TypeOf(const rl_value& value) { return static_cast<DType>(value.dtype); }

}  // namespace rullama::gpu
