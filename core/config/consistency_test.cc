#include "core/config/consistency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/config/layered_config.h"

namespace rullama {
namespace {

using ::testing::HasSubstr;

Status Check(std::string_view architecture) {
  LayeredConfig config;
  RL_RETURN_IF_ERROR(config.ApplyYaml(fmt::format("architecture: {}", architecture), "x"));
  return config.Finish();
}

TEST(Consistency, ContradictionsNameTheKeys) {
  const struct {
    const char* architecture;
    const char* message;
  } rows[] = {
      {"{heads: 8, kv_heads: 3}", "heads (8) is not a multiple of architecture.kv_heads (3)"},
      {"{heads: 8, kv_heads: {sliding: 4, global: 3}}", "kv_heads (3)"},
      {"{head_dim: {sliding: 64, global: 127}}", "head_dim (127) must be even"},
      {"{layers: 8, shared_kv_layers: 8}", "must be less than architecture.layers (8)"},
      {"{layers: 8, shared_kv_layers: 5, pattern: 4}", "leaves 3 layers with a cache"},
      {"{sliding_window: 4096, context_length: 2048}", "longer than architecture.context_length"},
      {"{experts: {count: 8, used: 9}}",
       "experts.used (9) is more than architecture.experts.count"},
  };
  for (const auto& row : rows) {
    const Status status = Check(row.architecture);
    ASSERT_FALSE(status.has_value()) << row.architecture;
    EXPECT_EQ(status.error().kind, ErrorKind::kUsage);
    EXPECT_EQ(status.error().id, "config.conflict");
    EXPECT_THAT(status.error().message, HasSubstr(row.message));
  }
}

TEST(Consistency, TemperaturesOfDenoisingFall) {
  const auto check = [](std::string_view diffusion) -> Status {
    LayeredConfig config;
    RL_RETURN_IF_ERROR(config.ApplyYaml(fmt::format("sampler: {{diffusion: {}}}", diffusion), "x"));
    return config.Finish();
  };
  const Status rising = check("{t_min: 5, t_max: 1}");
  ASSERT_FALSE(rising.has_value());
  EXPECT_EQ(rising.error().id, "config.conflict");
  EXPECT_THAT(rising.error().message, HasSubstr("t_min (5) is above sampler.diffusion.t_max (1)"));
  EXPECT_TRUE(check("{t_min: 1, t_max: 1}").has_value());
  EXPECT_TRUE(check("{t_min: 5}").has_value());
}

TEST(Consistency, BoundariesAndPartialBlocksPass) {
  for (const char* architecture :
       {"{heads: 8, kv_heads: 8}", "{kv_heads: 3}", "{layers: 8, shared_kv_layers: 4, pattern: 4}",
        "{layers: 2, shared_kv_layers: 0, pattern: 6}", "{sliding_window: 64, context_length: 64}",
        "{shared_kv_layers: 20}", "{experts: {count: 8, used: 8}}", "{experts: {used: 8}}"}) {
    const Status status = Check(architecture);
    EXPECT_TRUE(status.has_value()) << architecture << ": " << status.error().ToString();
  }
}

TEST(Consistency, AnArchitectureToBuildNamesEveryMissingKey) {
  ArchitectureConfig architecture;
  architecture.layers = 4;
  architecture.width = 64;
  const Status status = CheckArchitectureComplete(architecture);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().id, "config.missing_key");
  EXPECT_THAT(status.error().message, HasSubstr("architecture.heads, architecture.kv_heads"));
  EXPECT_THAT(status.error().message, Not(HasSubstr("architecture.layers")));
}

}  // namespace
}  // namespace rullama
