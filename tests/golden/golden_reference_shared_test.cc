// The small trained models on the reference interpreter: against transformers in float32 (f16
// files) and against an independent float64 evaluation (quantised files).
#include <gtest/gtest.h>

#include <iostream>

#include "tests/golden/golden_support.h"

namespace rullama {
namespace {

using golden::ReferenceModel;

struct GoldenCase {
  const char* model;
  const char* type;
  // Relative L2: float32 arithmetic of the golden, or float64 on both sides.
  double tolerance;

  friend void PrintTo(const GoldenCase& c, std::ostream* out) { *out << c.model << ' ' << c.type; }
};

class GoldenSharedTest : public testing::TestWithParam<GoldenCase> {
 protected:
  void SetUp() override {
    const GoldenCase& c = GetParam();
    const std::string shared = RULLAMA_SOURCE_DIR "/../shared/";
    folder_ = shared + "goldens/" + c.model + "/";
    quantised_ = std::string_view(c.type) != "f16";
    golden_ = golden::ReadJson(folder_ + (quantised_ ? "golden.Q4_K_M.json" : "golden.json"));
    ASSERT_TRUE(golden_.is_object());
    auto model = ReferenceModel::Open(shared + "models/" + c.model + "-" + c.type + ".gguf",
                                      DType::kF32, 256);
    ASSERT_TRUE(model) << model.error().ToString();
    model_ = *std::move(model);
  }

  // The quantised goldens have the prefill case at their top level.
  [[nodiscard]] const nlohmann::json& Prefill() const {
    return quantised_ ? golden_ : golden_.at("cases").at(0);
  }
  [[nodiscard]] std::vector<nlohmann::json> Greedy() const {
    std::vector<nlohmann::json> cases;
    for (const auto& item : golden_.at(quantised_ ? "greedy" : "cases")) {
      if (item.contains("greedy")) cases.push_back(item);
    }
    return cases;
  }

  std::string folder_;
  bool quantised_ = false;
  nlohmann::json golden_;
  std::unique_ptr<ReferenceModel> model_;
};

TEST_P(GoldenSharedTest, LogitsAndHiddenStatesOfAPrompt) {
  const auto tokens = Prefill().at("tokens").get<std::vector<int32_t>>();
  const Status status = model_->Step(tokens);
  ASSERT_TRUE(status) << status.error().ToString();
  const auto logits = golden::ReadFloats(folder_ + Prefill().at("logits").get<std::string>());
  const double error = golden::RelativeL2(*model_->logits(), logits);
  std::cout << "relative L2 of the logits: " << error << '\n';
  EXPECT_LE(error, GetParam().tolerance);
  if (quantised_) return;  // these goldens have no hidden states

  const auto hidden = golden::ReadFloats(folder_ + Prefill().at("hidden").get<std::string>());
  const size_t size = tokens.size() * static_cast<size_t>(model_->config().width);
  const auto layers = static_cast<size_t>(model_->config().layer_count());
  ASSERT_EQ(hidden.size(), (layers + 1) * size);
  for (size_t layer = 0; layer <= layers; ++layer) {
    // What transformers calls the last hidden state has gone through the final norm.
    const auto* found = layer < layers ? model_->hidden(layer) : model_->value("output.norm");
    ASSERT_NE(found, nullptr);
    const auto expected = std::span(hidden).subspan(layer * size, size);
    EXPECT_LE(golden::RelativeL2(*found, expected), GetParam().tolerance)
        << "after layer " << layer;
  }
}

TEST_P(GoldenSharedTest, GreedyContinuations) {
  ASSERT_EQ(Greedy().size(), 4u);
  for (const auto& item : Greedy()) {
    const auto outcome = golden::CheckGreedy(*model_, item);
    ASSERT_TRUE(outcome) << outcome.error().ToString();
    EXPECT_EQ(outcome->first_wrong, -1) << item.at("name");
    EXPECT_GT(outcome->judged, 0) << item.at("name");
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenSharedTest,
                         testing::Values(GoldenCase{"tiny-e2b", "f16", 2e-5},
                                         GoldenCase{"tiny-e2b", "Q4_K_M", 1e-5},
                                         GoldenCase{"tiny-dense", "f16", 2e-5},
                                         GoldenCase{"tiny-dense", "Q4_K_M", 1e-5}),
                         [](const auto& test) {
                           std::string name = test.param.model;
                           name += std::string("_") + test.param.type;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace rullama
