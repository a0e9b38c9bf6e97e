#include "backends/vulkan/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rullama/sdk/backend.h>

#include <algorithm>
#include <set>
#include <span>
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

// The validator's messages; empty if the code is valid.
std::string Complaints(const Spirv& code) {
  spvtools::SpirvTools tools(SPV_ENV_VULKAN_1_2);
  std::string text;
  tools.SetMessageConsumer([&text](spv_message_level_t, const char*, const spv_position_t&,
                                   const char* message) { text += message; });
  tools.Validate(code);
  return text;
}

// The instructions of one kind, each from its first word on.
std::vector<std::span<const uint32_t>> All(std::span<const uint32_t> code, spv::Op op) {
  std::vector<std::span<const uint32_t>> found;
  for (size_t at = 5; at < code.size(); at += code[at] >> spv::WordCountShift) {
    if ((code[at] & spv::OpCodeMask) == op) {
      found.push_back(code.subspan(at, code[at] >> spv::WordCountShift));
    }
  }
  return found;
}

// Switches with `cases` cases, without the default.
size_t SwitchesOf(const Spirv& code, size_t cases) {
  const auto all = All(code, spv::OpSwitch);
  return static_cast<size_t>(std::ranges::count_if(
      all, [&](std::span<const uint32_t> words) { return words.size() == 3 + 2 * cases; }));
}

std::set<uint32_t> ReadOnlyStructs(const Spirv& code) {
  std::set<uint32_t> types;
  for (const auto words : All(code, spv::OpMemberDecorate)) {
    if (words[3] == spv::DecorationNonWritable) types.insert(words[1]);
  }
  return types;
}

std::span<const uint32_t> TypeOf(const Spirv& code, uint32_t id) {
  for (const spv::Op op : {spv::OpTypeStruct, spv::OpTypeRuntimeArray, spv::OpTypeArray,
                           spv::OpTypeVector, spv::OpTypeFloat, spv::OpTypePointer}) {
    for (const auto words : All(code, op)) {
      if (words[1] == id) return words;
    }
  }
  return {};
}

bool Is(std::span<const uint32_t> type, spv::Op op) {
  return !type.empty() && (type[0] & spv::OpCodeMask) == static_cast<uint32_t>(op);
}

bool IsArrayOfFloats(const Spirv& code, uint32_t id) {
  std::span<const uint32_t> type = TypeOf(code, id);
  for (const spv::Op op : {spv::OpTypeStruct, spv::OpTypeRuntimeArray}) {
    if (!Is(type, op)) return false;
    type = TypeOf(code, type[2]);
  }
  if (Is(type, spv::OpTypeVector)) type = TypeOf(code, type[2]);
  return Is(type, spv::OpTypeFloat);
}

// Variables of functions that are arrays.
size_t LocalArrays(const Spirv& code) {
  size_t count = 0;
  for (const auto words : All(code, spv::OpVariable)) {
    if (words[3] != spv::StorageClassFunction) continue;
    if (Is(TypeOf(code, TypeOf(code, words[1])[3]), spv::OpTypeArray)) ++count;
  }
  return count;
}

size_t Count(const Spirv& code, spv::Op op) { return All(code, op).size(); }

// A product of q4_k after a norm.
Spirv Product(uint32_t columns) {
  return Task(kMatVecDotTask, {12, 1, 2, 2, 0, 0, 1, 0, 0, columns});
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

TEST(WithConstants, SetsTheSizeOfTheWorkgroup) {
  const uint32_t threads = 96;
  const Spirv code = WithConstants(kScanPlain, {&threads, 1});
  EXPECT_EQ(Complaints(code), "");
  const auto modes = All(code, spv::OpExecutionMode);
  ASSERT_EQ(modes.size(), 1U);
  const auto mode = std::vector<uint32_t>(modes[0].begin() + 2, modes[0].end());
  EXPECT_EQ(mode, (std::vector<uint32_t>{spv::ExecutionModeLocalSize, threads, 1, 1}));
}

TEST(WithConstants, DropsTheCodeOfOtherTypes) {
  EXPECT_LT(Product(1536).size(), std::size(kMatVecDotTask) * 2 / 3);
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
  EXPECT_EQ(SwitchesOf(joined.code, tasks.size()), 1U);
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

// Tasks hand each other floats; weights and push constants are integers.
TEST(Join, WhatIsReadByOneTaskMayBeWrittenByAnother) {
  const Spirv code = Join(Driver(), Tasks{Product(1536)}, kThreads).code;
  const std::set<uint32_t> read_only = ReadOnlyStructs(code);
  EXPECT_FALSE(read_only.empty());
  for (const uint32_t type : read_only) EXPECT_FALSE(IsArrayOfFloats(code, type)) << type;
}

TEST(Join, TasksKeepNoArraysOfTheirOwn) {
  const Joined joined = Join(Driver(), Tasks{Product(1536), Product(256)}, kThreads);
  EXPECT_EQ(LocalArrays(joined.code), 0U);
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
