#include "models/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "models/gemma4/graph/gemma4_test_file.h"

namespace rullama {
namespace {

using ::testing::HasSubstr;

Result<std::unique_ptr<Model>> OpenSmall(std::string_view architecture) {
  Gemma4TestFile file = Gemma4TestFile::Small();
  EXPECT_TRUE(file.writer.Set("general.architecture", architecture));
  const std::vector<std::byte> bytes = file.Bytes();
  const auto parsed = GgufFile::Parse(bytes);
  EXPECT_TRUE(parsed);
  return OpenModel(*parsed);
}

TEST(Registry, EveryArchitectureHasOneFamily) {
  std::set<std::string_view> seen;
  for (const ModelFamily* family : ModelFamilies()) {
    ASSERT_FALSE(family->architectures.empty());
    for (const std::string_view name : family->architectures) {
      EXPECT_TRUE(seen.insert(name).second) << name;
      EXPECT_EQ(FindFamily(name), family);
    }
    for (const UnsupportedArchitecture& other : family->unsupported) {
      EXPECT_TRUE(seen.insert(other.name).second) << other.name;
    }
    for (const std::string_view name : family->assistants) {
      EXPECT_TRUE(seen.insert(name).second) << name;
      EXPECT_EQ(FindFamily(name).error().id, "model.assistant");
    }
  }
  EXPECT_TRUE(seen.contains("gemma4"));
  EXPECT_TRUE(seen.contains("diffusion-gemma"));
  EXPECT_TRUE(seen.contains("gemma3"));
}

TEST(Registry, AFileIsOpenedByItsArchitecture) {
  const auto model = OpenSmall("gemma4");
  ASSERT_TRUE(model) << model.error().ToString();
  const ModelFacts& facts = (*model)->facts();
  EXPECT_EQ(facts.layers, int64_t{Gemma4TestFile::kLayers});
  EXPECT_EQ(facts.vocabulary, int64_t{Gemma4TestFile::kVocabulary});
  EXPECT_FALSE(facts.denoises());
  const auto graph = (*model)->BuildGraph({.capacity = 8});
  ASSERT_TRUE(graph) << graph.error().ToString();
  EXPECT_EQ(graph->hidden.size(), Gemma4TestFile::kLayers + 1);
}

TEST(Registry, OtherArchitecturesAreRefused) {
  const auto llama = OpenSmall("llama");
  ASSERT_FALSE(llama);
  EXPECT_EQ(llama.error().id, "model.arch");
  EXPECT_EQ(llama.error().kind, ErrorKind::kModelFile);
  EXPECT_THAT(llama.error().message,
              HasSubstr("found architecture 'llama', expected 'gemma4' or 'diffusion-gemma' or "
                        "'gemma-embedding2' or 'gemma3' or 'gemma-embedding'"));
  EXPECT_THAT(OpenSmall("clip").error().message, HasSubstr("give the text model"));
  const auto drafter = OpenSmall("gemma4-assistant");
  ASSERT_FALSE(drafter);
  EXPECT_EQ(drafter.error().id, "model.assistant");
  EXPECT_THAT(drafter.error().message,
              HasSubstr("a drafter for a model of architecture 'gemma4', expected a model"));
}

TEST(Registry, AFileWithoutAnArchitectureIsRefused) {
  Gemma4TestFile file = Gemma4TestFile::Small();
  file.writer.Remove("general.architecture");
  const std::vector<std::byte> bytes = file.Bytes();
  const auto parsed = GgufFile::Parse(bytes);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(OpenModel(*parsed).error().id, "gguf.key_missing");
}

TEST(Registry, DrawnModelsHaveTheWeightsOfTheirGraphs) {
  for (const ModelFamily* family : ModelFamilies()) {
    const DrawnModel drawn = family->draw(7);
    EXPECT_FALSE(drawn.description.empty());
    auto parts = drawn.model->BuildGraph({.capacity = 8});
    ASSERT_TRUE(parts) << parts.error().ToString();
    AddLogitsOutput(parts->builder, parts->logits, RowDemand::kAll);
    const auto weights = drawn.weights(std::move(parts->constants));
    const auto graph = std::move(parts->builder).Finish();
    ASSERT_TRUE(graph) << graph.error().ToString();
    for (const Value& value : graph->values) {
      if (value.lifetime != Lifetime::kConstant) continue;
      const auto bytes = weights->Bytes(value);
      ASSERT_TRUE(bytes) << value.name;
      EXPECT_EQ(bytes->size(), value.type.BytesAt({})) << value.name;
    }
  }
}

}  // namespace
}  // namespace rullama
