#include "backends/vulkan/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rullama/sdk/backend.h>

#include <algorithm>
#include <spirv-tools/libspirv.hpp>
#include <spirv/unified1/spirv.hpp>
#include <string>
#include <vector>

// Written at build time: the code of each shader.
#include "spirv.h"

namespace rullama::vulkan {
namespace {

using ::testing::HasSubstr;
using Tasks = std::vector<Spirv>;

constexpr uint32_t kThreads = 128;

Spirv Driver() { return WithConstants(kPersistentTask, {&kThreads, 1}); }
Spirv Task(std::span<const uint32_t> code, std::vector<uint32_t> constants) {
  constants.insert(constants.begin(), kThreads);
  return WithConstants(code, constants);
}

// What the validator has to say, or nothing.
std::string Complaints(const Spirv& code) {
  spvtools::SpirvTools tools(SPV_ENV_VULKAN_1_2);
  std::string text;
  tools.SetMessageConsumer([&text](spv_message_level_t, const char*, const spv_position_t&,
                                   const char* message) { text += message; });
  tools.Validate(code);
  return text;
}

size_t Count(const Spirv& code, spv::Op op) {
  size_t count = 0;
  for (size_t at = 5; at < code.size(); at += code[at] >> spv::WordCountShift) {
    if ((code[at] & spv::OpCodeMask) == op) ++count;
  }
  return count;
}

// A product of q4_k after a norm, with so many columns.
Spirv Product(uint32_t columns) {
  return Task(kMatVecDotTask, {12, 8, 1, 1, 0, 0, 0, 1, 18, columns});
}
Spirv Attention(uint32_t dim) {
  return Task(kAttentionTask, {8, 1, 2, 1, dim, 1, 1, 512, 512, 0, 0x3F800000, 8, 1});
}

TEST(WithConstants, LeavesNoConstantToChoose) {
  const Spirv code = Product(1536);
  EXPECT_EQ(Complaints(code), "");
  for (const spv::Op op : {spv::OpSpecConstant, spv::OpSpecConstantTrue, spv::OpSpecConstantFalse,
                           spv::OpSpecConstantComposite, spv::OpSpecConstantOp}) {
    EXPECT_EQ(Count(code, op), 0U) << op;
  }
}

TEST(WithConstants, DropsTheCodeOfOtherTypes) {
  EXPECT_LT(Product(1536).size(), std::size(kMatVecDotTask) / 2);
}

TEST(Join, GivesOneValidShaderThatCallsEachTask) {
  const Tasks tasks = {Product(1536),           Product(256),
                       Attention(256),          Attention(512),
                       Task(kRopeTask, {1, 0}), Task(kRowsTask, {5, 0}),
                       Task(kTopKTask, {64}),   Task(kArgMaxTask, {}),
                       Task(kScanTask, {2}),    Task(kPenaltiesTask, {0})};
  const Joined joined = Join(Driver(), tasks, kThreads);
  EXPECT_EQ(Complaints(joined.code), "");
  EXPECT_EQ(Count(joined.code, spv::OpEntryPoint), 1U);
  EXPECT_EQ(Count(joined.code, spv::OpMemoryModel), 1U);
  EXPECT_EQ(Count(joined.code, spv::OpSwitch), 1U);
  EXPECT_GE(Count(joined.code, spv::OpFunctionCall), tasks.size());
}

TEST(Join, TasksUseTheSameSharedMemory) {
  const uint32_t small = Join(Driver(), Tasks{Product(256)}, kThreads).shared_bytes;
  const uint32_t large = Join(Driver(), Tasks{Product(1536)}, kThreads).shared_bytes;
  EXPECT_LT(small, large);
  // 2 bytes and half a float of each column.
  EXPECT_EQ(large - small, (1536 - 256) * 2 + (1536 - 256) / 16 * 8);
  EXPECT_EQ(Join(Driver(), Tasks{Product(256), Product(1536)}, kThreads).shared_bytes, large);
}

TEST(Join, TheDriversSharedMemoryIsItsOwn) {
  const Spirv task = Task(kStateAppendTask, {2});  // has one word, as the driver
  EXPECT_EQ(Join(Driver(), {}, kThreads).shared_bytes, 4U);
  EXPECT_EQ(Join(Driver(), Tasks{task, task}, kThreads).shared_bytes, 8U);
}

TEST(Join, WhatIsReadByOneTaskMayBeWrittenByAnother) {
  const Joined joined = Join(Driver(), Tasks{Product(1536)}, kThreads);
  for (size_t at = 5; at < joined.code.size(); at += joined.code[at] >> spv::WordCountShift) {
    if ((joined.code[at] & spv::OpCodeMask) != spv::OpMemberDecorate) continue;
    EXPECT_NE(joined.code[at + 3], static_cast<uint32_t>(spv::DecorationNonWritable));
  }
}

std::string FailureOf(const auto& work) {
  try {
    work();
  } catch (const sdk::Error& error) {
    return error.what();
  }
  return "no failure";
}

TEST(Join, RefusesWhatIsNoShader) {
  const Spirv noise(100, 0x12345678);
  EXPECT_THAT(FailureOf([&] { WithConstants(noise, {}); }), HasSubstr("not SPIR-V"));
  EXPECT_THAT(FailureOf([&] { Join(Driver(), Tasks{noise}, kThreads); }), HasSubstr("not SPIR-V"));
}

TEST(Join, RefusesADriverThatRunsNoTasks) {
  EXPECT_THAT(FailureOf([] { Join(Product(256), Tasks{Product(256)}, kThreads); }),
              HasSubstr("runs no tasks"));
}

TEST(Join, RefusesATaskOfAnotherMemoryModel) {
  const Spirv other = WithConstants(kRopeSubgroups, {&kThreads, 1});
  EXPECT_THAT(FailureOf([&] { Join(Driver(), Tasks{other}, kThreads); }),
              HasSubstr("memory model"));
}

}  // namespace
}  // namespace rullama::vulkan
