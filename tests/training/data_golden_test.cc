// Tokens and targets of examples, and learning rates, against an independent implementation.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/tokenizer/vocabulary_from_gguf.h"
#include "engine/training/data_set.h"
#include "engine/training/learning_rate.h"
#include "models/gemma4/gemma4_model.h"
#include "tests/training/golden_case.h"

namespace rullama::training {
namespace {

nlohmann::json ReadGolden(const std::string& name) {
  std::ifstream file(SharedFolder() + "/goldens/train-e2b/" + name);
  return nlohmann::json::parse(file);
}

// The model of a file as one of a large size, whose chat template differs.
std::unique_ptr<Model> ModelOf(const GgufFile& file, bool large) {
  const Gemma4Config config = Must(Gemma4Config::FromFile(file));
  return std::make_unique<Gemma4Model>(
      config, Must(Gemma4Weights::FromFile(config, file)),
      large ? gemma4::ChatVariant::kLarge : gemma4::ChatVariant::kSmall);
}

TEST(DataGolden, TokensAndTargets) {
  const GgufFile file = Must(GgufFile::Open(SharedFolder() + "/models/tiny-e2b-f16.gguf"));
  const auto tokenizer = Must(Tokenizer::Build(Must(VocabularyFromGguf(file))));
  for (const auto& test : ReadGolden("datasets.json").at("cases")) {
    const std::string flags = test.value("flags", "");
    const DataOptions options{
        .train_on = flags == "--train-on last" ? TrainOn::kLast : TrainOn::kAssistant,
        .raw = flags == "--raw"};
    const auto model = ModelOf(file, test.value("variant", "small") == "large");
    const DataSet set =
        Must(ParseDataSet(test.at("line").dump(), "golden", *model, *tokenizer, options));
    ASSERT_EQ(set.examples.size(), 1u) << test.at("name");
    EXPECT_EQ(set.examples[0].ids, test.at("ids").get<std::vector<int32_t>>()) << test.at("name");
    EXPECT_EQ(set.examples[0].targets, test.at("targets").get<std::vector<int32_t>>())
        << test.at("name");
  }
}

TEST(DataGolden, LearningRates) {
  const std::map<std::string, LearningSchedule> kinds = {{"constant", LearningSchedule::kConstant},
                                                         {"linear", LearningSchedule::kLinear},
                                                         {"cosine", LearningSchedule::kCosine}};
  for (const auto& test : ReadGolden("schedule.json").at("cases")) {
    const LearningRate rate{.schedule = kinds.at(test.at("kind")),
                            .steps = test.at("steps"),
                            .warmup = test.at("warmup"),
                            .highest = test.at("learning_rate"),
                            .lowest = test.at("min_learning_rate")};
    const auto expected = test.at("lr").get<std::vector<double>>();
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(rate.At(static_cast<int64_t>(i)), expected[i], 1e-15) << test.dump();
    }
  }
}

}  // namespace
}  // namespace rullama::training
