#include "backends/gpu/asking_host.h"

#include <gtest/gtest.h>

namespace rullama::gpu {
namespace {

using std::chrono::milliseconds;

// Counts the questions in `context`.
class CountingHost {
 public:
  CountingHost() {
    table_.context = &questions_;
    table_.cancelled = [](void* context) -> int32_t {
      ++*static_cast<std::atomic<int>*>(context);
      return 0;
    };
  }
  [[nodiscard]] sdk::Host host() const { return sdk::Host(table_); }
  [[nodiscard]] int questions() const { return questions_.load(); }

 private:
  std::atomic<int> questions_{0};
  rl_host_v1 table_{};
};

TEST(AskingHost, AsksWhileTheDriverWorksAndNotForEver) {
  const CountingHost host;
  AskingHost asking(host.host(), milliseconds(1));
  {
    const AskingHost::Scope outer(asking);
    const AskingHost::Scope inner(asking);
    while (host.questions() < AskingHost::kMostQuestions) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_EQ(host.questions(), AskingHost::kMostQuestions);
  }
  const AskingHost::Scope next(asking);
  while (host.questions() == AskingHost::kMostQuestions) {
    std::this_thread::sleep_for(milliseconds(1));
  }
}

TEST(AskingHost, IsQuietBetweenCalls) {
  const CountingHost host;
  {
    AskingHost asking(host.host(), milliseconds(1));
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(host.questions(), 0);
}

}  // namespace
}  // namespace rullama::gpu
