#include "core/config/layered_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/config/schema.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

std::vector<std::string> NamesOf(const std::vector<DeviceSetting>& devices) {
  std::vector<std::string> names;
  for (const DeviceSetting& device : devices) names.push_back(device.name);
  return names;
}

TEST(ConfigErrors, NamePositionExpectationAndHint) {
  const struct {
    const char* text;
    const char* id;
    const char* message;
  } rows[] = {
      {"sampler:\n  temprature: 1\n", "config.unknown_key",
       "e.yaml:2:3: unknown key 'temprature' in 'sampler'; did you mean 'temperature'?"},
      {"modle: {path: x}\n", "config.unknown_key",
       "e.yaml:1:1: unknown key 'modle' in the configuration; did you mean 'model'?"},
      {"temperature: 1\n", "config.unknown_key",
       "e.yaml:1:1: unknown key 'temperature' in the configuration; did you mean "
       "'sampler.temperature'?"},
      {"model: {file: x}\n", "config.unknown_key",
       "e.yaml:1:9: unknown key 'file' in 'model'; known keys: path"},
      {"architecture: {rope: {base: 1}}\n", "config.unknown_key",
       "e.yaml:1:23: unknown key 'base' in 'architecture.rope'; known keys: base_global, "
       "base_sliding, rotary_fraction_global"},
      {"backend: {threads: 2}\n", "config.unknown_key",
       "e.yaml:1:11: unknown key 'threads' in 'backend'; known keys: name, device, devices, "
       "options, warm_up; "
       "an option of the backend is 'backend.options.threads'"},
      {"<<: {a: 1}\n", "config.unknown_key", "e.yaml:1:1: unknown key '<<'"},
      // Keys of mlx_lm.lora.
      {"model: mlx-community/gemma\n", "config.type", "write model: {path: FILE}"},
      {"train: true\n", "config.unknown_key", "'train' in the configuration; not needed"},
      {"iters: 100\n", "config.unknown_key", "did you mean 'training.iters'?"},
      {"training: {lora_parameters: {rank: 8}}\n", "config.unknown_key",
       "'lora_parameters' in 'training'; use training.rank, training.alpha"},
      {"lr_schedule: {name: cosine_decay}\n", "config.unknown_key", "use training.schedule"},
      {"context:\n  capacity: 1e18\n", "config.range",
       "e.yaml:2:13: context.capacity: expected a whole number from 0 to 16777216, found '1e18'"},
      {"context: {capacity: -1}\n", "config.range", "from 0 to 16777216, found '-1'"},
      {"context: {capacity: 0x10}\n", "config.range", "from 0 to 16777216, found '0x10'"},
      {"context: {slots: 0}\n", "config.range", "a whole number from 1 to 256, found '0'"},
      {"sampler: {temperature: nan}\n", "config.range", "a number from 0 to 100, found 'nan'"},
      {"sampler: {top_p: 2}\n", "config.range", "a number above 0, at most 1, found '2'"},
      {"context: {capacity: many}\n", "config.type", "a whole number from 0 to 16777216"},
      {"context: {capacity: \"8\"}\n", "config.type",
       "found the quoted text '8'; remove the quotes"},
      {"context: {capacity: [8]}\n", "config.type", "found a list"},
      {"context: {capacity: {a: 8}}\n", "config.type", "found a block"},
      {"context: {capacity: }\n", "config.type", "found nothing"},
      {"context: 8192\n", "config.type",
       "e.yaml:1:10: 'context': expected keys with values, found '8192'"},
      {"- a\n", "config.type", "e.yaml:1:1: the configuration: expected keys with values, found"},
      {"context: {kv_dtype: f8}\n", "config.type",
       "expected one of auto, f32, f16, bf16, q8_0, q4_0, found 'f8'"},
      {"generation: {raw: yes}\n", "config.type", "expected true or false, found 'yes'"},
      {"generation: {stop: END}\n", "config.type", "write [a, b], also for one"},
      {"generation: {stop: [END, \"\"]}\n", "config.type",
       "e.yaml:1:26: generation.stop: expected text, not empty"},
      {"backend: {name: \"\"}\n", "config.type", "backend.name: expected a name"},
      {"backend: {options: [a]}\n", "config.type", "backend.options: expected a block; keys:"},
      {"backend: {options: {Threads: 1}}\n", "config.type",
       "e.yaml:1:21: backend.options.Threads: expected an option name"},
      {"backend: {options: {threads: [1]}}\n", "config.type", "backend.options.threads: expected"},
      {"sampler: {logit_bias: {-1: 1}}\n", "config.range", "from 0 to 16777215, found '-1'"},
      {"sampler: {logit_bias: {5: 101}}\n", "config.range", "from -100 to 100, found '101'"},
      {"architecture: {kv_heads: 0}\n", "config.range", "or {sliding: N, global: N}, found '0'"},
      {"architecture: {kv_heads: {sliding: 1}}\n", "config.type", "or {sliding: N, global: N}"},
      {"architecture: {ffn: {owned: 1, globl: 2}}\n", "config.type", "found 'globl'"},
      {"architecture: {family: \"\"}\n", "config.type", "architecture.family: expected a name"},
      {"context: {kv_dtype: f8}\n", "config.type",
       "expected one of auto, f32, f16, bf16, q8_0, q4_0, found 'f8'"},
  };
  for (const auto& row : rows) {
    LayeredConfig config;
    const Status status = config.ApplyYaml(row.text, "e.yaml");
    ASSERT_FALSE(status.has_value()) << row.text;
    EXPECT_EQ(status.error().kind, ErrorKind::kUsage);
    EXPECT_EQ(status.error().id, row.id) << row.text;
    EXPECT_THAT(status.error().message, HasSubstr(row.message));
  }
}

