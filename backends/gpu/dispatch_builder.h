// Fills in one dispatch: a kernel, its constants and its arguments by name (kernels.h).
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/gpu/argument_packer.h"
#include "backends/gpu/dispatch.h"
#include "backends/gpu/kernels.h"

namespace rullama::gpu {

class PlanBuilder;

class DispatchBuilder {
 public:
  // A dispatch of `kernel`, a struct of kernels.h, with these arguments.
  template <typename Kernel>
  DispatchBuilder(PlanBuilder& plan, const Kernel& kernel, const typename Kernel::Args& args)
      : DispatchBuilder(plan, Kernel::kShader, ConstantsOf(kernel)) {
    ArgumentPacker(plan, dispatch_).Set(args);
  }
  // Declares an access to a value beyond those of the arguments. RL_NO_VALUE: none.
  DispatchBuilder& Reads(uint32_t value);
  DispatchBuilder& Writes(uint32_t value);
  // Declares weight rows that may be split among any number of workgroups.
  DispatchBuilder& Share(const Dispatch::Shares& shares);
  // Appends the dispatch to the plan, unless a count is 0. Workgroup counts above the device's
  // limit are clamped, because kernels loop over the rest.
  void Emit(uint64_t x, uint64_t y = 1, uint64_t z = 1);

 private:
  DispatchBuilder(PlanBuilder& plan, Shader shader, std::vector<uint32_t> constants);

  PlanBuilder& plan_;
  Dispatch dispatch_;
};

}  // namespace rullama::gpu
