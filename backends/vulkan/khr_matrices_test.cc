// Small modules for VK_KHR_cooperative_matrix.
#include "backends/vulkan/khr_matrices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rullama/sdk/backend.h>

#include <spirv-tools/libspirv.hpp>
#include <string>
#include <vector>

#include "backends/vulkan/khr_checks_test_util.h"

namespace rullama::vulkan {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using enum MatrixUse;

constexpr const char* kBegin = R"(
OpCapability Shader
OpCapability Float16
OpCapability VulkanMemoryModel
OpCapability CooperativeMatrixNV
OpExtension "SPV_NV_cooperative_matrix"
OpMemoryModel Logical Vulkan
OpEntryPoint GLCompute %main "main" %memory %many
OpExecutionMode %main LocalSize 32 1 1
OpName %x "x"
OpName %unused "unused"
%void = OpTypeVoid
%nothing = OpTypeFunction %void
%bool = OpTypeBool
%true = OpConstantTrue %bool
%false = OpConstantFalse %bool
%chosen = OpSpecConstantTrue %bool
%uint = OpTypeInt 32 0
%int = OpTypeInt 32 1
%uint_1 = OpConstant %uint 1
%uint_3 = OpConstant %uint 3
%uint_16 = OpConstant %uint 16
%int_0 = OpConstant %int 0
%half = OpTypeFloat 16
%float = OpTypeFloat 32
%half_0 = OpConstant %half 0
%float_0 = OpConstant %float 0
%factors = OpTypeCooperativeMatrixNV %half %uint_3 %uint_16 %uint_16
%sums = OpTypeCooperativeMatrixNV %float %uint_3 %uint_16 %uint_16
%unused = OpTypePointer Private %factors
%zero = OpConstantComposite %sums %float_0
%two = OpTypeArray %factors %uint_3
%local = OpTypePointer Function %factors
%local_two = OpTypePointer Function %two
%local_half = OpTypePointer Function %half
%private = OpTypePointer Private %sums
%many = OpVariable %private Private
%take = OpTypeFunction %factors %factors %factors
%shared = OpTypePointer Workgroup %half
%array = OpTypeArray %half %uint_16
%shared_array = OpTypePointer Workgroup %array
%memory = OpVariable %shared_array Workgroup
)";
constexpr const char* kMain = R"(
%main = OpFunction %void None %nothing
%block = OpLabel
)";
constexpr const char* kEnd = R"(
OpReturn
OpFunctionEnd
)";
// Matrices %m and %n.
constexpr const char* kLoads = R"(
%at = OpAccessChain %shared %memory %int_0
%m = OpCooperativeMatrixLoadNV %factors %at %uint_16 %false
%n = OpCooperativeMatrixLoadNV %factors %at %uint_16 %true MakePointerVisible|NonPrivatePointer %uint_3
)";

Spirv Assembled(const std::string& text) {
  spvtools::SpirvTools tools(kSpirvTarget);
  std::string messages;
  tools.SetMessageConsumer(
      [&](spv_message_level_t, const char*, const spv_position_t& at, const char* message) {
        messages += std::to_string(at.line) + ": " + message + "\n";
      });
  Spirv code;
  EXPECT_TRUE(tools.Assemble(text, &code)) << messages;
  return code;
}

// A main function of these instructions.
Spirv Main(const std::string& text) { return Assembled(std::string(kBegin) + kMain + text + kEnd); }

std::vector<Instruction> Rewritten(const Spirv& code) {
  const std::optional<Spirv> khr = WithKhrMatrices(code);
  if (!khr) {
    ADD_FAILURE() << "no matrices";
    return {};
  }
  CheckKhr(code, *khr);
  return ReadKhr(*khr);
}

std::string FailureOf(const Spirv& code) {
  try {
    WithKhrMatrices(code);
  } catch (const sdk::Error& error) {
    EXPECT_EQ(error.code(), RL_INTERNAL);
    return error.what();
  }
  return "no failure";
}