TEST(ConfigErrors, FilesThatCannotBeRead) {
  const std::string folder = ::testing::TempDir();
  for (const auto& [path, reason] :
       {std::pair<std::string, std::string>{folder + "/no-such.yaml", "No such file or directory"},
        {folder, "is a directory"},
        {"/dev/zero", "is a device"}}) {
    const auto config = LoadConfigFile(path);
    ASSERT_FALSE(config.has_value()) << path;
    EXPECT_EQ(config.error().kind, ErrorKind::kUsage);
    EXPECT_EQ(config.error().id, "config.open");
    EXPECT_THAT(config.error().message, HasSubstr(reason));
    EXPECT_THAT(config.error().message, HasSubstr(path));
  }
}

TEST(LayeredConfig, FileErrorsNameTheFile) {
  const std::string path = ::testing::TempDir() + "/bad.yaml";
  std::ofstream(path) << "context:\n  slots: none\n";
  const auto config = LoadConfigFile(path);
  std::filesystem::remove(path);
  ASSERT_FALSE(config.has_value());
  EXPECT_THAT(config.error().message, HasSubstr(path + ":2:10: context.slots"));
}

TEST(LayeredConfig, EmptyTextGivesTheDefaults) {
  for (const char* text : {"", "# nothing\n", "sampler:\nbackend:\n  options:\n"}) {
    LayeredConfig config;
    ASSERT_TRUE(config.ApplyYaml(text, "x").has_value());
    ASSERT_TRUE(config.Finish().has_value());
    const Config& values = config.values();
    EXPECT_EQ(values.backend.name, "cpu");
    EXPECT_EQ(values.context.prefill_chunk, std::nullopt);
    EXPECT_FALSE(values.context.capacity.has_value());
    EXPECT_FALSE(values.sampler.temperature.has_value());
    EXPECT_THAT(values.placement.host_ops, ElementsAre("gather_rows"));
    EXPECT_EQ(config.origin("backend.name"), Origin::kDefault);
  }
}

TEST(LayeredConfig, AFailedCallChangesNothing) {
  LayeredConfig config;
  EXPECT_FALSE(config.ApplyYaml("backend: {name: vulkan}\ncontext: {slots: 0}\n", "x"));
  EXPECT_EQ(config.values().backend.name, "cpu");
  EXPECT_EQ(config.origin("backend.name"), Origin::kDefault);
}

