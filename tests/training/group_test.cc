// Training in a group of several ranks, each a thread: the files of the run have the bytes that one
// process writes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "engine/api/training.h"

namespace rullama::training {
namespace {

namespace fs = std::filesystem;

// The parts and steps that ranks of a group exchange. Ends all waiting once a rank has failed.
class Exchange {
 public:
  template <typename Values, typename Key>
  void Put(std::map<Key, Values>& all, Key key, Values values) {
    const std::lock_guard lock(mutex_);
    all[std::move(key)] = std::move(values);
    changed_.notify_all();
  }
  template <typename Values, typename Key>
  Result<Values> Get(std::map<Key, Values>& all, Key key) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failed_ || all.contains(key); });
    if (failed_) return tl::unexpected(Error{.id = "test.group", .message = "another rank failed"});
    return all[key];
  }
  void Fail() {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    changed_.notify_all();
  }

  std::map<std::pair<int64_t, int64_t>, PartGradient> parts;
  std::map<int64_t, GroupStep> steps;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool failed_ = false;
};

class ThreadGroup : public TrainingGroup {
 public:
  ThreadGroup(Exchange& exchange, int64_t rank, int64_t size)
      : exchange_(exchange), rank_(rank), size_(size) {}
  [[nodiscard]] int64_t rank() const override { return rank_; }
  [[nodiscard]] int64_t size() const override { return size_; }
  Status SendPart(int64_t step, int64_t part, PartGradient gradient) override {
    if (is_short) gradient.values = FloatArray(std::vector<float>(3));
    exchange_.Put(exchange_.parts, std::pair(step, part), std::move(gradient));
    return OkStatus();
  }
  Result<GroupStep> ReceiveStep(int64_t step) override {
    return exchange_.Get(exchange_.steps, step);
  }
  Result<PartGradient> ReceivePart(int64_t step, int64_t part) override {
    EXPECT_NE(part % size_, 0) << "a part of rank 0";
    return exchange_.Get(exchange_.parts, std::pair(step, part));
  }
  Status SendStep(int64_t step, GroupStep result) override {
    exchange_.Put(exchange_.steps, step, std::move(result));
    return OkStatus();
  }

  bool is_short = false;  // gradients lack values

 private:
  Exchange& exchange_;
  int64_t rank_, size_;
};

std::string BytesOf(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class GroupTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "data");
    std::ofstream train(folder_ / "data/train.jsonl");
    const std::string names[] = {"Pierre", "Andrew", "Natasha", "Boris", "Anna", "Ellen", "Sonya"};
    for (const std::string& name : names) {
      train << R"({"prompt": "Who is )" << name << R"(?", "completion": "It is )" << name
            << R"( of whom all the town spoke."})"
            << "\n";
    }
    std::ofstream(folder_ / "data/valid.jsonl")
        << R"({"prompt": "Who is it?", "completion": "A prince."})"
        << "\n";
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Steps of 7 examples, of which each goes through the device alone.
  [[nodiscard]] Result<FineTuneResult> Run(const std::string& output, TrainingGroup* group,
                                           const FineTuneHooks& hooks = {}) const {
    const EngineOptions engine{.model = RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf",
                               .backend = "cpu",
                               .settings = {{"backend.options.threads", "1"},
                                            {"training.data", (folder_ / "data").string()},
                                            {"training.output", (folder_ / output).string()},
                                            {"training.batch_size", "7"},
                                            {"training.max_seq_length", "48"},
                                            {"training.learning_rate", "0.004"},
                                            {"training.warmup_steps", "0"},
                                            {"training.save_every", "1"},
                                            {"training.steps_per_eval", "1"},
                                            {"training.iters", "2"}}};
    return FineTune(engine, {.group = group}, hooks);
  }

  const fs::path folder_ =
      fs::path(testing::TempDir()) / ("group_test_" + std::to_string(::getpid()));
};

TEST_F(GroupTest, WritesTheBytesOfOneProcess) {
  const FineTuneResult alone = Must(Run("alone", nullptr));
  Exchange exchange;
  constexpr int64_t kRanks = 3;
  std::vector<std::optional<FineTuneResult>> results(kRanks);
  std::vector<std::vector<std::string>> calls(kRanks);
  std::vector<std::thread> ranks;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      ThreadGroup group(exchange, rank, kRanks);
      auto& own = calls[static_cast<size_t>(rank)];
      const FineTuneHooks hooks{
          .on_step =
              [&own](const TrainingReport& report) {
                std::ostringstream text;
                text << report.step << " " << report.loss.sum << " " << report.norm;
                own.push_back(text.str());
              },
          .on_saved = [&own](const std::string& folder) { own.push_back(folder); }};
      results[static_cast<size_t>(rank)] = Must(Run("group", &group, hooks));
    });
  }
  for (std::thread& rank : ranks) rank.join();

  // Each step had 7 parts, of which rank 0 has 0, 3 and 6.
  EXPECT_EQ(exchange.parts.size(), 2u * 4u);
  EXPECT_EQ(calls[0].size(), 2u + 2u);
  for (const auto& result : results) {
    EXPECT_EQ(result->history.steps, alone.history.steps);
    EXPECT_FALSE(result->cancelled);
  }
  for (const auto& own : calls) EXPECT_EQ(own, calls[0]);
  for (const char* file :
       {"adapter_model.safetensors", "adapter.gguf", "best/adapter_model.safetensors",
        "0000001/training_state.safetensors", "0000002/adapter_model.safetensors",
        "0000002/training_state.json", "0000002/training_state.safetensors"}) {
    const std::string bytes = BytesOf(folder_ / "alone" / file);
    EXPECT_FALSE(bytes.empty()) << file;
    EXPECT_TRUE(BytesOf(folder_ / "group" / file) == bytes) << file;
  }
}

TEST_F(GroupTest, EndsTogetherWhereTheFirstIsCancelledOrARankIsWrong) {
  const auto cancelled = std::make_shared<std::atomic<bool>>(true);
  Exchange exchange;
  ThreadGroup first(exchange, 0, 2);
  ThreadGroup second(exchange, 1, 2);
  std::thread rank([&] {
    const FineTuneResult result = Must(Run("cancelled", &second));
    EXPECT_EQ(result.step, 1);
    EXPECT_TRUE(result.cancelled);
  });
  const FineTuneResult result = Must(Run("cancelled", &first, {.cancelled = cancelled}));
  rank.join();
  EXPECT_EQ(result.step, 1);
  EXPECT_TRUE(result.cancelled);
  EXPECT_TRUE(fs::exists(folder_ / "cancelled/0000001/training_state.json"));

  Exchange wrong;
  ThreadGroup leader(wrong, 0, 2);
  ThreadGroup other(wrong, 1, 2);
  other.is_short = true;
  std::thread follower([&] { EXPECT_FALSE(Run("wrong", &other)); });
  const auto failed = Run("wrong", &leader);
  wrong.Fail();
  follower.join();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().id, "train.group");
}

TEST_F(GroupTest, OneRankIsCancelledAsAProcessAlone) {
  Exchange exchange;
  ThreadGroup only(exchange, 0, 1);
  const auto cancelled = std::make_shared<std::atomic<bool>>(true);
  const FineTuneResult result = Must(Run("alone", &only, {.cancelled = cancelled}));
  EXPECT_EQ(result.step, 1);
  EXPECT_TRUE(result.cancelled);

  ThreadGroup beyond(exchange, 1, 1);
  const auto refused = Run("beyond", &beyond);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().id, "train.group");
}

}  // namespace
}  // namespace rullama::training
