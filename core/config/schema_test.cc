#include "core/config/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "core/config/consistency.h"
#include "core/config/layered_config.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;
using ::testing::Pair;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Schema, EveryKeyIsDescribedAndUnique) {
  const std::vector<std::string> paths = FieldPaths();
  EXPECT_EQ(std::set<std::string>(paths.begin(), paths.end()).size(), paths.size());
  for (const std::string& path : paths) {
    const FieldSpec* field = FindField(path);
    ASSERT_NE(field, nullptr) << path;
    EXPECT_FALSE(field->doc.empty()) << path;
    EXPECT_FALSE(field->accepts.empty()) << path;
    EXPECT_FALSE(field->absent.empty()) << path;
    // A bar or a line break would end the cell of the generated table.
    EXPECT_EQ((field->doc + field->accepts + field->absent).find_first_of("|\n"), std::string::npos)
        << path;
  }
  EXPECT_EQ(FindField("sampler.nothing"), nullptr);
}

TEST(SchemaDoc, DocumentationIsUpToDate) {
  const std::string path = RULLAMA_SOURCE_DIR "/docs/configuration.md";
  if (std::getenv("RULLAMA_UPDATE_DOCS") != nullptr) {
    std::ofstream(path, std::ios::binary) << SchemaAsMarkdown();
  }
  EXPECT_EQ(ReadFile(path), SchemaAsMarkdown())
      << "run this test once with RULLAMA_UPDATE_DOCS=1 and commit " << path;
}

