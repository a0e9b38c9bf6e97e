// Command-line flags that several commands share, and the configuration they make together with the
// YAML file and the environment. Thread safety: none; used by main's thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands/peer_options.h"
#include "cli/reports/trace.h"
#include "cli/terminal/console.h"
#include "core/base/status.h"
#include "core/config/layered_config.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's own name
class App;
class Option;
}  // namespace CLI

namespace rullama::cli {

// The options of the command line before any check; the configuration checks the ranges.
struct ConfigFlags {
  struct Setting {
    std::string path;  // of the configuration: "sampler.temperature"
    std::string text;
    std::string flag;  // "--temp", for messages
  };
  std::optional<std::string> config_path;
  std::optional<std::string> hub;  // -hf: USER/REPO[:QUANT]
  bool takes_towers = false;       // --mmproj is an option of the command
  std::vector<std::string> plugins;
  std::vector<Setting> settings;
  std::vector<std::string> stop;
  std::vector<std::string> adapters;
  std::vector<std::string> devices;
  std::vector<std::string> training_targets;
  PeerOptions peer;
  // Changes the configuration once all layers are there, before it is finished.
  std::function<Status(LayeredConfig&)> adjust = {};
  bool verbose = false;
  bool quiet = false;
};

// Adds --config, --model and -hf, for commands that only read the file. With `models`, --model may
// be repeated and adds to that list instead of setting model.path.
void AddModelFileOptions(CLI::App& app, ConfigFlags& flags,
                         std::vector<std::string>* models = nullptr);
// Adds -hf, instead of a file or name.
CLI::Option* AddHubOption(CLI::App& app, std::optional<std::string>& hub);
// Adds --lora.
void AddAdapterOption(CLI::App& app, ConfigFlags& flags);
// Adds --mmproj.
void AddTowerOption(CLI::App& app, ConfigFlags& flags);
// Adds --image-tokens.
void AddImageTokensOption(CLI::App& app, ConfigFlags& flags);
// Adds these and --backend, --device, --ctx-size, --threads, --prefill-chunk.
void AddModelSettings(CLI::App& app, ConfigFlags& flags,
                      std::vector<std::string>* models = nullptr);
// Adds these and --plugin, -v and -q.
void AddModelOptions(CLI::App& app, ConfigFlags& flags, std::vector<std::string>* models = nullptr);
// Adds --trace and --trace-ops.
void AddTraceOptions(CLI::App& app, TraceFlags& flags);
// Adds --config, --backend, --plugin, for commands that need no model.
void AddBackendOptions(CLI::App& app, ConfigFlags& flags);
// Adds the options for drawing tokens: --seed, --temp and the others.
void AddSamplerOptions(CLI::App& app, ConfigFlags& flags);

// Adds --warm-up; `initial`: what the command does without it.
void AddWarmUpOption(CLI::App& app, ConfigFlags& flags, std::string_view initial);

// Adds the options for `drafts`.
void AddDraftOptions(CLI::App& app, ConfigFlags& flags);

// Adds the options for `sampler.diffusion`.
void AddDiffusionOptions(CLI::App& app, ConfigFlags& flags);

// The value without the option, as the last part of its help: " [default 64]". Empty if there is
// none.
std::string DefaultText(const std::string& path);

// An option whose value becomes the value of a configuration key; the last one given counts. `help`
// gets the default of the key, unless it names one that the command has instead.
CLI::Option* AddSetting(CLI::App& app, ConfigFlags& flags, const std::string& names,
                        const std::string& path, const std::string& help);

struct LoadedConfig {
  LayeredConfig config;
  EnvironmentOverrides environment;
};

// Joins YAML, environment and flags. Errors config.* (kUsage).
Result<LoadedConfig> LoadConfig(const ConfigFlags& flags);

// "x,y z" or "[x, y, z]" as numbers. `what` begins the message, which has the position. Errors
// input.number, input.list (kUsage).
Result<std::vector<int32_t>> ParseIdList(std::string_view text, std::string_view what);

// A whole decimal number in [low, high]. Error input.number (kUsage), naming `what`.
Result<int64_t> ParseInteger(std::string_view text, std::string_view what, int64_t low,
                             int64_t high);

}  // namespace rullama::cli
