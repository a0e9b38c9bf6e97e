// The translation of kernels to WGSL. Whether it means the same is for conformance to say.
#include "backends/webgpu/wgsl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rullama/sdk/backend.h>

#include <array>
#include <string>

#include "backends/gpu/kernels.h"

// Written when the backend vulkan is built: the code of each shader as kNamePlain.
#include "plain_spirv.h"

namespace rullama::webgpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// StateAppend's constants: invocations of a workgroup, bytes of an element.
std::string Append(uint32_t bytes) {
  const std::array<uint32_t, 2> constants{64, bytes};
  return WgslOf({kStateAppendPlain, constants, {{0, 1}, {8, 2}, {16, 1}, {24, 1}, {32, 1}}, 2});
}

TEST(Wgsl, TheEntryPointHasBindingsAndAWorkgroup) {
  EXPECT_THAT(Append(4), AllOf(HasSubstr("@workgroup_size(64, 1, 1)"),
                               HasSubstr("@binding(0) var<storage, read> rl_arguments"),
                               HasSubstr("@binding(2) var<storage, read_write> rl_memory2"),
                               Not(HasSubstr("@binding(3)"))));
}

// Two elements of 16 bits share a word, which two invocations write.
TEST(Wgsl, ElementsOf16BitsAreWrittenByAtomics) {
  EXPECT_THAT(Append(2), AllOf(HasSubstr("rl_store_half"), HasSubstr("array<atomic<u32>>")));
}

TEST(Wgsl, CodeThatConstantsSwitchOffIsLeftOut) {
  EXPECT_THAT(Append(4), AllOf(Not(HasSubstr("rl_store_half")), Not(HasSubstr("array<atomic"))));
}

TEST(Wgsl, ASwitchIsDecidedByItsConstant) {
  const auto text = [](uint32_t function) {
    const std::array<uint32_t, 3> constants{64, RL_OP_unary, function};
    return WgslOf({kPointwisePlain, constants, {}, 1});
  };
  EXPECT_THAT(text(RL_UNARY_NEG), AllOf(Not(HasSubstr("exp")), Not(HasSubstr("sqrt("))));
  EXPECT_THAT(text(RL_UNARY_SQRT), HasSubstr("sqrt("));
}

// How often the text has a part.
size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// ArgMax has barriers in a loop over rows, whose number is in memory, and in a loop in it whose
// bounds are constants.
TEST(Wgsl, BranchesOnMemoryThatBarriersDependOnAreShared) {
  const std::array<uint32_t, 1> constants{64};
  const std::string text = WgslOf({kArgMaxPlain, constants, {}, 1});
  EXPECT_THAT(text, AllOf(HasSubstr("workgroupUniformLoad(&rl_branch)"),
                          HasSubstr("@builtin(local_invocation_index)")));
  EXPECT_EQ(Count(text, "if (!(rl_shared("), 1U);
  EXPECT_EQ(Count(text, "rl_shared("), 2U);  // with its own definition
  EXPECT_EQ(Count(text, "@builtin(local_invocation_index)"), 1U);
}

TEST(Wgsl, BranchesOfKernelsWithoutBarriersAreNot) {
  const std::array<uint32_t, 3> constants{64, RL_OP_unary, RL_UNARY_NEG};
  EXPECT_THAT(WgslOf({kPointwisePlain, constants, {}, 1}), Not(HasSubstr("rl_shared")));
}

// Addresses whose memory is not known when the text is made are looked up.
TEST(Wgsl, UnknownAddressesChooseTheirBinding) {
  const std::array<uint32_t, 2> constants{64, 4};
  EXPECT_THAT(WgslOf({kStateAppendPlain, constants, {}, 2}),
              HasSubstr("case 2u: { return rl_load2"));
}

TEST(Wgsl, OtherCodeIsRefused) {
  const std::array<uint32_t, 2> constants{64, 4};
  const std::array<uint32_t, 6> other{1, 2, 3, 4, 5, 6};
  EXPECT_THROW(WgslOf({other, constants, {}, 1}), sdk::Error);
  const auto cut = std::span(kStateAppendPlain).first(std::size(kStateAppendPlain) / 2);
  EXPECT_THROW(WgslOf({cut, constants, {}, 1}), sdk::Error);
}

}  // namespace
}  // namespace rullama::webgpu
