// Tests of the text that compilers get of kernels.def.
#include "backends/gpu/kernel_source.h"

#include <gmock/gmock.h>

#include <cstddef>

namespace rullama::gpu {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(KernelSourceTest, GlslHasConstantsByIdAndArgumentsInOrder) {
  EXPECT_EQ(Header(Shader::kSumParts, kGlsl), R"(// Made from backends/gpu/kernels.def.
#ifdef TASK
struct Push {
  uvec2 step;
  uvec2 x;
  uvec2 addend;
  uvec2 range;
  uvec2 y;
  Extent rows;
  uint n;
  uint parts;
};
layout(buffer_reference, std430, buffer_reference_align = 16) CONSTANT PushAt {
  Push v;
};
// All of it is read at once, before anything waits.
Push p = PushAt(task_push).v;
#else
layout(push_constant, std430) uniform Push {
  uvec2 step;
  uvec2 x;
  uvec2 addend;
  uvec2 range;
  uvec2 y;
  Extent rows;
  uint n;
  uint parts;
} p;
#endif
)");
  const std::string rope = Header(Shader::kRope, kGlsl);
  EXPECT_THAT(rope, HasSubstr("layout(constant_id = 1) const uint kNorm = 0;"));
  EXPECT_THAT(rope, HasSubstr("layout(constant_id = 2) const uint kHalf = 0;"));
}

TEST(KernelSourceTest, OpenClHasTheSameConstantsAndABufferForEachAddress) {
  EXPECT_EQ(Header(Shader::kSumParts, kOpenCl), R"(// Made from backends/gpu/kernels.def.
#define LOCAL_
#define LOCAL
#define KERNEL KERNEL_ALONE
typedef struct {
  Pointer step;
  Pointer x;
  Pointer addend;
  Pointer range;
  Pointer y;
  Extent rows;
  uint n;
  uint parts;
} Push;
#define ARGUMENTS __global uchar *step_buffer, __global uchar *x_buffer, __global uchar *addend_buffer, __global const uchar *range_buffer, __global uchar *y_buffer, const Push push CONSTANTS_PARAMETER
#define PASSED step_buffer, x_buffer, addend_buffer, range_buffer, y_buffer, push CONSTANTS_PASSED
)");
  const std::string attention = Header(Shader::kAttention, kOpenCl);
  EXPECT_THAT(attention, HasSubstr("#define kHeads C1\n"));
  EXPECT_THAT(attention, HasSubstr("#define kWindow ((int)C10)\n"));
  EXPECT_THAT(attention, HasSubstr("#define kScale as_float(C12)\n"));
}

TEST(KernelSourceTest, AnOptionalRecordIsThereIfTheKernelAsksForIt) {
  const std::string matvec = Header(Shader::kMatVec, kOpenCl);
  EXPECT_THAT(matvec, HasSubstr("#ifndef HAS_PROLOGUE\n#define HAS_PROLOGUE 0\n#endif"));
  EXPECT_THAT(matvec, HasSubstr("#if HAS_PROLOGUE\n  Prologue prologue;\n#endif\n} Push;"));
  EXPECT_THAT(Header(Shader::kRope, kOpenCl), Not(HasSubstr("PROLOGUE")));
}

TEST(KernelSourceTest, SharedMemoryIsVariablesOrAStruct) {
  const std::string glsl = Header(Shader::kTypicalP, kGlsl);
  EXPECT_THAT(glsl, HasSubstr("shared float shared_scan[ALL_THREADS];\n"
                              "shared uint shared_keys[kShared == 0 ? 1 : kShared];\n"));
  const std::string opencl = Header(Shader::kTypicalP, kOpenCl);
  EXPECT_THAT(opencl, HasSubstr("  float scan[ALL_THREADS];\n"
                                "  uint keys[kShared == 0 ? 1 : kShared];\n"));
  EXPECT_THAT(opencl, HasSubstr("} LocalMemory;\n"
                                "#define LOCAL_ __local LocalMemory *local_memory,\n"
                                "#define LOCAL local_memory,\n"
                                "#define KERNEL KERNEL_WITH_LOCAL_MEMORY\n"));
}

TEST(KernelSourceTest, TraitsAreThoseOfTheKernel) {
  EXPECT_TRUE(TraitsOf(Shader::kMatMulCoop).on_matrix_units);
  EXPECT_FALSE(TraitsOf(Shader::kMatMul).on_matrix_units);
  EXPECT_TRUE(TraitsOf(Shader::kAttentionRow).skips_loops);
  EXPECT_FALSE(TraitsOf(Shader::kAttentionRow).on_matrix_units);
}

TEST(KernelSourceTest, ConstantsAreFoundByNameAndKind) {
  EXPECT_EQ(FindConstant(Shader::kAttention, "kKeyType"), 6U);
  EXPECT_EQ(FindConstant(Shader::kAttention, "kWeather"), 0U);
  EXPECT_EQ(FindCapacity(Shader::kTopK), 1U);
  EXPECT_EQ(FindCapacity(Shader::kRope), 0U);
}

// The host's structs have no holes, so a field lies where the kernels' compilers put it.
TEST(KernelSourceTest, ArgumentsFollowOneAnother) {
  using kernels::MatVecDotLayout;
  EXPECT_EQ(offsetof(MatVecDotLayout, rows), 8 * sizeof(DeviceAddress));
  EXPECT_EQ(offsetof(MatVecDotLayout, n), 8 * sizeof(DeviceAddress) + 3 * sizeof(uint32_t));
  EXPECT_EQ(offsetof(kernels::PrologueLayout, eps), 6 * sizeof(DeviceAddress));
}

}  // namespace
}  // namespace rullama::gpu