// tests/data/config/full.yaml gives every key a value that is not its default, so a row of the
// table that writes to the wrong member, or to none, is seen.
TEST(Schema, EveryKeyReachesItsMember) {
  LayeredConfig config;
  const Status status = config.ApplyFile(RULLAMA_SOURCE_DIR "/tests/data/config/full.yaml");
  ASSERT_TRUE(status.has_value()) << status.error().ToString();
  // A row of the table needs no line there.
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc)                \
  if (config.origin("sampler." #name) == Origin::kDefault) {                                   \
    const Type other = (range).min + ((range).max - (range).min) / 4;                          \
    ASSERT_TRUE(config.Set("sampler." #name, fmt::format("{}", other), Origin::kYaml, #name)); \
  }
#include "core/config/sampler_settings.def"
  ASSERT_TRUE(config.Finish().has_value());
  // It stands for the name and device that the file has.
  const std::vector<std::string> devices = {"vulkan:1", "cpu"};
  ASSERT_TRUE(config.SetList("backend.devices", devices, Origin::kYaml, "test").has_value());
  const Config defaults;
  for (const std::string& path : FieldPaths()) {
    const FieldSpec& field = *FindField(path);
    if (field.is_map) {
      EXPECT_NE(field.print_entries(config.values()), field.print_entries(defaults)) << path;
    } else {
      EXPECT_EQ(config.origin(path), Origin::kYaml) << path;
      EXPECT_NE(field.print(config.values()), field.print(defaults)) << path;
    }
  }
}

TEST(Schema, ValuesOfTheFullFile) {
  const auto config = LoadConfigFile(RULLAMA_SOURCE_DIR "/tests/data/config/full.yaml");
  ASSERT_TRUE(config.has_value()) << config.error().ToString();
  EXPECT_EQ(config->model.path, RULLAMA_SOURCE_DIR "/tests/data/config/models/some.gguf");
  const std::string folder = RULLAMA_SOURCE_DIR "/tests/data/config/";
  EXPECT_THAT(config->model.adapters,
              ElementsAre(AdapterSetting{folder + "one", 1}, AdapterSetting{"/opt/two", 0.5},
                          AdapterSetting{folder + "three:2", -1}));
  EXPECT_EQ(config->context.capacity, 4096);
  EXPECT_EQ(config->context.prefill_chunk, 128);
  EXPECT_EQ(config->context.kv_dtype, KvDtype::kF32);
  EXPECT_EQ(config->context.slots, 3);
  EXPECT_EQ(config->backend.name, "vulkan");
  EXPECT_EQ(config->backend.device, "llvmpipe");
  EXPECT_THAT(config->backend.options, ElementsAre(Pair("max_submit_ops", "64")));
  EXPECT_EQ(config->model.mmproj, folder + "models/towers.gguf");
  EXPECT_THAT(config->plugins.paths, ElementsAre(RULLAMA_SOURCE_DIR "/tests/data/config/plugins",
                                                 "/opt/rullama/librullama_x.so"));
  EXPECT_EQ(config->placement.fallback, FallbackPolicy::kAllow);
  EXPECT_THAT(config->placement.host_ops, ElementsAre("argmax"));
  EXPECT_THAT(config->placement.host_weights, Optional(ElementsAre("token_embd", "output")));
  EXPECT_EQ(config->placement.host_expert_layers, 12);
  EXPECT_EQ(config->placement.split, (LayerSplit{.layers = {20, 15}, .shares = {}}));
  EXPECT_EQ(config->sampler.temperature, 0.5);
  EXPECT_EQ(config->sampler.top_k, 10);
  EXPECT_EQ(config->sampler.top_p, 0.9);
  EXPECT_EQ(config->sampler.min_p, 0.05);
  EXPECT_EQ(config->sampler.typical_p, 0.7);
  EXPECT_EQ(config->sampler.repeat_penalty, 1.25);
  EXPECT_EQ(config->sampler.repeat_last_n, -1);
  EXPECT_EQ(config->sampler.frequency_penalty, -0.5);
  EXPECT_EQ(config->sampler.presence_penalty, 0.1);
  EXPECT_EQ(config->sampler.seed, 9223372036854775807);
  EXPECT_EQ(config->sampler.greedy, true);
  EXPECT_THAT(config->sampler.logit_bias, ElementsAre(Pair(5, -100.0), Pair(262143, 1.5)));
  EXPECT_EQ(config->generation.max_tokens, 12);
  EXPECT_THAT(config->generation.stop, ElementsAre("\n\n", "END"));
  EXPECT_EQ(config->generation.thinking, true);
  EXPECT_EQ(config->generation.system, "Be brief.\nSay \"please\".\n");
  EXPECT_TRUE(config->generation.raw);
  EXPECT_EQ(config->generation.image_tokens, 560);
  EXPECT_THAT(config->server.models,
              ElementsAre(ServedModelSetting{.path = "gemma4:e2b"},
                          ServedModelSetting{.path = folder + "models/some.gguf",
                                             .name = "some",
                                             .keep_alive = std::chrono::minutes(90),
                                             .adapters = {{folder + "one", 1}},
                                             .mmproj = folder + "models/towers.gguf",
                                             .settings = {{"context.slots", "2"}}}));
  EXPECT_THAT(config->server.aliases, ElementsAre(ModelAlias{.name = "small-*", .model = "some"}));
  EXPECT_EQ(config->server.keep_alive, std::chrono::seconds(90));
  EXPECT_EQ(config->server.port, 8080);
  EXPECT_EQ(config->server.max_gap, 40);
  EXPECT_EQ(config->server.queue_timeout, 3);
  EXPECT_THAT(config->server.api_keys, ElementsAre(folder + "keys"));
  EXPECT_EQ(config->server.slot_save_path, folder + "slots");
  EXPECT_EQ(config->server.web_path, folder + "page");
  EXPECT_EQ(config->server.prefix_cache_path, folder + "prompts");
  const ArchitectureConfig& a = config->architecture;
  EXPECT_EQ(a.kv_heads, (SlidingGlobal{.sliding = 2, .global = 1}));
  EXPECT_EQ(a.head_dim, (SlidingGlobal{.sliding = 64, .global = 128}));
  EXPECT_EQ(a.ffn, (OwnedShared{.owned = 768, .shared = 1536}));
  EXPECT_EQ(a.rope.base_sliding, 5000.0);
  EXPECT_EQ(a.rms_eps, 0.00001);
  EXPECT_EQ(a.final_softcap, 0.0);
}

// layers, width, heads, window, pattern, shared, ple of each size of the family.
struct Shipped {
  const char* file;
  const char* model;  // below the source folder if it is a file
  int64_t layers, width, heads, window, pattern, shared_kv_layers, ple_dim;
};

TEST(ShippedConfigs, ParseAndDescribeTheirModel) {
  const Shipped rows[] = {
      {"tiny", RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf", 8, 256, 4, 64, 4, 4, 256},
      {"e2b", "gemma4:e2b", 35, 1536, 8, 512, 5, 20, 256},
      {"e4b", "gemma4:e4b", 42, 2560, 8, 512, 6, 18, 256},
      {"12b", RULLAMA_SOURCE_DIR "/models/gemma-4-12b-Q4_K_M.gguf", 48, 3840, 16, 1024, 6, 0, 0},
      {"31b", "gemma4:31b", 60, 5376, 32, 1024, 6, 0, 0},
      {"26b-a4b", "gemma4:26b", 30, 2816, 16, 1024, 6, 0, 0},
      {"diffusiongemma-26b-a4b", RULLAMA_SOURCE_DIR "/models/diffusiongemma-26b-a4b-Q4_K_M.gguf",
       30, 2816, 16, 1024, 6, 0, 0},
      {"tiny-diffusion", RULLAMA_SOURCE_DIR "/tests/data/tiny-diffusion-Q4_K_M.gguf", 6, 256, 4, 64,
       6, 0, 0},
  };
  for (const Shipped& row : rows) {
    SCOPED_TRACE(row.file);
    const auto config =
        LoadConfigFile(fmt::format("{}/configs/{}.yaml", RULLAMA_SOURCE_DIR, row.file));
    ASSERT_TRUE(config.has_value()) << config.error().ToString();
    EXPECT_EQ(config->model.path, row.model);
    const ArchitectureConfig& a = config->architecture;
    const Status complete = CheckArchitectureComplete(a);
    EXPECT_TRUE(complete.has_value()) << complete.error().ToString();
    EXPECT_EQ(a.layers, row.layers);
    EXPECT_EQ(a.width, row.width);
    EXPECT_EQ(a.heads, row.heads);
    EXPECT_EQ(a.sliding_window, row.window);
    EXPECT_EQ(a.pattern, row.pattern);
    EXPECT_EQ(a.shared_kv_layers, row.shared_kv_layers);
    EXPECT_EQ(a.ple_dim, row.ple_dim);
  }
}

TEST(ShippedConfigs, TheTinyModelContinuesText) {
  const auto config = LoadConfigFile(RULLAMA_SOURCE_DIR "/configs/tiny.yaml");
  ASSERT_TRUE(config.has_value()) << config.error().ToString();
  EXPECT_TRUE(config->generation.raw);
  EXPECT_EQ(config->context.capacity, config->architecture.context_length);
}

}  // namespace
}  // namespace rullama
