#include "engine/texts_in_flight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace rullama {
namespace {

// Takes texts and gives each the number of its tokens as its vector.
class TextsInFlightTest : public ::testing::Test {
 protected:
  static std::vector<Result<std::unique_ptr<Job>>> Texts(const std::vector<size_t>& lengths) {
    std::vector<Result<std::unique_ptr<Job>>> texts;
    for (const size_t length : lengths) {
      auto job = std::make_unique<Job>();
      job->prompt.resize(length);
      job->channel = std::make_shared<AnswerChannel>(std::make_shared<Wakeup>());
      texts.emplace_back(std::move(job));
    }
    return texts;
  }
  [[nodiscard]] TextRunner Runner(int64_t alignment = 1) {
    return {.rows_of_step = 100,
            .alignment = alignment,
            .enqueue =
                [this](std::unique_ptr<Job> job) {
                  lengths_[job->channel.get()] = job->prompt.size();
                  const size_t texts = lengths_.size();
                  most_texts_ = std::max(most_texts_, texts);
                  return job->channel;
                },
            .await = [this](AnswerChannel& channel) -> Result<std::vector<float>> {
              if (stop_at_ == lengths_.at(&channel)) stop_.request_stop();
              if (channel.cancelled()) return MakeError(ErrorKind::kRuntime, "run.cancelled", "");
              const auto length = static_cast<float>(lengths_.at(&channel));
              lengths_.erase(&channel);
              return std::vector<float>{length};
            }};
  }

  std::map<AnswerChannel*, size_t> lengths_;  // of the texts in flight
  size_t most_texts_ = 0;                     // in flight
  size_t stop_at_ = 0;                        // the length of a text
  std::stop_source stop_;
};

TEST_F(TextsInFlightTest, TwoStepsAreInFlight) {
  const auto vectors = EmbedAll(Texts(std::vector<size_t>(50, 10)), Runner(), stop_.get_token());
  EXPECT_EQ(most_texts_, 20u);
  EXPECT_TRUE(std::ranges::all_of(
      vectors, [](const auto& one) { return one && *one == std::vector<float>{10}; }));
}

TEST_F(TextsInFlightTest, RowsBetweenTextsCount) {
  EmbedAll(Texts(std::vector<size_t>(50, 10)), Runner(/*alignment=*/64), stop_.get_token());
  EXPECT_EQ(most_texts_, 3u);
}

TEST_F(TextsInFlightTest, ALongTextIsAlone) {
  const auto vectors = EmbedAll(Texts({300, 10, 300}), Runner(), stop_.get_token());
  EXPECT_EQ(most_texts_, 1u);
  for (const auto& [text, length] : std::map<size_t, float>{{0, 300}, {1, 10}, {2, 300}}) {
    ASSERT_TRUE(vectors[text]);
    EXPECT_EQ(*vectors[text], std::vector<float>{length});
  }
}

TEST_F(TextsInFlightTest, AnErrorIsThatOfItsText) {
  auto texts = Texts({1, 2, 3});
  texts[1] = MakeError(ErrorKind::kUsage, "usage.request", "wrong");
  const auto vectors = EmbedAll(std::move(texts), Runner(), stop_.get_token());
  EXPECT_TRUE(vectors[0] && vectors[2]);
  ASSERT_FALSE(vectors[1]);
  EXPECT_EQ(vectors[1].error().id, "usage.request");
}

TEST_F(TextsInFlightTest, AStopEndsWhatIsInFlightAndHandsNoMoreOver) {
  stop_at_ = 90;
  const auto vectors = EmbedAll(Texts({80, 90, 70, 60, 50}), Runner(), stop_.get_token());
  EXPECT_TRUE(vectors.front());
  for (size_t i = 1; i < vectors.size(); ++i) {
    ASSERT_FALSE(vectors[i]);
    EXPECT_EQ(vectors[i].error().id, "run.cancelled");
  }
  EXPECT_EQ(std::ranges::count(lengths_, 50u, &std::pair<AnswerChannel* const, size_t>::second), 0);
}

}  // namespace
}  // namespace rullama
