#include "backends/vulkan/khr_matrices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rullama/sdk/backend.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <spirv-tools/libspirv.hpp>
#include <string>
#include <vector>

#include "backends/gpu/kernels.h"
#include "backends/vulkan/join.h"

// Written at build time: the code of each shader.
#include "spirv.h"

namespace rullama::vulkan {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
namespace kernels = gpu::kernels;

constexpr uint32_t kA = 0, kB = 1, kAccumulator = 2;  // what a type says its matrices are

// ---- the shaders of this plugin -----------------------------------------------------------------

struct Shader {
  std::string name;
  std::span<const uint32_t> code;
  std::vector<uint32_t> constants;
};
void PrintTo(const Shader& shader, std::ostream* out) { *out << shader.name; }

// Both forms that a dispatch may have.
template <typename Kernel>
void Add(std::vector<Shader>& to, const std::string& name, std::span<const uint32_t> plain,
         std::span<const uint32_t> subgroups, const Kernel& kernel) {
  to.push_back({name + "Plain", plain, ConstantsOf(kernel)});
  to.push_back({name + "Subgroups", subgroups, ConstantsOf(kernel)});
}

void AddProducts(std::vector<Shader>& all) {
  kernels::MatMulCoop product{.threads = 128,
                              .type = RL_DTYPE_Q4_K,
                              .glu = 0,
                              .mode = gpu::ProductMode::kDense,
                              .tile = 64,
                              .columns = 64,
                              .subgroup_rows = 32,
                              .subgroup_columns = 32,
                              .parts = 1};
  Add(all, "Product", kMatMulCoopPlain, kMatMulCoopSubgroups, product);
  product.glu = 1;
  product.mode = gpu::ProductMode::kPairs;
  product.parts = 2;
  Add(all, "GatedProductOfExperts", kMatMulCoopPlain, kMatMulCoopSubgroups, product);
  Add(all, "StoredProduct", kMatMulStoredCoopPlain, kMatMulStoredCoopSubgroups,
      kernels::MatMulStoredCoop{.threads = 256, .type = RL_DTYPE_Q6_K});
}

void AddAttention(std::vector<Shader>& all) {
  kernels::AttentionCoop attention{.threads = 256,
                                   .heads = 8,
                                   .kv_heads = 2,
                                   .group = 4,
                                   .queries = 32,
                                   .dim = 256,
                                   .slots = 2,
                                   .capacity = 512,
                                   .window = 0,
                                   .canvas = 0,
                                   .scale = 1.0F,
                                   .max_fresh = 64,
                                   .parts = 1,
                                   .stats = 0};
  Add(all, "Attention", kAttentionCoopPlain, kAttentionCoopSubgroups, attention);
  attention.parts = 2;
  Add(all, "AttentionInParts", kAttentionCoopPlain, kAttentionCoopSubgroups, attention);
  attention.stats = 1;
  Add(all, "AttentionStats", kAttentionCoopPlain, kAttentionCoopSubgroups, attention);
  kernels::AttentionFreshCoop fresh{
      .threads = 128, .heads = 8, .kv_heads = 8, .dim = 72, .slots = 1, .scale = 1.0F, .parts = 1};
  Add(all, "FreshAttention", kAttentionFreshCoopPlain, kAttentionFreshCoopSubgroups, fresh);
  fresh.parts = 2;
  Add(all, "FreshAttentionInParts", kAttentionFreshCoopPlain, kAttentionFreshCoopSubgroups, fresh);
}

std::vector<Shader> Shaders() {
  std::vector<Shader> all;
  AddProducts(all);
  AddAttention(all);
  return all;
}

// ---- code of KHR --------------------------------------------------------------------------------

// SPIRV-Tools of older distributions do not know KHR's instructions, but others of the same form.
std::vector<Instruction> Read(Spirv code) {
  const std::map<spv::Op, spv::Op> alike = {{khr::kOpTypeMatrix, spv::OpTypeStruct},
                                            {khr::kOpLoad, spv::OpCooperativeMatrixLoadNV},
                                            {khr::kOpStore, spv::OpCooperativeMatrixStoreNV},
                                            {khr::kOpMulAdd, spv::OpCooperativeMatrixMulAddNV},
                                            {khr::kOpLength, spv::OpCooperativeMatrixLengthNV}};
  std::vector<spv::Op> ops;
  for (size_t at = kHeaderWords; at < code.size(); at += code[at] >> spv::WordCountShift) {
    const auto op = static_cast<spv::Op>(code[at] & spv::OpCodeMask);
    ops.push_back(op);
    const auto found = alike.find(op);
    if (found != alike.end()) code[at] = (code[at] & ~spv::OpCodeMask) | found->second;
    const bool is_capability = op == spv::OpCapability && code[at + 1] == khr::kCapability;
    if (is_capability) code[at + 1] = spv::CapabilityCooperativeMatrixNV;
  }
  std::vector<Instruction> instructions = Parse(code);
  EXPECT_EQ(instructions.size(), ops.size());
  for (size_t i = 0; i < ops.size(); ++i) instructions[i].op = ops[i];
  return instructions;
}

std::vector<Instruction> All(const std::vector<Instruction>& code, spv::Op op) {
  std::vector<Instruction> found;
  std::ranges::copy_if(code, std::back_inserter(found),
                       [&](const Instruction& instruction) { return instruction.op == op; });
  return found;
}

// The value of each constant of 32 bits.
std::map<uint32_t, uint32_t> ConstantsIn(const std::vector<Instruction>& code) {
  std::map<uint32_t, uint32_t> values;
  for (const Instruction& i : All(code, spv::OpConstant)) values[i.result] = i.words[3];
  return values;
}

// By matrix type: what it says its matrices are.
std::map<uint32_t, uint32_t> MatrixTypesIn(const std::vector<Instruction>& code) {
  std::map<uint32_t, uint32_t> uses;
  const auto constants = ConstantsIn(code);
  for (const Instruction& type : All(code, khr::kOpTypeMatrix)) {
    EXPECT_EQ(type.words.size(), 7U);
    uses[type.result] = constants.at(type.words[6]);
  }
  return uses;
}

// Ids that are used in front of their declaration, other than those that may be: of functions,
// blocks and values of OpPhi.
std::set<uint32_t> UsedTooSoon(const std::vector<Instruction>& code) {
  std::set<uint32_t> known, later, early;
  for (const Instruction& i : code) {
    if (i.op == spv::OpFunction || i.op == spv::OpLabel) later.insert(i.result);
  }
  for (const Instruction& i : code) {
    const bool names = i.op == spv::OpName || i.op == spv::OpMemberName ||
                       i.op == spv::OpDecorate || i.op == spv::OpMemberDecorate ||
                       i.op == spv::OpEntryPoint || i.op == spv::OpTypeForwardPointer ||
                       i.op == spv::OpPhi;
    for (const uint16_t at : i.ids) {
      const uint32_t id = i.words[at];
      if (!names && id != i.result && !known.contains(id) && !later.contains(id)) early.insert(id);
    }
    EXPECT_TRUE(i.result == 0 || known.insert(i.result).second) << i.result;
    if (i.op == spv::OpTypeForwardPointer) later.insert(i.words[1]);
  }
  return early;
}

uint32_t TypeOf(const std::vector<Instruction>& code, uint32_t id) {
  for (const Instruction& i : code) {
    if (i.result == id) return i.type;
  }
  return 0;
}

// All products take A, B and an accumulator and give an accumulator. Returns how many there are.
size_t CheckProducts(const std::vector<Instruction>& code) {
  const auto uses = MatrixTypesIn(code);
  const std::vector<Instruction> products = All(code, khr::kOpMulAdd);
  for (const Instruction& product : products) {
    const auto use_of = [&](size_t at) { return uses.at(TypeOf(code, product.words[at])); };
    EXPECT_EQ(uses.at(product.type), kAccumulator);
    EXPECT_EQ(use_of(3), kA);
    EXPECT_EQ(use_of(4), kB);
    EXPECT_EQ(use_of(5), kAccumulator);
  }
  return products.size();
}

// Layouts of loads and stores are constants: by rows or by columns.
void CheckLayouts(const std::vector<Instruction>& code) {
  const auto constants = ConstantsIn(code);
  for (const Instruction& i : code) {
    if (i.op != khr::kOpLoad && i.op != khr::kOpStore) continue;
    EXPECT_LE(constants.at(i.words[i.op == khr::kOpLoad ? 4 : 3]), 1U);
  }
}

size_t CapabilitiesOf(const Spirv& code, spv::Capability capability) {
  size_t count = 0;
  for (size_t at = kHeaderWords; at < code.size(); at += code[at] >> spv::WordCountShift) {
    const bool is_capability = (code[at] & spv::OpCodeMask) == spv::OpCapability;
    if (is_capability && code[at + 1] == static_cast<uint32_t>(capability)) ++count;
  }
  return count;
}

void CheckNoNv(const Spirv& binary, const std::vector<Instruction>& code) {
  for (const spv::Op op : {spv::OpTypeCooperativeMatrixNV, spv::OpCooperativeMatrixLoadNV,
                           spv::OpCooperativeMatrixStoreNV, spv::OpCooperativeMatrixMulAddNV,
                           spv::OpCooperativeMatrixLengthNV}) {
    EXPECT_TRUE(All(code, op).empty()) << op;
  }
  for (const Instruction& i : All(code, spv::OpSpecConstantOp)) {
    EXPECT_NE(i.words[3], static_cast<uint32_t>(spv::OpCooperativeMatrixLengthNV));
  }
  EXPECT_EQ(CapabilitiesOf(binary, spv::CapabilityCooperativeMatrixNV), 0U);
  EXPECT_EQ(CapabilitiesOf(binary, khr::kCapability), 1U);
  std::multiset<std::string> extensions;
  for (const Instruction& i : All(code, spv::OpExtension)) {
    extensions.insert(reinterpret_cast<const char*>(&i.words[1]));
  }
  EXPECT_EQ(extensions.count("SPV_NV_cooperative_matrix"), 0U);
  EXPECT_EQ(extensions.count("SPV_KHR_cooperative_matrix"), 1U);
}

class ShaderOfKhr : public ::testing::TestWithParam<Shader> {};

TEST_P(ShaderOfKhr, HasTheSameProductsWithAUseForEachMatrix) {
  const Spirv nv = WithConstants(GetParam().code, GetParam().constants);
  const std::optional<Spirv> khr = WithKhrMatrices(nv);
  ASSERT_TRUE(khr.has_value());
  const std::vector<Instruction> before = Parse(nv), after = Read(*khr);
  CheckNoNv(*khr, after);
  CheckLayouts(after);
  EXPECT_EQ(UsedTooSoon(after), std::set<uint32_t>());
  EXPECT_EQ(CheckProducts(after), All(before, spv::OpCooperativeMatrixMulAddNV).size());
  EXPECT_EQ(All(after, khr::kOpLoad).size(), All(before, spv::OpCooperativeMatrixLoadNV).size());
  EXPECT_EQ(All(after, khr::kOpStore).size(), All(before, spv::OpCooperativeMatrixStoreNV).size());
  EXPECT_GT((*khr)[kBoundAt], nv[kBoundAt]);
  for (const Instruction& i : after) EXPECT_LT(i.result, (*khr)[kBoundAt]);
}

INSTANTIATE_TEST_SUITE_P(All, ShaderOfKhr, ::testing::ValuesIn(Shaders()),
                         [](const auto& test) { return test.param.name; });

TEST(WithKhrMatrices, LeavesShadersWithoutMatrices) {
  const uint32_t threads = 64;
  EXPECT_FALSE(WithKhrMatrices(WithConstants(kScanPlain, {&threads, 1})).has_value());
}

// ---- small modules ------------------------------------------------------------------------------

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
  spvtools::SpirvTools tools(kTarget);
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
  std::vector<Instruction> instructions = Read(*khr);
  CheckNoNv(*khr, instructions);
  EXPECT_EQ(UsedTooSoon(instructions), std::set<uint32_t>());
  CheckProducts(instructions);
  return instructions;
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
  std::vector<uint32_t> uses;
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
  const auto uses = MatrixTypesIn(code);
  std::vector<uint32_t> loaded;
  for (const Instruction& load : All(code, khr::kOpLoad)) loaded.push_back(uses.at(load.type));
  EXPECT_EQ(loaded, (std::vector<uint32_t>{kA, kB}));
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
  const auto uses = MatrixTypesIn(code);
  std::vector<uint32_t> loaded;
  for (const Instruction& load : All(code, khr::kOpLoad)) loaded.push_back(uses.at(load.type));
  EXPECT_EQ(loaded, (std::vector<uint32_t>{kB, kA}));
  const auto phis = All(code, spv::OpPhi);
  ASSERT_EQ(phis.size(), 1U);
  EXPECT_EQ(uses.at(phis[0].type), kB);
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
  EXPECT_THAT(FailureOf(code), HasSubstr("not SPIR-V"));
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

TEST(WithKhrMatrices, RefusesAConversionToAnotherOperand) {
  EXPECT_THAT(FailureOf(Main(std::string(kLoads) + R"(
    %p = OpCooperativeMatrixMulAddNV %sums %m %n %zero
    %x = OpFConvert %factors %p
    %q = OpCooperativeMatrixMulAddNV %sums %x %n %zero
  )")),
              HasSubstr("and also A"));
}

TEST(WithKhrMatrices, RefusesElementsWhoseOrderIsUnknown) {
  EXPECT_THAT(FailureOf(Main(std::string("%v = OpVariable %local Function\n") + kLoads + R"(
    %p = OpCooperativeMatrixMulAddNV %sums %m %n %zero
    %element = OpAccessChain %local_half %v %int_0
    OpStore %element %half_0
  )")),
              HasSubstr("may be of A, B or an accumulator"));
  EXPECT_THAT(FailureOf(Main(std::string(kLoads) + R"(
    %p = OpCooperativeMatrixMulAddNV %sums %m %n %zero
    %from = OpCompositeExtract %half %m 0
    %x = OpCompositeInsert %factors %from %n 0
  )")),
              HasSubstr("is B and also A"));
}

TEST(WithKhrMatrices, RefusesMatricesOfNoProduct) {
  EXPECT_THAT(FailureOf(Main(kLoads)), HasSubstr("in none either"));
}

TEST(WithKhrMatrices, RefusesALayoutThatIsNoConstant) {
  EXPECT_THAT(FailureOf(Main(std::string(kLoads) + R"(
    %o = OpCooperativeMatrixLoadNV %factors %at %uint_16 %chosen
    %p = OpCooperativeMatrixMulAddNV %sums %m %o %zero
  )")),
              HasSubstr("no constant"));
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
              HasSubstr("not known"));
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

TEST(WithKhrMatrices, RefusesConstantsMadeOfLengths) {
  EXPECT_THAT(FailureOf(Assembled(std::string(kBegin) + kLengths + R"(
    %pair = OpTypeVector %int 2
    %both = OpConstantComposite %pair %signed_length %int_0
  )" + kMain + kLoads + "%p = OpCooperativeMatrixMulAddNV %sums %m %n %zero\n" +
                                  kEnd)),
              HasSubstr("a constant is made of"));
}

}  // namespace
}  // namespace rullama::vulkan
