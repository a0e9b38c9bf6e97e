#include "backends/gpu/kernel_cache.h"

#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "backends/gpu/fake_driver_test_util.h"

namespace rullama::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

const PipelineKey kFirst{Shader::kArgMax, {64}}, kSecond{Shader::kArgMax, {128}},
    kThird{Shader::kRows, {64, 1}};

TEST(KernelCache, CompilesEachKernelOnce) {
  FakeHost host;
  FakeDriver driver(host);
  KernelCache kernels(driver);
  EXPECT_EQ(kernels.Prepare(std::vector{kSecond, kFirst, kSecond}), 2U);
  EXPECT_EQ(kernels.Prepare(std::vector{kFirst, kThird}), 1U);
  EXPECT_THAT(driver.compiled, UnorderedElementsAre(kFirst, kSecond, kThird));
  EXPECT_EQ(&kernels.Get(kFirst), &kernels.Get(kFirst));
  EXPECT_NE(&kernels.Get(kFirst), &kernels.Get(kSecond));
}

// A driver whose kernels get all constants but the first as arguments.
class FewKernels final : public FakeDriver {
 public:
  using FakeDriver::FakeDriver;
  [[nodiscard]] PipelineKey CompiledKey(const PipelineKey& key) const override {
    return {key.shader, {key.constants.front()}};
  }
};

TEST(KernelCache, ConstantsThatAreArgumentsShareAKernel) {
  FakeHost host;
  FewKernels driver(host);
  KernelCache kernels(driver);
  const PipelineKey other{Shader::kRows, {64, 2}};
  EXPECT_EQ(kernels.Prepare(std::vector{kThird, other}), 1U);
  EXPECT_EQ(&kernels.Get(kThird), &kernels.Get(other));
}

TEST(KernelCache, TheHostKeepsWhatIsNew) {
  FakeHost host;
  FakeDriver driver(host);
  { KernelCache(driver).Prepare(std::vector{kFirst, kSecond}); }
  ASSERT_THAT(host.blobs, SizeIs(1));
  EXPECT_THAT(host.blobs.at("fake"), SizeIs(2));
  FakeHost other;
  other.blobs["fake"].resize(5);
  FakeDriver again(other);
  { const KernelCache unchanged(again); }
  EXPECT_THAT(again.loaded, SizeIs(5));
  EXPECT_THAT(other.blobs.at("fake"), SizeIs(5)) << "nothing was compiled";
}

TEST(KernelCache, TheHostKeepsWhatIsNewEvenIfTheProcessIsKilled) {
  FakeHost host;
  FakeDriver driver(host);
  KernelCache kernels(driver, std::chrono::milliseconds(0));
  kernels.Prepare(std::vector{kFirst, kSecond});
  EXPECT_THAT(host.blobs.at("fake"), SizeIs(2));
  host.blobs["fake"].clear();
  kernels.Prepare(std::vector{kSecond});
  EXPECT_THAT(host.blobs.at("fake"), IsEmpty()) << "nothing was compiled";
  kernels.Prepare(std::vector{kThird});
  EXPECT_THAT(host.blobs.at("fake"), SizeIs(3));
}

TEST(KernelCache, TheHostIsHandedFewKernelsNowAndThen) {
  FakeHost host;
  FakeDriver driver(host);
  KernelCache kernels(driver, std::chrono::hours(1));
  kernels.Prepare(std::vector{kFirst});
  EXPECT_THAT(host.blobs["fake"], IsEmpty());
}

TEST(KernelCache, WhatTheHostDidNotKeepIsHandedToItAgain) {
  FakeHost host;
  FakeDriver driver(host);
  {
    KernelCache kernels(driver, std::chrono::milliseconds(0));
    host.keeps = false;
    kernels.Prepare(std::vector{kFirst, kSecond});
    host.keeps = true;
  }
  EXPECT_THAT(host.blobs["fake"], SizeIs(2));
}

// A thread that joins kernels hands them to the host while another one may compile more.
TEST(KernelCache, AnOlderCopyDoesNotReplaceANewerOne) {
  FakeHost host;
  const FakeDriver driver(host);
  std::thread newer;
  driver.Keep([&] {
    newer = std::thread([&] { driver.Keep([] { return std::vector<std::byte>(2); }); });
    // Long enough for the other thread, if it did not wait.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return std::vector<std::byte>(1);
  });
  newer.join();
  EXPECT_THAT(host.blobs.at("fake"), SizeIs(2));
}

class WithoutCache final : public FakeDriver {
 public:
  using FakeDriver::FakeDriver;
  [[nodiscard]] std::string CacheName() const override { return {}; }
};

TEST(KernelCache, ADriverMayKeepNothing) {
  FakeHost host;
  WithoutCache driver(host);
  { KernelCache(driver).Prepare(std::vector{kFirst}); }
  EXPECT_THAT(host.blobs, IsEmpty());
}