TEST(LayeredConfig, HigherOriginsWinInAnyOrder) {
  const auto apply = [](LayeredConfig& config, Origin origin) -> Status {
    switch (origin) {
      case Origin::kModelFile:
        return config.Set("sampler.top_k", "1", origin, "x.gguf");
      case Origin::kYaml:
        return config.ApplyYaml("sampler: {top_k: 2}", "x.yaml");
      case Origin::kEnvironment:
        return config.Set("sampler.top_k", "3", origin, "VARIABLE");
      default:
        return config.Set("sampler.top_k", "4", origin, "--top-k");
    }
  };
  const Origin rising[] = {Origin::kModelFile, Origin::kYaml, Origin::kEnvironment, Origin::kFlag};
  for (size_t highest = 1; highest <= std::size(rising); ++highest) {
    LayeredConfig upwards;
    LayeredConfig downwards;
    for (size_t i = 0; i < highest; ++i) {
      ASSERT_TRUE(apply(upwards, rising[i]).has_value());
      ASSERT_TRUE(apply(downwards, rising[highest - 1 - i]).has_value());
    }
    for (const LayeredConfig* config : {&upwards, &downwards}) {
      EXPECT_EQ(config->values().sampler.top_k, static_cast<int64_t>(highest));
      EXPECT_EQ(config->origin("sampler.top_k"), rising[highest - 1]);
    }
  }
}

TEST(LayeredConfig, OutrankedValuesAreStillChecked) {
  LayeredConfig config;
  ASSERT_TRUE(config.Set("sampler.top_p", "0.5", Origin::kFlag, "--top-p").has_value());
  const Status status = config.ApplyYaml("sampler: {top_p: 2}", "x.yaml");
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().id, "config.range");
}

TEST(LayeredConfig, FlagsUseTheSameTable) {
  LayeredConfig config;
  ASSERT_TRUE(config.Set("sampler.top_k", "5", Origin::kFlag, "--top-k").has_value());
  ASSERT_TRUE(config.Set("sampler.top_k", "6", Origin::kFlag, "--top-k").has_value());
  EXPECT_EQ(config.values().sampler.top_k, 6);  // the last of a repeated flag
  ASSERT_TRUE(config.Set("architecture.rope.base_global", "5", Origin::kFlag, "-x").has_value());
  EXPECT_EQ(config.values().architecture.rope.base_global, 5.0);
  const std::vector<std::string> paths = {"a.so", "b"};
  ASSERT_TRUE(config.SetList("plugins.paths", paths, Origin::kFlag, "--plugin").has_value());
  EXPECT_EQ(config.values().plugins.paths, paths);

  const Status range = config.Set("sampler.top_p", "2", Origin::kFlag, "--top-p");
  ASSERT_FALSE(range.has_value());
  EXPECT_EQ(range.error().message,
            "--top-p: sampler.top_p: expected a number above 0, at most 1, found '2'");
  for (const char* path :
       {"sampler.top_q", "sampler", "", ".", "top_k", "sampler.top_k.x", "a.b.c.d"}) {
    EXPECT_FALSE(config.Set(path, "1", Origin::kFlag, "-x").has_value()) << path;
  }
}

// A list or block of any key can be given as the text that stands for it in YAML.
TEST(LayeredConfig, TextInBracketsIsAListOrABlock) {
  LayeredConfig config;
  const auto set = [&config](const char* path, const char* text) {
    return config.Set(path, text, Origin::kFlag, "settings");
  };
  EXPECT_TRUE(set("generation.stop", "[\"a, b\", c]"));
  EXPECT_THAT(config.values().generation.stop, ElementsAre("a, b", "c"));
  EXPECT_TRUE(set("generation.stop", "[]"));
  EXPECT_THAT(config.values().generation.stop, IsEmpty());
  EXPECT_TRUE(set("placement.host_weights", "[per_layer]"));
  EXPECT_THAT(*config.values().placement.host_weights, ElementsAre("per_layer"));
  EXPECT_TRUE(set("placement.split", "[3, 1]"));
  EXPECT_THAT(config.values().placement.split.layers, ElementsAre(3, 1));
  EXPECT_TRUE(set("backend.devices", "[vulkan:0, cpu]"));
  EXPECT_THAT(NamesOf(config.values().backend.devices), ElementsAre("vulkan:0", "cpu"));
  EXPECT_TRUE(set("model.adapters", "[a, {path: b, scale: 0.5}]"));
  EXPECT_THAT(config.values().model.adapters,
              ElementsAre(AdapterSetting{"a", 1}, AdapterSetting{"b", 0.5}));
  EXPECT_TRUE(set("architecture.kv_heads", "{sliding: 4, global: 1}"));
  EXPECT_EQ(config.values().architecture.kv_heads->global, 1);
  EXPECT_TRUE(set("backend.options", "{threads: 2}"));
  EXPECT_THAT(config.values().backend.options, ElementsAre(Pair("threads", "2")));
  EXPECT_EQ(config.origin("placement.split"), Origin::kFlag);
  // Where text is expected, it is that.
  for (const char* text : {"[x]", "{a: 1}", "[x"}) {
    EXPECT_TRUE(set("generation.system", text));
    EXPECT_EQ(config.values().generation.system, text);
  }
}

