// The forms of kernels that are compiled ahead. A kernel has constants (kernels.def); a form fixes
// some of them in its code and reads the others from memory when it runs, so that a bounded number
// of forms serves all values that lowering asks for.
//
// Thread safety: none needed; constants.
#pragma once

#include <rullama/sdk/dtype.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/gpu/dispatch.h"

namespace rullama::cuda {

// Constant 0 is the size of a workgroup, as in gpu::PipelineKey.
struct Constant {
  size_t id;
  uint32_t value;
};

// The product of some constants is at most this.
struct Bound {
  std::vector<size_t> ids;
  uint64_t most;
};

struct Form {
  gpu::Shader shader;
  std::vector<Constant> fixed;   // a key has these values
  std::vector<Constant> chosen;  // in the code, whatever a key has: any value gives right results
  std::vector<Constant> sizes;   // for which values of others there is shared memory
  std::vector<Bound> bounds;     // on the constants of a key, which follow from that
  uint32_t most_threads = 0;     // unless the size of a workgroup is fixed
  uint32_t shared_bytes = 0;     // of shared memory that a launch gives, beyond the kernel's own
  bool open = false;             // lengths of arrays depend on constants that are not fixed
  std::string file;              // that has the kernel
};

// Whether there are forms for products with weights of this type. All builds but those for tests
// have them for all types that the backend takes (RULLAMA_CUDA_FORMS).
bool HasFormsFor(DType type);

// Whether there are forms for products by warpgroups with weights of this type: those of usual
// models.
bool HasWarpgroupFormsFor(DType type);

// The rows of x of a block of matvec_rows.cuh, ascending, and the bytes of shared memory that those
// take at most.
inline constexpr std::array<uint32_t, 3> kMatrixRows = {2, 4, 8};
uint32_t BytesOfMatrixRows(uint32_t rows);

// All of them, the best ones of a kernel first. The build compiles them in this order.
const std::vector<Form>& AllForms();

// The index of the first form that can run this kernel with these constants; that of none is
// AllForms().size().
size_t FindForm(const gpu::PipelineKey& key);

// Words of the memory from which kernels read constants (dialect.cuh).
inline constexpr size_t kConstantWords = 16;

// The second argument of every kernel: the one before it, and the one after it, are on the same
// level (dialect.cuh).
inline constexpr uint32_t kOverlapsLast = 1, kNextOverlaps = 2;

// "matvec 128 12 8 1", for messages.
std::string TextOf(const gpu::PipelineKey& key);

}  // namespace rullama::cuda
