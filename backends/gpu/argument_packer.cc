#include "backends/gpu/argument_packer.h"

#include <cstring>

#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {

DeviceAddress ArgumentPacker::Step() const {
  const Scratch& step = plan_->step();
  if (step.bytes > 0) dispatch_->reads.push_back(plan_->RangeOf({.scratch = step}));
  return Address(step.address, 0);
}

DeviceAddress ArgumentPacker::Address(const AddressArgument& address, size_t offset) const {
  if (!in_memory_) dispatch_->pointers.push_back(static_cast<uint32_t>(base_ + offset));
  return address.address();
}

DeviceAddress ArgumentPacker::Note(const BufferArgument& buffer,
                                   std::vector<Range>& accesses) const {
  const Operand& operand = buffer.operand();
  const bool is_value = operand.scratch.bytes == 0;
  if (is_value && operand.value == RL_NO_VALUE) return 0;
  const Range range = plan_->RangeOf(operand);
  const bool constant =
      is_value && plan_->graph().value(operand.value).lifetime == RL_LIFETIME_CONSTANT;
  if (!constant) accesses.push_back(range);
  return range.begin;
}

DeviceAddress ArgumentPacker::Input(const BufferArgument& buffer, size_t offset) const {
  return Address(Note(buffer, dispatch_->reads), offset);
}
DeviceAddress ArgumentPacker::Output(const BufferArgument& buffer, size_t offset) const {
  return Address(Note(buffer, dispatch_->writes), offset);
}

kernels::DimLayout ArgumentPacker::Dim(const DimArgument& dim, size_t offset) const {
  const rl_dim& d = dim.dim();
  dispatch_->extents.push_back({static_cast<uint32_t>(base_ + offset), d, false});
  return {static_cast<uint32_t>(d.constant), static_cast<uint32_t>(d.t),
          static_cast<uint32_t>(d.r)};
}
kernels::DimLayout ArgumentPacker::Rows(const DimArgument& dim, size_t offset) const {
  const kernels::DimLayout layout = Dim(dim, offset);
  dispatch_->extents.back().rows = true;
  return layout;
}

ArgumentPacker ArgumentPacker::Inside(size_t offset) const {
  ArgumentPacker packer = *this;
  packer.base_ = base_ + offset;
  packer.in_memory_ = plan_->FollowsPointers();
  return packer;
}

DeviceAddress ArgumentPacker::Keep(std::span<const std::byte> records, size_t offset) const {
  if (plan_->FollowsPointers()) {
    return Address(records.empty() ? 0 : plan_->scratch().Constant(records), offset);
  }
  if (offset + records.size() > Dispatch::kMaxBytes) {
    throw sdk::Error(RL_INTERNAL, "the push constants of a dispatch have " +
                                      std::to_string(offset + records.size()) + " bytes, at most " +
                                      std::to_string(Dispatch::kMaxBytes));
  }
  std::ranges::copy(records, dispatch_->push.begin() + static_cast<ptrdiff_t>(offset));
  dispatch_->push_bytes = static_cast<uint32_t>(offset + records.size());
  dispatch_->records_offset = static_cast<uint32_t>(offset);
  return 0;
}

void ArgumentPacker::SetPush(std::span<const std::byte> arguments) const {
  // Records that follow the arguments are there already, from their field on.
  const size_t bytes = dispatch_->records_offset > 0 ? dispatch_->records_offset : arguments.size();
  std::memcpy(dispatch_->push.data(), arguments.data(), bytes);
  dispatch_->push_bytes = std::max(dispatch_->push_bytes, static_cast<uint32_t>(bytes));
}

}  // namespace rullama::gpu