TEST(WithKhrMatrices, MovesStrideAndLayout) {
  const auto code = Rewritten(Main(std::string(kLoads) + R"(
    %p = OpCooperativeMatrixMulAddNV %sums %m %n %zero
    OpCooperativeMatrixStoreNV %at %n %uint_3 %false
  )"));
  const auto constants = ConstantsIn(code);
  const auto loads = All(code, khr::kOpLoad), stores = All(code, khr::kOpStore);
  ASSERT_EQ(loads.size(), 2U);
  ASSERT_EQ(stores.size(), 1U);
  EXPECT_EQ(constants.at(loads[0].words[4]), 0U);
  EXPECT_EQ(constants.at(loads[0].words[5]), 16U);
  EXPECT_EQ(constants.at(loads[1].words[4]), 1U);
  EXPECT_EQ(constants.at(loads[1].words[5]), 16U);
  ASSERT_EQ(loads[1].words.size(), 8U);
  EXPECT_EQ(loads[1].words[6], static_cast<uint32_t>(spv::MemoryAccessMakePointerVisibleMask |
                                                     spv::MemoryAccessNonPrivatePointerMask));
  EXPECT_EQ(constants.at(stores[0].words[3]), 0U);
  EXPECT_EQ(constants.at(stores[0].words[4]), 3U);
}

TEST(WithKhrMatrices, MakesATypeForEachUse) {
  const auto code = Rewritten(Main(std::string(kLoads) + R"(
    %p = OpCooperativeMatrixMulAddNV %sums %m %n %zero
  )"));
  std::vector<MatrixUse> uses;
  for (const auto& [type, use] : MatrixTypesIn(code)) uses.push_back(use);
  EXPECT_THAT(uses, UnorderedElementsAre(kA, kB, kAccumulator));
}

TEST(WithKhrMatrices, FollowsArraysAndVariables) {
  const auto code = Rewritten(Main(std::string("%v = OpVariable %local Function\n") +
                                   "%w = OpVariable %local_two Function\n" + kLoads + R"(
    OpStore %v %m
    %a = OpLoad %factors %v
    %place = OpAccessChain %local %w %uint_1
    OpStore %place %n
    %b = OpLoad %factors %place
    %negative = OpFNegate %factors %b
    %copy = OpCopyObject %factors %negative
    %p = OpCooperativeMatrixMulAddNV %sums %a %copy %zero
    OpStore %many %p
  )"));
  EXPECT_THAT(UsesOfLoads(code), ElementsAre(kA, kB));
}

TEST(WithKhrMatrices, FollowsStructs) {
  const auto code = Rewritten(Assembled(std::string(kBegin) + R"(
    %both = OpTypeStruct %factors %sums
    %local_both = OpTypePointer Function %both
    %local_sums = OpTypePointer Function %sums
    %int_1 = OpConstant %int 1
  )" + kMain + "%v = OpVariable %local_both Function\n" +
                                        kLoads + R"(
    %made = OpCompositeConstruct %both %m %zero
    OpStore %v %made
    %first = OpAccessChain %local %v %int_0
    %a = OpLoad %factors %first
    %second = OpAccessChain %local_sums %v %int_1
    %c = OpLoad %sums %second
    %p = OpCooperativeMatrixMulAddNV %sums %a %n %c
    %changed = OpCompositeInsert %both %p %made 1
    %sum = OpCompositeExtract %sums %changed 1
    OpStore %many %sum
  )" + kEnd));
  EXPECT_THAT(UsesOfLoads(code), ElementsAre(kA, kB));
}

TEST(WithKhrMatrices, FollowsChoicesAndCopies) {
  const auto code = Rewritten(Main(std::string("%v = OpVariable %local Function\n") +
                                   "%w = OpVariable %local Function\n" + kLoads + R"(
    OpStore %v %m
    OpCopyMemory %w %v
    %copied = OpLoad %factors %w
    %o = OpCooperativeMatrixLoadNV %factors %at %uint_16 %false
    %either = OpSelect %factors %true %n %o
    %p = OpCooperativeMatrixMulAddNV %sums %either %copied %zero
  )"));
  EXPECT_THAT(UsesOfLoads(code), ElementsAre(kB, kA, kA));
}

TEST(WithKhrMatrices, FollowsValuesWithoutAnOrigin) {
  const auto code =
      Rewritten(Assembled(std::string(kBegin) + R"(
    %empty = OpConstantNull %factors
    %local_sums = OpTypePointer Function %sums
  )" + kMain + "%v = OpVariable %local Function %empty\n" +
                          "%w = OpVariable %local_sums Function %zero\n" + kLoads + R"(
    %left = OpLoad %factors %v
    %right = OpUndef %factors
    %c = OpLoad %sums %w
    %p = OpCooperativeMatrixMulAddNV %sums %left %right %c
    %q = OpCooperativeMatrixMulAddNV %sums %n %m %p
  )" + kEnd));
  const auto uses = MatrixTypesIn(code);
  EXPECT_EQ(uses.at(All(code, spv::OpConstantNull).at(0).type), kA);
  EXPECT_EQ(uses.at(All(code, spv::OpUndef).at(0).type), kB);
  EXPECT_THAT(UsesOfLoads(code), ElementsAre(kB, kA));
}

// A function whose parameters have one type in NV and two in KHR, and what a call of it gives.
TEST(WithKhrMatrices, FollowsCallsAndBranches) {
  const auto code = Rewritten(Assembled(std::string(kBegin) + R"(
    %choose = OpFunction %factors None %take
    %left = OpFunctionParameter %factors
    %right = OpFunctionParameter %factors
    %inside = OpLabel
    %q = OpCooperativeMatrixMulAddNV %sums %right %left %zero
    OpReturnValue %left
    OpFunctionEnd
  )" + kMain + kLoads + R"(
    %given = OpFunctionCall %factors %choose %m %n
    OpSelectionMerge %end None
    OpBranchConditional %true %then %end
    %then = OpLabel
    OpBranch %end
    %end = OpLabel
    %either = OpPhi %factors %given %block %m %then
    OpCooperativeMatrixStoreNV %at %either %uint_16 %false
  )" + kEnd));
  EXPECT_THAT(UsesOfLoads(code), ElementsAre(kB, kA));
  const auto phis = All(code, spv::OpPhi);
  ASSERT_EQ(phis.size(), 1U);
  EXPECT_EQ(MatrixTypesIn(code).at(phis[0].type), kB);
}

constexpr const char* kLengths = R"(
%length = OpSpecConstantOp %uint CooperativeMatrixLengthNV %sums
%signed_length = OpSpecConstantOp %int IAdd %length %int_0
)";

TEST(WithKhrMatrices, ComputesLengthsInFunctions) {
  const auto code = Rewritten(Assembled(std::string(kBegin) + kLengths + kMain +
                                        "%v = OpVariable %local Function\n" + kLoads + R"(
    %p = OpCooperativeMatrixMulAddNV %sums %m %n %zero
    %more = OpIAdd %int %signed_length %int_0
  )" + kEnd));
  const auto lengths = All(code, khr::kOpLength);
  ASSERT_EQ(lengths.size(), 1U);
  EXPECT_EQ(MatrixTypesIn(code).at(lengths[0].words[3]), kAccumulator);
  const auto sums = All(code, spv::OpIAdd);
  ASSERT_EQ(sums.size(), 2U);
  EXPECT_EQ(sums[0].words[3], lengths[0].result);
  EXPECT_EQ(sums[1].words[3], sums[0].result);
}

// ---- what has no counterpart --------------------------------------------------------------------

TEST(WithKhrMatrices, RefusesATruncatedModule) {
  Spirv code = Main(std::string(kLoads) + "%p = OpCooperativeMatrixMulAddNV %sums %m %n %zero\n");
  code.pop_back();  // OpFunctionEnd
  EXPECT_THAT(FailureOf(code), HasSubstr("no end"));
  code.resize(code.size() - 2);  // OpReturn and a word of the product
  EXPECT_THAT(FailureOf(code), HasSubstr("not SPIR-V"));
  code.resize(3);
  EXPECT_FALSE(WithKhrMatrices(code).has_value());  // no instruction says that it has matrices
}

TEST(WithKhrMatrices, RefusesAMatrixThatIsTwoOperands) {
  const std::string x =
      "%at = OpAccessChain %shared %memory %int_0\n"
      "%x = OpCooperativeMatrixLoadNV %factors %at %uint_16 %false\n";
  EXPECT_THAT(FailureOf(Main(x + "%p = OpCooperativeMatrixMulAddNV %sums %x %x %zero\n")),
              HasSubstr("(x) is A and also B"));
  EXPECT_THAT(FailureOf(Main(x + R"(
    %y = OpCopyObject %factors %x
    %p = OpCooperativeMatrixMulAddNV %sums %x %y %zero
  )")),
              HasSubstr("is A and also B"));
}

// The result would be an accumulator in f16, A or B in f32.
TEST(WithKhrMatrices, RefusesConversions) {
  EXPECT_THAT(FailureOf(Main(std::string(kLoads) + R"(
    %p = OpCooperativeMatrixMulAddNV %sums %m %n %zero
    %x = OpFConvert %factors %p
    OpCooperativeMatrixStoreNV %at %x %uint_16 %false
  )")),
              HasSubstr("OpFConvert of"));
  EXPECT_THAT(FailureOf(Main(std::string(kLoads) + R"(
    %p = OpCooperativeMatrixMulAddNV %sums %m %n %zero
    %o = OpCooperativeMatrixLoadNV %factors %at %uint_16 %false
    %x = OpFConvert %sums %o
    OpCooperativeMatrixStoreNV %at %x %uint_16 %false
  )")),
              HasSubstr("which has matrices, is not supported"));
}

// Devices are asked for products of 16 x 16 x 16 numbers of f16 into f32 by a subgroup.
TEST(WithKhrMatrices, RefusesTypesThatDevicesNeedNotHave) {
  constexpr const char* kNotAskedFor = "devices are only asked for";
  const std::string constants =
      "%uint_2 = OpConstant %uint 2\n%uint_8 = OpConstant %uint 8\n"
      "%some = OpSpecConstant %uint 16\n";
  for (const std::string shape : {"%uint_2 %uint_16 %uint_16", "%uint_3 %uint_8 %uint_16",
                                  "%uint_3 %uint_16 %uint_8", "%uint_3 %uint_16 %some"}) {
    EXPECT_THAT(FailureOf(Assembled(std::string(kBegin) + constants +
                                    "%other = OpTypeCooperativeMatrixNV %half " + shape + kMain +
                                    kLoads + R"(
      %o = OpCooperativeMatrixLoadNV %other %at %uint_16 %false
      %p = OpCooperativeMatrixMulAddNV %sums %o %n %zero
    )" + kEnd)),
                HasSubstr(kNotAskedFor))
        << shape;
  }
  EXPECT_THAT(FailureOf(Main(std::string(kLoads) + R"(
    %o = OpCooperativeMatrixLoadNV %sums %at %uint_16 %false
    %p = OpCooperativeMatrixMulAddNV %sums %m %o %zero
  )")),
              HasSubstr(kNotAskedFor));
  EXPECT_THAT(FailureOf(Main(std::string(kLoads) + R"(
    %o = OpUndef %factors
    %p = OpCooperativeMatrixMulAddNV %factors %m %n %o
    %q = OpCooperativeMatrixMulAddNV %sums %m %n %zero
  )")),
              HasSubstr(kNotAskedFor));
}

TEST(WithKhrMatrices, RefusesElementsWhoseOrderIsUnknown) {
  EXPECT_THAT(FailureOf(Main(std::string("%v = OpVariable %local Function\n") + kLoads + R"(
    %p = OpCooperativeMatrixMulAddNV %sums %m %n %zero
    %element = OpAccessChain %local_half %v %int_0
    OpStore %element %half_0
  )")),
              HasSubstr("others of its type are different operands"));
  EXPECT_THAT(FailureOf(Main(std::string(kLoads) + R"(
    %p = OpCooperativeMatrixMulAddNV %sums %m %n %zero
    %from = OpCompositeExtract %half %m 0
    %x = OpCompositeInsert %factors %from %n 0
  )")),
              HasSubstr("is B and also A"));
}

TEST(WithKhrMatrices, RefusesMatricesOfNoProduct) {
  EXPECT_THAT(FailureOf(Main(kLoads)), HasSubstr("nor any other of its type"));
}

TEST(WithKhrMatrices, RefusesALayoutThatIsNoConstant) {
  EXPECT_THAT(FailureOf(Main(std::string(kLoads) + R"(
    %o = OpCooperativeMatrixLoadNV %factors %at %uint_16 %chosen
    %p = OpCooperativeMatrixMulAddNV %sums %m %o %zero
  )")),
              HasSubstr("not a constant"));
  EXPECT_THAT(FailureOf(Main(std::string(kLoads) + R"(
    %o = OpCooperativeMatrixLoadNV %factors %at %uint_16 %missing
    %p = OpCooperativeMatrixMulAddNV %sums %m %o %zero
  )")),
              HasSubstr("is not defined"));
}

TEST(WithKhrMatrices, RefusesInstructionsItDoesNotKnow) {
  EXPECT_THAT(FailureOf(Main(std::string(kLoads) + R"(
    %p = OpCooperativeMatrixMulAddNV %sums %m %n %zero
    %x = OpFMod %factors %m %m
  )")),
              HasSubstr("OpFMod of %"));
  EXPECT_THAT(
      FailureOf(Assembled(std::string(kBegin) +
                          "%part = OpSpecConstantOp %half CompositeExtract %zero 0\n" + kMain +
                          kLoads + "%p = OpCooperativeMatrixMulAddNV %sums %m %n %zero\n" + kEnd)),
      HasSubstr("OpSpecConstantOp of %"));
}

TEST(WithKhrMatrices, RefusesAnotherMemoryModel) {
  Spirv code = Main(kLoads);
  for (size_t at = kHeaderWords; at < code.size(); at += code[at] >> spv::WordCountShift) {
    const bool is_capability = (code[at] & spv::OpCodeMask) == spv::OpCapability;
    if (is_capability && code[at + 1] == spv::CapabilityVulkanMemoryModel) {
      code[at + 1] = spv::CapabilityInt64;
    }
  }
  EXPECT_THAT(FailureOf(code), HasSubstr("memory model"));
}

TEST(WithKhrMatrices, RefusesCallsWithoutAllArguments) {
  EXPECT_THAT(FailureOf(Assembled(std::string(kBegin) + R"(
    %choose = OpFunction %factors None %take
    %left = OpFunctionParameter %factors
    %right = OpFunctionParameter %factors
    %inside = OpLabel
    OpReturnValue %left
    OpFunctionEnd
  )" + kMain + kLoads + R"(
    %given = OpFunctionCall %factors %choose %m
    %p = OpCooperativeMatrixMulAddNV %sums %m %n %zero
  )" + kEnd)),
              HasSubstr("not as many arguments as parameters"));
}

TEST(WithKhrMatrices, RefusesTypesAndConstantsMadeOfLengths) {
  const std::string globals[] = {
      "%pair = OpTypeVector %int 2\n%both = OpConstantComposite %pair %signed_length %int_0\n",
      "%floats = OpTypeArray %float %length\n",
      "%matrices = OpTypeArray %factors %length\n",
  };
  for (const std::string& global : globals) {
    EXPECT_THAT(FailureOf(Assembled(std::string(kBegin) + kLengths + global + kMain + kLoads +
                                    "%p = OpCooperativeMatrixMulAddNV %sums %m %n %zero\n" + kEnd)),
                HasSubstr("needs the number of elements, which is not a constant in KHR"))
        << global;
  }
}

TEST(WithKhrMatrices, SaysHowToDoWithout) {
  EXPECT_THAT(
      FailureOf(Main(kLoads)),
      EndsWith(
          "; the option cooperative_matrix avoids it as nv, where the device has that, or off"));
}

}  // namespace
}  // namespace rullama::vulkan