TEST(LayeredConfig, SaysWhatIsWrongWithAListInText) {
  const struct {
    const char* path;
    const char* text;
    const char* message;
  } rows[] = {
      {"placement.host_ops", "mat_mul",
       "settings: placement.host_ops: expected a list, each a name of one line, not empty, found "
       "'mat_mul'; write [a, b], also for one"},
      {"placement.host_ops", "[mat_mul, [a]]",
       "settings:1:11: placement.host_ops: expected a name of one line, not empty, found a list"},
      {"placement.split", "[3, -1]", "settings:1:5: placement.split: expected a whole number"},
      {"placement.host_ops", "[mat_mul", "settings:1:1: not valid YAML: "},
      {"backend.devices", "[cpu", "settings:1:1: not valid YAML: "},
      {"context.slots", "[2]",
       "settings:1:1: context.slots: expected auto, or a whole number from 1"},
      {"generation.nothing", "[a]", "unknown key 'nothing' in 'generation'"},
  };
  for (const auto& row : rows) {
    LayeredConfig config;
    const Status status = config.Set(row.path, row.text, Origin::kFlag, "settings");
    ASSERT_FALSE(status.has_value()) << row.text;
    EXPECT_THAT(status.error().message, HasSubstr(row.message)) << row.text;
  }
}

TEST(LayeredConfig, MapsMergeEntryByEntry) {
  LayeredConfig config;
  ASSERT_TRUE(config.Set("backend.options.threads", "2", Origin::kFlag, "-t").has_value());
  ASSERT_TRUE(config.ApplyYaml("backend: {options: {threads: 8, isa: avx2}}", "x").has_value());
  EXPECT_THAT(config.values().backend.options,
              UnorderedElementsAre(Pair("threads", "2"), Pair("isa", "avx2")));
  EXPECT_EQ(config.origin("backend.options.threads"), Origin::kFlag);
  EXPECT_EQ(config.origin("backend.options.isa"), Origin::kYaml);
}

constexpr std::string_view kVulkanYaml =
    "backend: {name: vulkan, device: llvmpipe, options: {max_ops: 64}}";

TEST(LayeredConfig, AnotherBackendDropsTheSettingsOfTheFirst) {
  LayeredConfig config;
  ASSERT_TRUE(config.ApplyYaml(kVulkanYaml, "x").has_value());
  EnvironmentOverrides environment;
  environment.backend = "cpu";
  ASSERT_TRUE(config.ApplyEnvironment(environment).has_value());
  ASSERT_TRUE(config.Set("backend.options.threads", "2", Origin::kFlag, "-t").has_value());
  ASSERT_TRUE(config.Finish().has_value());
  EXPECT_EQ(config.values().backend.name, "cpu");
  EXPECT_EQ(config.origin("backend.name"), Origin::kEnvironment);
  EXPECT_EQ(config.values().backend.device, "");
  EXPECT_EQ(config.origin("backend.device"), Origin::kDefault);
  EXPECT_THAT(config.values().backend.options, UnorderedElementsAre(Pair("threads", "2")));
  EXPECT_THAT(config.notices(), ElementsAre(HasSubstr("backend.device (yaml) is not used"),
                                            HasSubstr("backend.options.max_ops")));
}

TEST(LayeredConfig, TheSameBackendKeepsItsSettings) {
  LayeredConfig config;
  ASSERT_TRUE(config.ApplyYaml(kVulkanYaml, "x").has_value());
  ASSERT_TRUE(config.Set("backend.name", "vulkan", Origin::kFlag, "--backend").has_value());
  ASSERT_TRUE(config.Finish().has_value());
  EXPECT_EQ(config.values().backend.device, "llvmpipe");
  EXPECT_THAT(config.values().backend.options, UnorderedElementsAre(Pair("max_ops", "64")));
  EXPECT_THAT(config.notices(), IsEmpty());
}

Status SetDevices(LayeredConfig& config, std::vector<std::string> devices, Origin origin) {
  return config.SetList("backend.devices", devices, origin, "test");
}

