// rullama synth: a model file of given shapes with random weights, to measure a machine without a
// download.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "cli/command.h"
#include "cli/option_words.h"
#include "cli/signals.h"
#include "core/config/layered_config.h"
#include "models/registry.h"

namespace rullama::cli {
namespace {

struct SynthFlags {
  std::string config;
  std::string type = "Q4_K_M";
  std::string out;
  std::string vocabulary;
  uint64_t seed = 0;
  int64_t layers = 0;  // 0: as in the configuration
};

Result<int> WriteModel(const SynthFlags& flags, Console& console) {
  SyntheticOptions options;
  RL_ASSIGN_OR_RETURN(options.mix, FindQuantMix(flags.type));
  RL_ASSIGN_OR_RETURN(Config config, LoadConfigFile(flags.config));
  if (flags.layers > 0) config.architecture.layers = flags.layers;
  const ModelFamily* family = ModelFamilies().front();
  if (config.architecture.family) {
    RL_ASSIGN_OR_RETURN(family, FindFamily(*config.architecture.family));
  }
  std::optional<GgufFile> vocabulary;
  if (!flags.vocabulary.empty()) {
    RL_ASSIGN_OR_RETURN(vocabulary, GgufFile::Open(flags.vocabulary));
    options.vocabulary = &*vocabulary;
  }
  options.seed = flags.seed;
  options.read = {flags.config, flags.vocabulary};
  options.cancel = CancelFlag();
  options.name = fmt::format("synthetic {}", std::filesystem::path(flags.config).stem().string());
  options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  Progress progress(console, "writing");
  options.on_progress = [&](uint64_t done, uint64_t total) {
    progress.Update(static_cast<int64_t>(done), static_cast<int64_t>(total));
  };
  RL_RETURN_IF_ERROR(family->write_synthetic(config.architecture, options, flags.out));
  return 0;
}

}  // namespace

void AddSynthCommand(CLI::App& app, CommandContext& context) {
  auto flags = std::make_shared<SynthFlags>();
  CLI::App* command = app.add_subcommand(
      "synth", "Write a model file with random weights, for measuring speed without a download");
  command->add_option("--config", flags->config, "YAML file whose `architecture` block is built")
      ->required();
  SetChoices(*command->add_option("--type", flags->type,
                                  fmt::format("Mix of element types: {} [default {}]",
                                              QuantMixNames(), flags->type)),
             QuantMixNames(), "TYPE");
  command->add_option("--out", flags->out, "Where the file goes")->required();
  command->add_option("--vocab", flags->vocabulary,
                      "GGUF file whose tokenizer is copied; without it, one is made up");
  command->add_option("--seed", flags->seed, "Seed of the weights")->capture_default_str();
  command->add_option("--layers", flags->layers, "Only the first N layers, to fit a small machine")
      ->check(CLI::PositiveNumber);
  command->footer(
      "Example:\n  rullama synth --config configs/e2b.yaml --type Q4_K_M --out /tmp/e2b.gguf\n"
      "  rullama bench --config configs/e2b.yaml -m /tmp/e2b.gguf");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return WriteModel(*flags, context.console); };
  });
}

}  // namespace rullama::cli
