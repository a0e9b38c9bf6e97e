#include "samplers/settings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "core/gguf/gguf_writer.h"
#include "samplers/sampler_bench.h"

namespace rullama {
namespace {

std::string IdOf(const SamplerSettings& settings) {
  const Status status = settings.Validate(kVocabulary);
  return status ? "none" : status.error().id;
}

TEST(SamplerSettingsTest, DefaultsAreThoseOfGemma4) {
  const SamplerSettings s;
  EXPECT_EQ(IdOf(s), "none");
  EXPECT_EQ(s.temperature, 1.0);
  EXPECT_EQ(s.top_k, 64);
  EXPECT_EQ(s.top_p, 0.95);
  EXPECT_FALSE(s.HasPenalties());
  EXPECT_FALSE(s.IsGreedy());
}

TEST(SamplerSettingsTest, NumbersOutOfRangeAreRefusedByName) {
  const double nan = std::nan("");
  EXPECT_EQ(IdOf({.temperature = -0.1}), "sampler.temperature");
  EXPECT_EQ(IdOf({.temperature = nan}), "sampler.temperature");
  EXPECT_EQ(IdOf({.temperature = kInf}), "sampler.temperature");
  EXPECT_EQ(IdOf({.top_k = -1}), "sampler.top_k");
  EXPECT_EQ(IdOf({.top_k = kVocabulary + 1}), "sampler.top_k");
  EXPECT_EQ(IdOf({.top_k = kVocabulary}), "none");
  EXPECT_EQ(IdOf({.top_p = 0}), "sampler.top_p");
  EXPECT_EQ(IdOf({.top_p = 1e-60}), "sampler.top_p");
  EXPECT_EQ(IdOf({.top_p = 1.1}), "sampler.top_p");
  EXPECT_EQ(IdOf({.top_p = nan}), "sampler.top_p");
  EXPECT_EQ(IdOf({.min_p = -0.1}), "sampler.min_p");
  EXPECT_EQ(IdOf({.min_p = nan}), "sampler.min_p");
  EXPECT_EQ(IdOf({.typical_p = 0}), "sampler.typical_p");
  EXPECT_EQ(IdOf({.repeat_penalty = 0}), "sampler.repeat_penalty");
  EXPECT_EQ(IdOf({.repeat_last_n = -2}), "sampler.repeat_last_n");
  EXPECT_EQ(IdOf({.frequency_penalty = nan}), "sampler.frequency_penalty");
  EXPECT_EQ(IdOf({.presence_penalty = kInf}), "sampler.presence_penalty");
}

TEST(SamplerSettingsTest, BiasIsCheckedAgainstTheVocabulary) {
  EXPECT_EQ(IdOf({.logit_bias = {{99, 1.0}, {0, -kInf}}}), "none");
  EXPECT_EQ(IdOf({.logit_bias = {{100, 1.0}}}), "sampler.logit_bias");
  EXPECT_EQ(IdOf({.logit_bias = {{-1, 1.0}}}), "sampler.logit_bias");
  EXPECT_EQ(IdOf({.logit_bias = {{5, std::nan("")}}}), "sampler.logit_bias");
  EXPECT_EQ(IdOf({.logit_bias = {{5, kInf}}}), "sampler.logit_bias");
  SamplerSettings many;
  for (int64_t id = 0; id < 5000; ++id) many.logit_bias[id] = 1;
  EXPECT_EQ(IdOf(many), "sampler.logit_bias");
}

TEST(SamplerSettingsTest, BanningEverythingIsAnErrorOfItsOwn) {
  SamplerSettings settings;
  for (int64_t id = 0; id < kVocabulary; ++id) settings.logit_bias[id] = -kInf;
  EXPECT_EQ(IdOf(settings), "sampler.empty");
  settings.logit_bias[17] = 0;
  EXPECT_EQ(IdOf(settings), "none");
}

TEST(SamplerSettingsTest, TemperatureZeroIsGreedy) {
  EXPECT_TRUE(SamplerSettings{.temperature = 0}.IsGreedy());
  EXPECT_TRUE(SamplerSettings{.greedy = true}.IsGreedy());
  EXPECT_FALSE(SamplerSettings{.temperature = 0.01}.IsGreedy());
}

TEST(SamplerSettingsTest, PenaltiesNeedALookBack) {
  EXPECT_TRUE(SamplerSettings{.repeat_penalty = 1.1}.HasPenalties());
  EXPECT_FALSE((SamplerSettings{.repeat_penalty = 1.1, .repeat_last_n = 0}).HasPenalties());
}

TEST(ResolveSettingsTest, ConfigurationThenFileThenDefault) {
  GgufWriter writer;
  ASSERT_TRUE(writer.Set("general.sampling.temp", 0.7F));
  ASSERT_TRUE(writer.Set("general.sampling.top_k", int32_t{20}));
  ASSERT_TRUE(writer.Set("general.sampling.top_p", 0.5F));
  const auto bytes = writer.EncodeHeader();
  ASSERT_TRUE(bytes);
  const auto file = GgufFile::Parse(*bytes);
  ASSERT_TRUE(file) << file.error().ToString();
  SamplerConfig config;
  config.top_k = 10;
  config.seed = 99;
  const auto settings = ResolveSettings(config, *file);
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->top_k, 10);
  EXPECT_FLOAT_EQ(static_cast<float>(settings->temperature), 0.7F);
  EXPECT_EQ(settings->top_p, 0.5);
  EXPECT_EQ(settings->min_p, 0);
  EXPECT_EQ(settings->seed, 99u);
}

TEST(ResolveSettingsTest, MistypedRecommendationIsAnError) {
  GgufWriter writer;
  ASSERT_TRUE(writer.Set("general.sampling.temp", "hot"));
  const auto bytes = writer.EncodeHeader();
  ASSERT_TRUE(bytes);
  const auto file = GgufFile::Parse(*bytes);
  ASSERT_TRUE(file);
  const auto settings = ResolveSettings({}, *file);
  ASSERT_FALSE(settings);
  EXPECT_EQ(settings.error().id, "gguf.key_type");
}

}  // namespace
}  // namespace rullama
