// Turns the argument struct of a kernel (kernels.h) into push constants, and notes which memory the
// dispatch reads and writes.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include "backends/gpu/dispatch.h"
#include "backends/gpu/kernels.h"

namespace rullama::gpu {

class PlanBuilder;

class ArgumentPacker {
 public:
  ArgumentPacker(PlanBuilder& plan, Dispatch& dispatch) : plan_(&plan), dispatch_(&dispatch) {}

  // Sets the push constants of the dispatch.
  template <typename Args>
  void Set(const Args& args) {
    const auto layout = Pack(args, *this);
    static_assert(sizeof(layout) <= Dispatch::kPushBytes);
    SetPush(std::as_bytes(std::span(&layout, 1)));
  }

  // Adds what a buffer takes to `accesses` and returns its address.
  [[nodiscard]] DeviceAddress Note(const BufferArgument& buffer,
                                   std::vector<Range>& accesses) const;

  // For kernels::Pack: each notes what a field needs and returns what kernels read in its place.
  [[nodiscard]] DeviceAddress Step() const;
  [[nodiscard]] DeviceAddress Input(const BufferArgument& buffer, size_t offset) const;
  [[nodiscard]] DeviceAddress Output(const BufferArgument& buffer, size_t offset) const;
  [[nodiscard]] DeviceAddress Address(const AddressArgument& address, size_t offset) const;
  [[nodiscard]] kernels::DimLayout Rows(const DimArgument& dim, size_t offset) const;
  [[nodiscard]] kernels::DimLayout Dim(const DimArgument& dim, size_t offset) const;
  template <typename Layout, typename Record, size_t kCount>
  [[nodiscard]] DeviceAddress Records(const std::array<Record, kCount>& records,
                                      size_t offset) const {
    std::array<Layout, kCount> layouts;
    for (size_t i = 0; i < kCount; ++i) {
      layouts[i] = Pack(records[i], Inside(offset + i * sizeof(Layout)));
    }
    return Keep(std::as_bytes(std::span(layouts)), offset);
  }
  template <typename Layout, typename Record>
  [[nodiscard]] DeviceAddress Records(const std::optional<Record>& record, size_t offset) const {
    if (!record) return Keep({}, offset);
    return Records<Layout>(std::array<Record, 1>{*record}, offset);
  }

 private:
  // The packer of a record that is at `offset` if it is in the push constants.
  [[nodiscard]] ArgumentPacker Inside(size_t offset) const;
  // Stores records in memory and returns their address, or in the push constants from `offset` on.
  [[nodiscard]] DeviceAddress Keep(std::span<const std::byte> records, size_t offset) const;
  void SetPush(std::span<const std::byte> arguments) const;

  PlanBuilder* plan_;
  Dispatch* dispatch_;
  size_t base_ = 0;         // offset of this struct in the push constants
  bool in_memory_ = false;  // instead
};

}  // namespace rullama::gpu