class OneFails final : public FakeDriver {
 public:
  using FakeDriver::FakeDriver;
  std::unique_ptr<Kernel> Compile(const PipelineKey& key) override {
    if (key == kSecond) throw sdk::Error(RL_INTERNAL, "it does not compile");
    return FakeDriver::Compile(key);
  }
};

TEST(KernelCache, WhatFailsLeavesTheOthers) {
  FakeHost host;
  OneFails driver(host);
  KernelCache kernels(driver);
  EXPECT_THROW(kernels.Prepare(std::vector{kFirst, kSecond, kThird}), sdk::Error);
  EXPECT_EQ(kernels.Prepare(std::vector{kFirst, kThird}), 0U);
  EXPECT_THAT(driver.compiled, UnorderedElementsAre(kFirst, kThird));
}

TEST(KernelCache, TheHostKeepsWhatWasCompiledBesideAFailure) {
  FakeHost host;
  OneFails driver(host);
  { EXPECT_THROW(KernelCache(driver).Prepare(std::vector{kFirst, kSecond, kThird}), sdk::Error); }
  ASSERT_THAT(host.blobs, SizeIs(1));
  EXPECT_THAT(host.blobs.at("fake"), SizeIs(2));
}

TEST(KernelCache, TheHostIsHandedNothingIfAllFail) {
  FakeHost host;
  OneFails driver(host);
  { EXPECT_THROW(KernelCache(driver).Prepare(std::vector{kSecond}), sdk::Error); }
  EXPECT_THAT(host.blobs["fake"], IsEmpty());
}

struct FakeJoined final : JoinedKernels {
  FakeJoined(int& waits, std::function<void()> on_wait)
      : waits_(waits), on_wait_(std::move(on_wait)) {}
  [[nodiscard]] JoinState state() const noexcept override {
    return waits_ > 0 ? JoinState::kReady : JoinState::kWaiting;
  }
  bool GiveUp() noexcept override { return state() == JoinState::kWaiting; }
  void Wait() noexcept override {
    ++waits_;
    if (on_wait_) on_wait_();
  }
  int& waits_;
  std::function<void()> on_wait_;
};

class FakeJoiner final : public StepJoiner {
 public:
  std::unique_ptr<JoinedKernels> Join(std::span<const PipelineKey> kinds) override {
    sizes.push_back(kinds.size());
    if (kinds.size() > 2) return nullptr;
    return std::make_unique<FakeJoined>(waits, on_wait);
  }
  [[nodiscard]] std::optional<Target> TargetFor(const Target& /*device*/,
                                                const sdk::GraphView& /*graph*/) const override {
    return std::nullopt;
  }
  void MergeKinds(std::vector<Dispatch>& /*dispatches*/) const override {}
  JoinedCommands Record(const JoinedStep& /*step*/, BlockMemory& /*blocks*/) override { return {}; }
  [[nodiscard]] sdk::Error StuckError() const override { return sdk::Error(RL_INTERNAL, ""); }
  std::vector<size_t> sizes;
  int waits = 0;
  std::function<void()> on_wait;
};

// A program may end while it waits for the driver.
TEST(KernelCache, TheHostKeepsKernelsBeforeOthersAreWaitedFor) {
  FakeHost host;
  FakeDriver driver(host);
  FakeJoiner joiner;
  size_t kept = 0;
  joiner.on_wait = [&] { kept = host.blobs["fake"].size(); };
  {
    KernelCache kernels(driver, std::chrono::hours(1));
    kernels.Prepare(std::vector{kFirst, kSecond});
    kernels.Join(joiner, std::vector{kFirst, kSecond});
  }
  EXPECT_EQ(kept, 2U);
}

TEST(KernelCache, JoinsEachListOnceAndWaitsForItInTheEnd) {
  FakeHost host;
  FakeDriver driver(host);
  FakeJoiner joiner;
  {
    KernelCache kernels(driver);
    const std::vector two{kFirst, kSecond}, three{kFirst, kSecond, kThird};
    JoinedKernels* joined = kernels.Join(joiner, two);
    EXPECT_NE(joined, nullptr);
    EXPECT_EQ(kernels.Join(joiner, two), joined);
    EXPECT_EQ(kernels.Join(joiner, three), nullptr);
    EXPECT_EQ(kernels.Join(joiner, three), nullptr);
  }
  EXPECT_THAT(joiner.sizes, ElementsAre(2, 3));
  EXPECT_EQ(joiner.waits, 1);
  EXPECT_THAT(host.messages, ElementsAre(HasSubstr("still compiles"))) << "the wait is told";
}

TEST(KernelCache, SaysNothingOfKernelsThatAreReady) {
  FakeHost host;
  FakeDriver driver(host);
  FakeJoiner joiner;
  joiner.waits = 1;
  { KernelCache(driver).Join(joiner, std::vector{kFirst}); }
  EXPECT_THAT(host.messages, IsEmpty());
}

}  // namespace
}  // namespace rullama::gpu
