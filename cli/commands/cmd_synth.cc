// rullama synth: files of a model of given shapes with random weights, to measure a machine without
// a download.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "cli/commands/command.h"
#include "cli/commands/option_words.h"
#include "cli/terminal/signals.h"
#include "core/config/layered_config.h"
#include "models/registry.h"

namespace rullama::cli {
namespace {

struct SynthFlags {
  std::string config;
  std::string type = "Q4_K_M";
  std::string out;
  std::string mmproj_out;
  std::string mtp_out;
  std::string vocabulary;
  uint64_t seed = 0;
  int64_t layers = 0;  // 0: as in the configuration
};

// Options that the files of a model share.
Result<SyntheticOptions> OptionsOf(const SynthFlags& flags) {
  SyntheticOptions options;
  RL_ASSIGN_OR_RETURN(options.mix, FindQuantMix(flags.type));
  options.seed = flags.seed;
  options.read = {flags.config, flags.vocabulary};
  options.cancel = CancelFlag();
  options.name = fmt::format("synthetic {}", std::filesystem::path(flags.config).stem().string());
  options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return options;
}

Result<const ModelFamily*> FamilyOfConfig(const ArchitectureConfig& architecture) {
  if (!architecture.family) return ModelFamilies().front();
  return FindFamily(*architecture.family);
}

// Whether there is something to write that the family has.
Status CheckOutputs(const SynthFlags& flags, const ModelFamily& family) {
  if (flags.out.empty() && flags.mmproj_out.empty() && flags.mtp_out.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.option",
                     "no file to write; give --out for the model, --mmproj-out for its towers, "
                     "--mtp-out for its drafter, or several of them");
  }
  if (!flags.mtp_out.empty() && family.write_synthetic_assistant == nullptr) {
    return MakeError(ErrorKind::kUsage, "usage.option",
                     "--mtp-out: models of architecture '{}' have no drafters; leave it out",
                     family.architectures.front());
  }
  if (flags.mmproj_out.empty() || family.write_synthetic_towers != nullptr) return OkStatus();
  return MakeError(ErrorKind::kUsage, "usage.option",
                   "--mmproj-out: models of architecture '{}' have no towers; leave it out",
                   family.architectures.front());
}

Result<int> WriteModel(const SynthFlags& flags, Console& console) {
  RL_ASSIGN_OR_RETURN(SyntheticOptions options, OptionsOf(flags));
  RL_ASSIGN_OR_RETURN(Config config, LoadConfigFile(flags.config));
  if (flags.layers > 0) config.architecture.layers = flags.layers;
  RL_ASSIGN_OR_RETURN(const ModelFamily* family, FamilyOfConfig(config.architecture));
  RL_RETURN_IF_ERROR(CheckOutputs(flags, *family));
  std::optional<GgufFile> vocabulary;
  if (!flags.vocabulary.empty()) {
    RL_ASSIGN_OR_RETURN(vocabulary, GgufFile::Open(flags.vocabulary));
    options.vocabulary = &*vocabulary;
  }
  Progress progress(console, "writing");
  options.on_progress = [&](uint64_t done, uint64_t total) {
    progress.Update(static_cast<int64_t>(done), static_cast<int64_t>(total));
  };
  if (!flags.out.empty()) {
    RL_RETURN_IF_ERROR(family->write_synthetic(config.architecture, options, flags.out));
    options.read.emplace_back(flags.out);
  }
  if (!flags.mmproj_out.empty()) {
    RL_RETURN_IF_ERROR(
        family->write_synthetic_towers(config.architecture, options, flags.mmproj_out));
    options.read.emplace_back(flags.mmproj_out);
  }
  if (flags.mtp_out.empty()) return 0;
  options.name += " drafter";
  RL_RETURN_IF_ERROR(
      family->write_synthetic_assistant(config.architecture, options, flags.mtp_out));
  return 0;
}

}  // namespace

void AddSynthCommand(CLI::App& app, CommandContext& context) {
  auto flags = std::make_shared<SynthFlags>();
  CLI::App* command = app.add_subcommand(
      "synth", "Write a model with random weights, for measuring speed without a download");
  command->add_option("--config", flags->config, "YAML file whose `architecture` block is built")
      ->required();
  SetChoices(*command->add_option("--type", flags->type,
                                  fmt::format("Mix of element types: {} [default {}]",
                                              QuantMixNames(), flags->type)),
             QuantMixNames(), "TYPE");
  command->add_option("--out", flags->out, "Where the model goes");
  command->add_option("--mmproj-out", flags->mmproj_out,
                      "Where its towers for pictures and sound go: in BF16 if that is the type, "
                      "else in F16");
  command->add_option("--mtp-out", flags->mtp_out,
                      "Where the drafter that is published for its shapes goes");
  command->add_option("--vocab", flags->vocabulary,
                      "GGUF file whose tokenizer is copied; without it, one is made up");
  command->add_option("--seed", flags->seed, "Seed of the weights")->capture_default_str();
  command->add_option("--layers", flags->layers, "Only the first N layers, to fit a small machine")
      ->check(CLI::PositiveNumber);
  command->footer(
      "Example:\n  rullama synth --config configs/e2b.yaml --type Q4_K_M --out /tmp/e2b.gguf\n"
      "  rullama bench --config configs/e2b.yaml -m /tmp/e2b.gguf\n"
      "  rullama synth --config configs/e2b.yaml --mmproj-out /tmp/e2b-mmproj.gguf");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return WriteModel(*flags, context.console); };
  });
}

}  // namespace rullama::cli
