#include "samplers/settings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "core/config/layered_config.h"
#include "core/config/schema.h"
#include "core/gguf/gguf_writer.h"
#include "samplers/sampler_test_fixture.h"

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
  EXPECT_FALSE(s.IsGreedy());
}

// The setting that an error of sampler.range names; else the id.
std::string RefusedSetting(const SamplerSettings& settings) {
  const Status status = settings.Validate(kVocabulary);
  if (status || status.error().id != "sampler.range") return IdOf(settings);
  return status.error().message.substr(0, status.error().message.find(" is "));
}

TEST(SamplerSettingsTest, NumbersOutOfRangeAreRefusedByName) {
  const double nan = std::nan("");
  EXPECT_EQ(RefusedSetting({.temperature = -0.1}), "sampler.temperature");
  EXPECT_EQ(RefusedSetting({.temperature = nan}), "sampler.temperature");
  EXPECT_EQ(RefusedSetting({.temperature = kInf}), "sampler.temperature");
  EXPECT_EQ(RefusedSetting({.top_k = -1}), "sampler.top_k");
  EXPECT_EQ(RefusedSetting({.top_k = kVocabulary + 1}), "sampler.top_k");
  EXPECT_EQ(IdOf({.top_k = kVocabulary}), "none");
  EXPECT_EQ(RefusedSetting({.top_p = 0}), "sampler.top_p");
  EXPECT_EQ(RefusedSetting({.top_p = 1e-60}), "sampler.top_p");
  EXPECT_EQ(RefusedSetting({.top_p = 1.1}), "sampler.top_p");
  EXPECT_EQ(RefusedSetting({.top_p = nan}), "sampler.top_p");
  EXPECT_EQ(RefusedSetting({.min_p = -0.1}), "sampler.min_p");
  EXPECT_EQ(RefusedSetting({.min_p = nan}), "sampler.min_p");
  EXPECT_EQ(RefusedSetting({.typical_p = 0}), "sampler.typical_p");
  EXPECT_EQ(RefusedSetting({.repeat_penalty = 0}), "sampler.repeat_penalty");
  EXPECT_EQ(RefusedSetting({.repeat_last_n = -2}), "sampler.repeat_last_n");
  EXPECT_EQ(RefusedSetting({.frequency_penalty = nan}), "sampler.frequency_penalty");
  EXPECT_EQ(RefusedSetting({.presence_penalty = kInf}), "sampler.presence_penalty");
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

// Checks settings for a model without recommendations and with the largest possible vocabulary.
Status CheckedLater(const LayeredConfig& config) {
  const SamplerConfig& sampler = config.values().sampler;
  const auto bytes = GgufWriter().EncodeHeader();
  if (!bytes) return tl::unexpected(bytes.error());
  const auto file = GgufFile::Parse(*bytes);
  if (!file) return tl::unexpected(file.error());
  RL_ASSIGN_OR_RETURN(const SamplerSettings settings, ResolveSettings(sampler, *file));
  RL_RETURN_IF_ERROR(settings.Validate(kMaxVocabulary));
  const EntropyBoundSettings widest = {.t_min = 1e-30F, .t_max = 100};
  return ResolveSettings(sampler.diffusion, widest).Validate();
}

TEST(ResolveSettingsTest, ConfigurationAndSamplersAcceptTheSameValues) {
  int accepted = 0;
  int refused = 0;
  for (const std::string& path : FieldPaths()) {
    if (!path.starts_with("sampler.") || path.ends_with("logit_bias")) continue;
    for (const char* value :
         {"-101",    "-100",     "-2.1",     "-2",   "-1",    "-0.1",
          "0",       "1e-60",    "0.009",    "0.01", "0.5",   "1",
          "1.1",     "2",        "2.1",      "100",  "100.1", "1000000",
          "1000001", "16777216", "16777217", "1e9",  "1.1e9", "9223372036854775807"}) {
      LayeredConfig config;
      if (!config.Set(path, value, Origin::kFlag, "test")) {
        ++refused;
        continue;
      }
      ++accepted;
      const Status later = CheckedLater(config);
      EXPECT_TRUE(later) << path << ": " << value << ": " << later.error().ToString();
    }
  }
  EXPECT_GT(accepted, 50);
  EXPECT_GT(refused, 50);
}

TEST(ResolveSettingsTest, SamplersAcceptNothingThatTheConfigurationRefuses) {
  EXPECT_EQ(RefusedSetting({.frequency_penalty = 2.1}), "sampler.frequency_penalty");
  EXPECT_EQ(RefusedSetting({.presence_penalty = -2.1}), "sampler.presence_penalty");
  EXPECT_EQ(IdOf({.logit_bias = {{5, 100.5}}}), "sampler.logit_bias");
  EXPECT_EQ(EntropyBoundSettings{.max_steps = 1'000'001}.Validate().error().id,
            "sampler.max_steps");
  EXPECT_EQ(EntropyBoundSettings{.t_max = 100.5F}.Validate().error().id, "sampler.t_max");
  EXPECT_EQ(EntropyBoundSettings{.entropy_bound = 2e9F}.Validate().error().id,
            "sampler.entropy_bound");
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
