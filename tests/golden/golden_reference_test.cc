// The model that comes with the source, on the reference interpreter, against numbers computed by
// an independent float64 evaluation of the same dequantised weights.
#include <gtest/gtest.h>

#include "tests/golden/golden_support.h"

namespace rullama {
namespace {

using golden::ReferenceModel;

// Float64 against float64: the rest is the goldens' storage as f32 (6e-8) and the order of sums.
constexpr double kTolerance = 1e-5;

class GoldenReferenceTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string data = RULLAMA_SOURCE_DIR "/tests/data/";
    golden_ = golden::ReadJson(data + "golden/tiny-e2b-Q4_K_M.json");
    ASSERT_TRUE(golden_.is_object());
    expected_ = golden::ReadFloats(data + "golden/" + golden_.at("logits").get<std::string>());
    ASSERT_FALSE(expected_.empty());
    auto model = ReferenceModel::Open(data + "tiny-e2b-Q4_K_M.gguf", DType::kF32, 256);
    ASSERT_TRUE(model) << model.error().ToString();
    model_ = *std::move(model);
  }

  // The rows of the logits that the golden has, out of rows [first, ...) of the sequence.
  [[nodiscard]] std::vector<double> GoldenRows() const {
    const auto width = static_cast<size_t>(model_->config().vocabulary);
    std::vector<double> rows;
    for (const size_t position : golden_.at("logits_positions").get<std::vector<size_t>>()) {
      const auto row = all_.begin() + static_cast<ptrdiff_t>(position * width);
      rows.insert(rows.end(), row, row + static_cast<ptrdiff_t>(width));
    }
    return rows;
  }
  // Feeds all tokens in steps of `chunk`.
  void Feed(size_t chunk) {
    const auto tokens = golden_.at("tokens").get<std::vector<int32_t>>();
    all_.clear();
    for (size_t at = 0; at < tokens.size(); at += chunk) {
      const size_t count = std::min(chunk, tokens.size() - at);
      const Status status = model_->Step(std::span(tokens).subspan(at, count));
      ASSERT_TRUE(status) << status.error().ToString();
      all_.insert(all_.end(), model_->logits()->begin(), model_->logits()->end());
    }
  }

  nlohmann::json golden_;
  std::vector<float> expected_;
  std::unique_ptr<ReferenceModel> model_;
  std::vector<double> all_;
};

TEST_F(GoldenReferenceTest, LogitsOfAPromptInOneStep) {
  Feed(100);
  EXPECT_LE(golden::RelativeL2(GoldenRows(), expected_), kTolerance);
}

// The ring of 64 rows wraps inside a step, and the last step is shorter.
TEST_F(GoldenReferenceTest, LogitsOfAPromptInSteps) {
  Feed(37);
  EXPECT_LE(golden::RelativeL2(GoldenRows(), expected_), kTolerance);
}

TEST_F(GoldenReferenceTest, GreedyContinuations) {
  ASSERT_EQ(golden_.at("greedy").size(), 4u);
  for (const auto& item : golden_.at("greedy")) {
    const auto outcome = golden::CheckGreedy(*model_, item);
    ASSERT_TRUE(outcome) << outcome.error().ToString();
    EXPECT_EQ(outcome->first_wrong, -1) << item.at("name");
    EXPECT_GE(outcome->judged, 25) << item.at("name");
  }
}

}  // namespace
}  // namespace rullama
