// Exceptions of a plugin written against the SDK arrive as a code, a text and the op at fault.
#include <fmt/ranges.h>
#include <rullama/sdk/thunk.h>

#include <array>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "core/base/utf8.h"
#include "core/plugin/call_guard.h"
#include "tests/fakes/fake_fixture.h"

namespace rullama::testing {
namespace {

class SdkThunk : public ::testing::Test {
 protected:
  void SetUp() override {
    auto plugin = Plugin::Load(FakeFile("fake_sdk"), host_.get());
    ASSERT_TRUE(plugin) << plugin.error().ToString();
    plugin_ = *plugin;
    auto device = plugin_->Open(0, {});
    ASSERT_TRUE(device) << device.error().ToString();
    device_ = std::move(*device);
    auto buffer = device_->CreateBuffer(64, RL_BUFFER_ARENA);
    ASSERT_TRUE(buffer) << buffer.error().ToString();
    buffer_ = std::move(*buffer);
    auto plan = device_->Compile(graph_, StorageOf(graph_, buffer_));
    ASSERT_TRUE(plan) << plan.error().ToString();
    plan_ = std::move(*plan);
  }
  void TearDown() override {
    plan_.Reset();
    buffer_.Reset();
    device_.reset();
    plugin_->Shutdown();
  }

  // Calls the method of this name; the value of a success is of no interest.
  Status Call(const std::string& method) {
    const auto drop = [](auto result) -> Status {
      if (!result) return tl::unexpected<Error>(std::move(result).error());
      return OkStatus();
    };
    std::array<std::byte, 4> bytes{};
    const std::array<float, 4> data{};
    const WeightDesc weight{"w", TensorType(DType::kF32, {4}), std::as_bytes(std::span(data))};
    if (method == "Devices") return drop(plugin_->Open(0, {}));
    if (method == "Open") return drop(plugin_->Open(0, {}));
    if (method == "Options") return drop(plugin_->ListOptions());
    if (method == "QueryOps") return drop(device_->QueryOps(graph_));
    if (method == "DescribeGraph") return drop(device_->DescribeGraph(graph_));
    if (method == "LayoutWeight") return drop(device_->LayoutWeight(weight));
    if (method == "CreateWeight") return drop(device_->CreateWeight(weight));
    if (method == "CreateBuffer") return drop(device_->CreateBuffer(8, RL_BUFFER_IO));
    if (method == "Write") return device_->Write(buffer_, 0, bytes);
    if (method == "Read") return device_->Read(buffer_, 0, bytes);
    if (method == "Compile" || method == "CompileOp") {
      return drop(device_->Compile(graph_, StorageOf(graph_, buffer_)));
    }
    if (method == "Execute") return device_->Execute(plan_, {1, 1});
    if (method == "Stats") return drop(device_->Stats(plan_));
    if (method == "Times") return device_->ReadTimes(plan_, graph_, [](const OpTime&) {});
    return device_->Wait();
  }