TEST(LayeredConfig, AListOfDevicesReplacesTheBackendOfLowerLayers) {
  LayeredConfig config;
  ASSERT_TRUE(config.ApplyYaml(kVulkanYaml, "x").has_value());
  ASSERT_TRUE(SetDevices(config, {"cpu:0", "vulkan:1"}, Origin::kFlag));
  ASSERT_TRUE(config.Finish().has_value());
  EXPECT_EQ(config.values().backend.name, "cpu") << "that of the first device";
  EXPECT_EQ(config.values().backend.device, "");
  EXPECT_THAT(NamesOf(config.values().backend.devices), ElementsAre("cpu:0", "vulkan:1"));
  EXPECT_THAT(config.values().backend.options, IsEmpty()) << "they were meant for vulkan";
}

TEST(LayeredConfig, ABackendReplacesTheListOfLowerLayers) {
  LayeredConfig config;
  ASSERT_TRUE(SetDevices(config, {"vulkan:0", "vulkan:1"}, Origin::kYaml));
  ASSERT_TRUE(config.Set("backend.name", "cpu", Origin::kFlag, "--backend").has_value());
  ASSERT_TRUE(config.Finish().has_value());
  EXPECT_EQ(config.values().backend.name, "cpu");
  EXPECT_THAT(config.values().backend.devices, IsEmpty());
  EXPECT_THAT(config.notices(), ElementsAre(HasSubstr("backend.devices (yaml) is not used")));
}

TEST(LayeredConfig, AListAndAnotherBackendOfOneLayerContradict) {
  for (const char* yaml : {"backend: {name: mine, devices: [vulkan, cpu]}",
                           "backend: {device: \"1\", devices: [vulkan, cpu]}"}) {
    LayeredConfig config;
    ASSERT_TRUE(config.ApplyYaml(yaml, "x").has_value());
    const Status status = config.Finish();
    ASSERT_FALSE(status.has_value()) << yaml;
    EXPECT_EQ(status.error().id, "config.conflict");
  }
}

TEST(LayeredConfig, AShownListIsReadBack) {
  LayeredConfig config;
  ASSERT_TRUE(SetDevices(config, {"vulkan:0", "cpu"}, Origin::kYaml));
  ASSERT_TRUE(config.Finish().has_value());
  LayeredConfig again;
  ASSERT_TRUE(again.ApplyYaml(config.ToYaml(), "shown").has_value());
  const Status status = again.Finish();
  ASSERT_TRUE(status.has_value()) << status.error().ToString();
  EXPECT_THAT(NamesOf(again.values().backend.devices), ElementsAre("vulkan:0", "cpu"));
}

// The output of `config --show` is a configuration with the same values.
TEST(LayeredConfig, ToYamlIsReadBack) {
  LayeredConfig config;
  ASSERT_TRUE(config.ApplyFile(RULLAMA_SOURCE_DIR "/tests/data/config/full.yaml").has_value());
  ASSERT_TRUE(config.Set("generation.system", "a\"\\\n\tb \xc3\xa9 # c", Origin::kFlag, "-sys")
                  .has_value());
  const std::string text = config.ToYaml();
  EXPECT_THAT(text, HasSubstr("  top_k: 10  # yaml\n"));
  EXPECT_THAT(text, HasSubstr("    max_submit_ops: \"64\"  # yaml\n"));
  LayeredConfig again;
  const Status status = again.ApplyYaml(text, "shown");
  ASSERT_TRUE(status.has_value()) << status.error().ToString() << "\n" << text;
  EXPECT_EQ(again.values().generation.system, config.values().generation.system);
  std::string expected = text;  // everything is from YAML now
  for (size_t at; (at = expected.find("# flag")) != std::string::npos;) {
    expected.replace(at, 6, "# yaml");
  }
  EXPECT_EQ(again.ToYaml(), expected);
}

TEST(LayeredConfig, ToYamlOfDefaultsNamesWhatIsUnset) {
  const std::string text = LayeredConfig().ToYaml();
  EXPECT_THAT(text, HasSubstr("  name: \"cpu\"  # default\n"));
  EXPECT_THAT(text, HasSubstr("  # top_k: 64\n"));
  LayeredConfig again;
  EXPECT_TRUE(again.ApplyYaml(text, "shown").has_value());
}

}  // namespace
}  // namespace rullama
