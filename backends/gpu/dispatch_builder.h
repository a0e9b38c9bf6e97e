// Fills in one dispatch.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "backends/gpu/dispatch.h"

namespace rullama::gpu {

class PlanBuilder;

// Calls must follow the order of the shader's push constants.
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
  void Emit(uint64_t x, uint64_t y = 1, uint64_t z = 1);

 private:
  void Put(const void* data, uint32_t bytes);
  DispatchBuilder& Note(uint32_t value, bool write);

  PlanBuilder& plan_;
  Dispatch dispatch_;
};

}  // namespace rullama::gpu