  const TestHost host_;
  const Graph graph_ = CopyGraph(2);
  std::shared_ptr<Plugin> plugin_;
  std::unique_ptr<Device> device_;
  DeviceBuffer buffer_;
  DevicePlan plan_;
};

constexpr const char* kMethods[] = {"Devices",      "Open",          "QueryOps", "LayoutWeight",
                                    "CreateWeight", "Write",         "Read",     "CreateBuffer",
                                    "Compile",      "Wait",          "Execute",  "Stats",
                                    "Times",        "DescribeGraph", "Options"};

TEST_F(SdkThunk, HonestPluginWorks) {
  for (const std::string method : kMethods) EXPECT_TRUE(Call(method)) << method;
  EXPECT_THAT(host_.log(), ::testing::HasSubstr("[fake_sdk] open"));
}

TEST_F(SdkThunk, EveryMethodMayThrow) {
  struct Row {
    std::string what;
    std::string_view id;
    std::string text;
  };
  const Row rows[] = {
      {"error", "device.unsupported", "no such luck (driver code -42)"},
      {"error_ok", "device.internal", "all is well"},
      {"bad_alloc", "device.out_of_memory", "out of host memory"},
      {"std", "device.internal", "a standard exception"},
      {"int", "device.internal", "not a std::exception"},
  };
  for (const std::string method : kMethods) {
    for (const Row& row : rows) {
      SCOPED_TRACE(method + ":" + row.what);
      const ScopedVariable script("RULLAMA_FAKE_SDK", method + ":" + row.what);
      ExpectError(Call(method), row.id, {"plugin 'fake_sdk'", method + ": ", row.text});
    }
    EXPECT_TRUE(Call(method)) << method << " has to work again";
  }
}

TEST_F(SdkThunk, NullObjectsAreThePluginsError) {
  for (const std::string method : {"Open", "CreateWeight", "CreateBuffer", "Compile"}) {
    const ScopedVariable script("RULLAMA_FAKE_SDK", method + ":null");
    ExpectError(Call(method), "device.internal", {method + " returned null"});
  }
}

// "ops worker begin end" of each record, times in nanoseconds.
std::vector<std::string> TimesOf(Device& device, const DevicePlan& plan, const Graph& graph) {
  std::vector<std::string> lines;
  EXPECT_TRUE(device.ReadTimes(plan, graph, [&](const OpTime& time) {
    const auto nanoseconds = [](OpTime::Clock::time_point at) {
      return std::chrono::nanoseconds(at.time_since_epoch()).count();
    };
    lines.push_back(fmt::format("{} {} {} {}", fmt::join(time.ops, ","), time.worker,
                                nanoseconds(time.begin), nanoseconds(time.end)));
  }));
  return lines;
}

TEST_F(SdkThunk, TimesArriveFromPlansThatRecordThem) {
  EXPECT_TRUE(device_->RecordsTimes());
  EXPECT_THAT(TimesOf(*device_, plan_, graph_), ::testing::IsEmpty());
  const auto plan = device_->Compile(graph_, StorageOf(graph_, buffer_), RecordTimes::kYes);
  ASSERT_TRUE(plan);
  EXPECT_THAT(TimesOf(*device_, *plan, graph_),
              ::testing::ElementsAre("0 0 1000 1500", "0,1 1 1200 2000"));
}

TEST_F(SdkThunk, TimesThatCannotBeAreThePluginsError) {
  const std::pair<std::string, std::string> rows[] = {
      {"no_ops", "a record without ops"},
      {"unsorted", "a record whose ops are not ascending"},
      {"unknown_op", "a record of op 2, where the graph has 2"},
      {"backwards", "a record that ends before it begins"}};
  for (const auto& [fault, text] : rows) {
    SCOPED_TRACE(fault);
    const auto plan = device_->Compile(graph_, StorageOf(graph_, buffer_), RecordTimes::kYes);
    ASSERT_TRUE(plan);
    const ScopedVariable script("RULLAMA_FAKE_SDK", "Times:" + fault);
    size_t records = 0;
    ExpectError(device_->ReadTimes(*plan, graph_, [&](const OpTime&) { ++records; }),
                "plugin.contract", {"plugin 'fake_sdk'", "plan_times", text});
    EXPECT_EQ(records, 1U) << "the one before it is right";
  }
}

TEST_F(SdkThunk, OptionsArrive) {
  const auto options = plugin_->ListOptions();
  ASSERT_TRUE(options);
  ASSERT_EQ(options->size(), 2U);
  EXPECT_EQ(options->front().name, "speed");
  EXPECT_EQ(options->front().values, "slow, fast");
  EXPECT_EQ(options->front().initial, "slow");
  EXPECT_EQ(options->front().meaning, "how fast it is");
  EXPECT_EQ(options->back().name, "colour");
}

TEST_F(SdkThunk, OptionsThatCannotBeAreThePluginsError) {
  const std::pair<std::string, std::string> rows[] = {
      {"no_name", "a record without a name"},
      {"no_values", "a record of 'colour' without values"},
      {"twice", "a record of 'speed' a second time"}};
  for (const auto& [fault, text] : rows) {
    SCOPED_TRACE(fault);
    const ScopedVariable script("RULLAMA_FAKE_SDK", "Options:" + fault);
    ExpectError(Call("Options"), "plugin.contract",
                {"plugin 'fake_sdk'", "options_describe", text});
  }
}

TEST_F(SdkThunk, TooFewAnswers) {
  const ScopedVariable script("RULLAMA_FAKE_SDK", "QueryOps:null");
  ExpectError(Call("QueryOps"), "device.internal", {"answered 0 of 2 ops"});
}

TEST_F(SdkThunk, OpScopeNamesTheOp) {
  {
    const ScopedVariable script("RULLAMA_FAKE_SDK", "CompileOp:std");
    ExpectError(Call("Compile"), "device.internal", {"op 0 (copy 'v1')"});
  }
  Graph graph = CopyGraph(2);
  graph.ops[1].kind = OpKind::kSoftmax;
  const auto plan = device_->Compile(graph, StorageOf(graph, buffer_));
  ExpectError(plan, "device.internal", {"op 1 (softmax 'v2')", "not a copy"});
  // A later failure without a scope does not inherit the op.
  const ScopedVariable script("RULLAMA_FAKE_SDK", "Wait:std");
  const Status status = Call("Wait");
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, ::testing::Not(::testing::HasSubstr(" at op")));
}

TEST_F(SdkThunk, LongTextIsCutBetweenCharacters) {
  const ScopedVariable script("RULLAMA_FAKE_SDK", "Wait:long");
  const Status status = Call("Wait");
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, ::testing::EndsWith("\xC3\xA9..."));
  EXPECT_EQ(FindInvalidUtf8(status.error().message), std::nullopt);
}

