// A loaded plugin that lies: each lie becomes an error that names plugin, device and function.
#include <array>
#include <cstring>

#include "core/plugin/call_guard.h"
#include "tests/fakes/fake_fixture.h"

namespace rullama::testing {
namespace {

constexpr std::array<float, 4> kData = {1.0F, -2.0F, 3.5F, 0.25F};

// Runs everything a device can do on a graph of two copies; the first error ends it. The result is
// what came out at the end.
Result<std::array<float, 4>> RunAll(const Plugin& plugin) {
  RL_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, plugin.Open(0, {}));
  const Graph graph = CopyGraph(2);
  RL_ASSIGN_OR_RETURN(const std::vector<OpSupport> support, device->QueryOps(graph));
  EXPECT_EQ(support.size(), 2U);
  const WeightDesc weight_desc{"w", TensorType(DType::kF32, {4}), std::as_bytes(std::span(kData))};
  RL_ASSIGN_OR_RETURN(const WeightLayout layout, device->LayoutWeight(weight_desc));
  EXPECT_FALSE(layout.in_place);
  RL_ASSIGN_OR_RETURN(const DeviceWeight weight, device->CreateWeight(weight_desc));
  RL_ASSIGN_OR_RETURN(const DeviceBuffer buffer, device->CreateBuffer(48, RL_BUFFER_IO));
  RL_RETURN_IF_ERROR(device->Write(buffer, 0, std::as_bytes(std::span(kData))));
  RL_ASSIGN_OR_RETURN(const DevicePlan plan, device->Compile(graph, StorageOf(graph, buffer)));
  RL_RETURN_IF_ERROR(device->Execute(plan, {1, 1}));
  RL_RETURN_IF_ERROR(device->Execute(plan, {1, 1}));
  RL_ASSIGN_OR_RETURN(const rl_plan_stats stats, device->Stats(plan));
  EXPECT_EQ(stats.executions, 2U);
  RL_RETURN_IF_ERROR(device->Wait());
  std::array<float, 4> out{};
  RL_RETURN_IF_ERROR(device->Read(buffer, 32, std::as_writable_bytes(std::span(out))));
  return out;
}

Result<std::array<float, 4>> RunScript(const std::string& script) {
  const Scripted fake(script);
  RL_ASSIGN_OR_RETURN(const std::shared_ptr<Plugin> plugin, fake.Load());
  return RunAll(*plugin);
}

// Every function that reports errors and that RunAll calls.
constexpr const char* kFallible[] = {"device_info",   "device_open",   "query_ops",
                                     "weight_layout", "weight_create", "buffer_create",
                                     "buffer_write",  "buffer_read",   "plan_compile",
                                     "plan_execute",  "plan_stats",    "device_wait"};
// The functions among them that create an object.
constexpr const char* kCreating[] = {"device_open", "weight_create", "buffer_create",
                                     "plan_compile"};

TEST(Lies, HonestPluginRuns) {
  const auto out = RunScript("");
  ASSERT_TRUE(out) << out.error().ToString();
  EXPECT_EQ(*out, kData);
}

TEST(Lies, WrongResultsAreSeen) {
  const auto out = RunScript("wrong_result");
  ASSERT_TRUE(out) << out.error().ToString();
  EXPECT_NE(*out, kData);
}

TEST(Lies, ErrorRecordFilledButOkReturned) {
  const auto out = RunScript("stale_errors");
  EXPECT_TRUE(out) << out.error().ToString();
}

TEST(Lies, FailureNamesTheFunctionAndItsText) {
  for (const std::string function : kFallible) {
    SCOPED_TRACE(function);
    ExpectError(RunScript("fail=" + function), "device.internal",
                {"plugin 'fake'", function, "failing as told"});
  }
}

TEST(Lies, FailureAtALaterCall) {
  ExpectError(RunScript("fail_at=plan_execute:2"), "device.internal", {"plan_execute"});
  EXPECT_TRUE(RunScript("fail_at=plan_execute:3"));
}

TEST(Lies, SaysYesAndFailsAtCompile) {
  ExpectError(RunScript("support=1;fail=plan_compile;op_index=1"), "device.internal",
              {"graph 'copies'", "device 'Fake One'", "op 1 (copy 'v2')"});
}

TEST(Lies, OpIndexOutOfRange) {
  ExpectError(RunScript("fail=plan_compile;op_index=77"), "device.internal", {"op 77 (of 2)"});
}

TEST(Lies, NoText) {
  for (const std::string function : kFallible) {
    SCOPED_TRACE(function);
    ExpectError(RunScript("silent=" + function), "device.internal", {function, "no reason"});
  }
}

TEST(Lies, GarbageCode) {
  for (const std::string function : kFallible) {
    SCOPED_TRACE(function);
    ExpectError(RunScript("garbage=" + function), "plugin.contract", {function, "4711"});
  }
}

TEST(Lies, UnterminatedTextThatIsNotUtf8) {
  std::string escaped;
  for (int i = 0; i < RL_ERROR_TEXT; ++i) escaped += "\\xff";
  for (const std::string function : kFallible) {
    SCOPED_TRACE(function);
    ExpectError(RunScript("raw_text=" + function), "device.internal", {function, escaped});
  }
}

TEST(Lies, NullHandleWithOk) {
  for (const std::string function : kCreating) {
    SCOPED_TRACE(function);
    ExpectError(RunScript("null_handle=" + function), "plugin.contract",
                {function, "returned RL_OK without a"});
  }
}

TEST(Lies, OpsLeftUnansweredOrAnsweredOddly) {
  ExpectError(RunScript("null_handle=query_ops"), "plugin.contract", {"query_ops", "op 0 (copy)"});
  ExpectError(RunScript("support=7"), "plugin.contract", {"answered 7"});
}

TEST(Lies, WeightBothInPlaceAndCopied) {
  ExpectError(RunScript("layout=1"), "plugin.contract", {"in_place 1 with 16 bytes"});
  ExpectError(RunScript("layout=9"), "plugin.contract", {"in_place 9"});
}

TEST(Lies, WeightLargerThanAnyLayout) {
  ExpectError(RunScript("huge_layout"), "plugin.contract",
              {"weight_layout", "answered 18446744073709551615 bytes for 'w', which has 16"});
}

TEST(Lies, FailureInAPlanNamesItsOp) {
  const Scripted fake("fail=plan_execute;op_index=1");
  const auto plugin = fake.Load();
  const auto device = (*plugin)->Open(0, {});
  const Graph graph = CopyGraph(2);
  const auto buffer = (*device)->CreateBuffer(48, RL_BUFFER_IO);
  const auto plan = (*device)->Compile(graph, StorageOf(graph, *buffer));
  ASSERT_TRUE(plan);
  ExpectError((*device)->Execute(*plan, {1, 1}, &graph), "device.internal", {"op 1 (copy 'v2')"});
}

TEST(Lies, DeviceDescriptions) {
  ExpectError(RunScript("type=99"), "plugin.contract", {"type 99"});
  ExpectError(RunScript("alignment=0"), "plugin.contract", {"alignment 0"});
  ExpectError(RunScript("alignment=48"), "plugin.contract", {"alignment 48"});
  ExpectError(RunScript("null_device_name"), "plugin.contract", {"without a name"});
}

TEST(Lies, DeviceCounts) {
  {
    const Scripted fake("devices=-1");
    ExpectError((*fake.Load())->ListDevices(), "plugin.contract", {"4294967295"});
  }
  {
    const Scripted fake("devices=0;reason=no driver \x1B[31m");
    const auto list = (*fake.Load())->ListDevices();
    ASSERT_TRUE(list);
    EXPECT_TRUE(list->devices.empty());
    EXPECT_EQ(list->reason, "no driver \\x1b[31m");
  }
  {
    const Scripted fake("devices=0");
    EXPECT_EQ((*fake.Load())->ListDevices()->reason, "the plugin gave no reason");
  }
}

TEST(Lies, DeviceThatDoesNotExist) {
  const Scripted fake("");
  ExpectError((*fake.Load())->Open(5, {}), "device.invalid_argument", {"no such device"});
}

TEST(Lies, UnknownOptionIsAUsageError) {
  const Scripted fake("");
  const auto plugin = fake.Load();
  const std::vector<std::pair<std::string, std::string>> good = {{"known", "1"}};
  EXPECT_TRUE((*plugin)->Open(0, good));
  const std::vector<std::pair<std::string, std::string>> bad = {{"knwon", "1"}};
  const auto device = (*plugin)->Open(0, bad);
  ExpectError(device, "device.option", {"known options: known"});
  EXPECT_EQ(device.error().kind, ErrorKind::kUsage);
}

TEST(Lies, BufferAboveTheDevicesLimitIsNotEvenAskedFor) {
  const Scripted fake("");
  const auto device = (*fake.Load())->Open(0, {});
  const auto buffer = (*device)->CreateBuffer((1 << 20) + 1, RL_BUFFER_STATE);
  ExpectError(buffer, "device.buffer_size", {"1048577", "1048576"});
  EXPECT_EQ(buffer.error().kind, ErrorKind::kOutOfMemory);
}

TEST(Lies, HangingEnumerationIsReported) {
  const ScopedVariable script("RULLAMA_FAKE", "hang=device_count");
  const TestHost host(std::chrono::milliseconds(20));
  const auto plugin = Plugin::Load(FakeFile("fake"), host.get());
  ASSERT_TRUE(plugin);
  EXPECT_TRUE((*plugin)->ListDevices());
  EXPECT_THAT(host.log(), ::testing::ContainsRegex("plugin 'fake' has spent .*device_count"));
}

TEST(Lies, AHangingDeviceIsReportedWithWhatItIsBusyWith) {
  const Graph graph = CopyGraph(3);
  for (const std::string function :
       {"query_ops", "plan_compile", "plan_execute", "buffer_write", "device_close"}) {
    const ScopedVariable script("RULLAMA_FAKE", "hang=" + function);
    const TestHost host(std::chrono::milliseconds(20));
    const auto plugin = Plugin::Load(FakeFile("fake"), host.get());
    ASSERT_TRUE(plugin);
    {
      const auto device = (*plugin)->Open(0, {});
      ASSERT_TRUE(device);
      const auto buffer = (*device)->CreateBuffer(64, RL_BUFFER_IO);
      EXPECT_TRUE((*device)->Write(*buffer, 0, std::vector<std::byte>(16)));
      EXPECT_TRUE((*device)->QueryOps(graph));
      const auto plan = (*device)->Compile(graph, StorageOf(graph, *buffer));
      ASSERT_TRUE(plan);
      EXPECT_TRUE((*device)->Execute(*plan, {}, &graph));
    }
    const bool of_graph = function == "query_ops" || function.starts_with("plan_");
    EXPECT_THAT(host.log(), ::testing::HasSubstr("plugin 'fake' has spent 0.02 s in " + function +
                                                 (of_graph ? " of 'copies' with 3 copy; " : "; ")));
  }
}

// A plugin that throws across the boundary ends the process, but with its name and the right code.
void Die(const std::string& script) {
  InstallTerminateHandler();
  (void)RunScript(script);
}

TEST(ThrowingPluginDeathTest, EveryFunction) {
  ::testing::GTEST_FLAG(death_test_style) = "fast";
  constexpr int kBackendExit = static_cast<int>(ErrorKind::kBackend);
  EXPECT_EXIT(Die("throw=query"), ::testing::ExitedWithCode(kBackendExit),
              "librullama_backend_fake.so' threw an exception out of rullama_plugin_query_v1: "
              "thrown by the fake.*plugin.exception");
  for (const std::string function : kFallible) {
    EXPECT_EXIT(Die("throw=" + function), ::testing::ExitedWithCode(kBackendExit),
                "plugin 'fake' threw an exception out of " + function + ": thrown by the fake");
  }
  for (const std::string function : {"device_close", "weight_free", "buffer_free", "plan_free"}) {
    EXPECT_EXIT(Die("throw=" + function), ::testing::ExitedWithCode(kBackendExit),
                "plugin 'fake' threw an exception out of " + function + ": thrown by the fake");
  }
}

TEST(ThrowingPluginDeathTest, ExitIsNotSilent) {
  constexpr int kBackendExit = static_cast<int>(ErrorKind::kBackend);
  for (const std::string function : {"device_open", "plan_execute", "device_close"}) {
    EXPECT_EXIT(Die("exit=" + function), ::testing::ExitedWithCode(kBackendExit),
                "plugin 'fake' ended the program inside " + function + " by a call of exit");
  }
  EXPECT_EXIT(
      {
        InstallTerminateHandler();
        std::exit(4);
      },
      ::testing::ExitedWithCode(4), "^$");
}

TEST(ThrowingPluginDeathTest, OwnBugsStillAbort) {
  EXPECT_EXIT(
      {
        InstallTerminateHandler();
        std::terminate();
      },
      ::testing::KilledBySignal(SIGABRT), "internal error: terminated");
}

}  // namespace
}  // namespace rullama::testing
