// After the second execution of a plan, a step allocates nothing on the host. Allocations of
// plugins are not included (rl_plan_stats counts them).
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "core/plugin/call_guard.h"
#include "core/runtime/step_test_util.h"

namespace {

thread_local bool counting = false;
thread_local int64_t allocations = 0;

// Null if there is no memory.
void* Allocate(std::size_t bytes, std::size_t alignment) noexcept {
  if (counting && rullama::CurrentPluginCall().plugin.empty()) ++allocations;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, rounded > 0 ? rounded : alignment);
}

void* AllocateOrThrow(std::size_t bytes, std::size_t alignment) {
  void* memory = Allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// Not inlined: gcc would take free() for a mistake where it sees that operator new was called.
[[gnu::noinline]] void Free(void* memory) noexcept { std::free(memory); }

constexpr std::size_t kUsual = alignof(std::max_align_t);

}  // namespace

// All forms are replaced, because memory of one form may be freed by another.
void* operator new(std::size_t bytes) { return AllocateOrThrow(bytes, kUsual); }
void* operator new[](std::size_t bytes) { return AllocateOrThrow(bytes, kUsual); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return Allocate(bytes, kUsual);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return Allocate(bytes, kUsual);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, std::size_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { Free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { Free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { Free(memory); }

namespace rullama {
namespace {

constexpr StepLimits kLimits{.max_t = 4, .max_r = 1};

template <typename Work>
int64_t AllocationsOf(Work work) {
  allocations = 0;
  counting = true;
  work();
  counting = false;
  return allocations;
}

TEST(StepAllocationTest, TheCounterCounts) {
  EXPECT_GT(AllocationsOf([] { const std::string text(100, 'x'); }), 0);
}

// Steps of one row and of several, on one device and with a copy between two.
TEST(StepAllocationTest, AStepAllocatesNothingAfterItsSecondExecution) {
  for (const bool split : {false, true}) {
    const CountingSession counted(kLimits, split);
    StepRows rows;
    float sum = 0;
    const std::vector<int32_t> tokens = {1, 2, 3};
    const auto run = [&](size_t count) {
      rows.SetConsecutive(std::span(tokens).first(count), counted.get().past(0), 0,
                          DemandMode::kPerOutput);
      const bool done =
          counted.get().Run(rows).has_value() &&
          counted.get()
              .ReadOutput(output_names::kLogitsSum, std::as_writable_bytes(std::span(&sum, 1)))
              .has_value();
      ASSERT_TRUE(done);
    };
    for (const size_t count : {1U, 3U, 1U, 3U}) run(count);
    for (const size_t count : {1U, 3U}) {
      EXPECT_EQ(AllocationsOf([&] { run(count); }), 0) << count << " rows, split " << split;
    }
  }
}

TEST(StepAllocationTest, AStepInALaneAllocatesNothingAfterItsSecondExecution) {
  const CountingSession counted(kLimits, /*split=*/true, nullptr, /*lanes=*/1);
  Session& session = counted.get();
  StepRows rows;
  float sum = 0;
  const std::vector<int32_t> tokens = {1};
  const auto run = [&] {
    rows.SetConsecutive(tokens, session.past(0), 0, DemandMode::kPerOutput);
    const bool done =
        session.Start(0, rows).has_value() && session.Finish(0).has_value() &&
        session.ReadOutput(output_names::kLogitsSum, std::as_writable_bytes(std::span(&sum, 1)), 0)
            .has_value();
    ASSERT_TRUE(done);
  };
  for (int i = 0; i < 3; ++i) run();
  EXPECT_EQ(AllocationsOf(run), 0);
}

}  // namespace
}  // namespace rullama