TEST_F(SdkThunk, ThrowingEnumerationIsNoDeviceWithAReason) {
  const ScopedVariable script("RULLAMA_FAKE_SDK", "Devices:std");
  const auto list = plugin_->ListDevices();
  ASSERT_TRUE(list);
  EXPECT_TRUE(list->devices.empty());
  EXPECT_EQ(list->reason, "Devices: a standard exception");
}

TEST_F(SdkThunk, ThrowingDestructorEndsTheProcessWithThePluginsName) {
  ::testing::GTEST_FLAG(death_test_style) = "fast";
  const auto die = [this] {
    InstallTerminateHandler();
    const ScopedVariable script("RULLAMA_FAKE_SDK", "~Device:std");
    device_.reset();
  };
  EXPECT_EXIT(die(), ::testing::ExitedWithCode(3),
              "plugin 'fake_sdk' threw an exception out of device_close");
}

// The machinery itself, with records and structs of other versions.
TEST(SdkRecords, ErrorRecordOfAnotherSize) {
  rl_error error{};
  std::memset(error.message, 'x', sizeof(error.message));
  error.struct_size = offsetof(rl_error, message) + 10;
  sdk::internal::FillError(&error, RL_INTERNAL, "f", "0123456789", 3, 4);
  EXPECT_EQ(std::string_view(error.message), "f: 012...");  // 9 bytes and the terminator
  EXPECT_EQ(error.message[10], 'x');
  EXPECT_EQ(error.op_index, 3U);

  rl_error tiny{};
  tiny.struct_size = offsetof(rl_error, op_index);
  sdk::internal::FillError(&tiny, RL_UNAVAILABLE, "f", "text", 3, 4);
  EXPECT_EQ(tiny.code, RL_UNAVAILABLE);
  EXPECT_EQ(tiny.op_index, 0U);
  EXPECT_EQ(tiny.message[0], '\0');

  sdk::internal::FillError(nullptr, RL_INTERNAL, "f", "text", 3, 4);  // nothing to fill
}

TEST(SdkRecords, LongFunctionNameStaysInside) {
  rl_error error{};
  error.struct_size = offsetof(rl_error, message) + 4;
  sdk::internal::FillError(&error, RL_INTERNAL, "function", "text", 0, 0);
  EXPECT_EQ(std::string_view(error.message), "fun");
}

TEST(SdkRecords, CutUtf8) {
  EXPECT_EQ(sdk::internal::CutUtf8("abc", 3), "abc");
  EXPECT_EQ(sdk::internal::CutUtf8("ab\xC3\xA9", 3), "ab");
  EXPECT_EQ(sdk::internal::CutUtf8("\xF0\x9F\x98\x80", 3), "");
}

TEST(SdkRecords, StructsAreFilledAsFarAsTheCallerHasRoom) {
  struct {
    rl_plan_stats stats;
    uint64_t beyond;
  } caller{};
  caller.stats.struct_size = sizeof(rl_plan_stats) + 64;  // a newer host
  caller.beyond = 99;
  rl_plan_stats mine{};
  mine.executions = 5;
  sdk::internal::StoreSized(&caller.stats, mine, sizeof(mine));
  EXPECT_EQ(caller.stats.executions, 5U);
  EXPECT_EQ(caller.stats.struct_size, sizeof(rl_plan_stats));
  EXPECT_EQ(caller.beyond, 99U);
  caller.stats.struct_size = 8;
  EXPECT_THROW(sdk::internal::StoreSized(&caller.stats, mine, sizeof(mine)), sdk::Error);
}

}  // namespace
}  // namespace rullama::testing
