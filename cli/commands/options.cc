#include "cli/commands/options.h"

#include <fmt/format.h>
#include <sys/auxv.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "cli/commands/downloaded_model.h"
#include "cli/commands/option_words.h"
#include "core/config/schema.h"

namespace rullama::cli {
namespace {

void AddConfigOption(CLI::App& app, ConfigFlags& flags) {
  app.add_option("--config", flags.config_path, "Configuration file (docs/configuration.md)")
      ->option_text("FILE")
      ->group("Model");
}

void AddPluginOption(CLI::App& app, ConfigFlags& flags) {
  app.add_option("--plugin", flags.plugins,
                 "Backend plugin, searched before all others; may be repeated")
      ->option_text("FILE")
      ->allow_extra_args(false)
      ->group("Backend");
}

void AddBackendOption(CLI::App& app, ConfigFlags& flags) {
  AddSetting(app, flags, "--backend", "backend.name", "Backend: cpu, vulkan, ..., or auto")
      ->option_text("NAME")
      ->group("Backend");
}

constexpr std::string_view kWhiteSpace = " \t\r\n";

// Reads a list of ids; positions are bytes from the start of the text.
class IdListReader {
 public:
  IdListReader(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  Result<std::vector<int32_t>> Read() {
    SkipSpace();
    const bool bracket = Take('[');
    SkipSpace();
    while (at_ < text_.size() && text_[at_] != ']') {
      RL_RETURN_IF_ERROR(ReadId());
      const bool space = SkipSpace();
      const bool comma = Take(',');
      SkipSpace();
      if (comma && (at_ == text_.size() || text_[at_] == ']')) return Broken("a token id");
      if (!comma && !space && at_ < text_.size() && text_[at_] != ']') return Broken("a comma");
    }
    if (bracket && !Take(']')) return Broken("a ']'");
    SkipSpace();
    if (at_ < text_.size()) return Broken("the end of the list");
    return std::move(ids_);
  }

 private:
  Status ReadId() {
    const size_t begin = at_;
    const size_t end = std::min(text_.find_first_of(" \t\r\n,[]", begin), text_.size());
    if (end == begin) return Broken("a token id");
    RL_ASSIGN_OR_RETURN(const int64_t id,
                        ParseInteger(text_.substr(begin, end - begin),
                                     fmt::format("{}, byte {}", what_, begin), 0, INT32_MAX));
    ids_.push_back(static_cast<int32_t>(id));
    at_ = end;
    return OkStatus();
  }
  bool SkipSpace() {
    const size_t begin = at_;
    at_ = std::min(text_.find_first_not_of(kWhiteSpace, at_), text_.size());
    return at_ > begin;
  }
  bool Take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  [[nodiscard]] tl::unexpected<Error> Broken(std::string_view expected) const {
    const std::string found =
        at_ == text_.size() ? "the end of the text" : fmt::format("'{}'", text_[at_]);
    return MakeError(ErrorKind::kUsage, "input.list",
                     "{}: found {} at byte {}, expected {}; a list of ids is a JSON array, or "
                     "numbers with commas or white space between them",
                     what_, found, at_, expected);
  }

  std::string_view text_;
  std::string_view what_;
  size_t at_ = 0;
  std::vector<int32_t> ids_;
};

}  // namespace

void AddTraceOptions(CLI::App& app, TraceFlags& flags) {
  CLI::Option* trace = app.add_option("--trace", flags.path,
                                      "Write the times of steps, segments and copies as a Chrome "
                                      "trace, for Perfetto; devices then take turns")
                           ->option_text("FILE");
  app.add_flag("--trace-ops", flags.ops,
               "With --trace: also of each op, by worker, with shapes, bytes and operations")
      ->needs(trace);
}

std::string DefaultText(const std::string& path) {
  const FieldSpec* field = FindField(path);
  if (field == nullptr || path == "model.path" || field->absent == "none") return {};
  std::string text = field->absent;
  std::erase(text, '"');
  return text.empty() ? text : fmt::format(" [default {}]", text);
}

CLI::Option* AddSetting(CLI::App& app, ConfigFlags& flags, const std::string& names,
                        const std::string& path, const std::string& help) {
  const std::string flag = names.substr(names.rfind(',') + 1);
  const bool names_default = help.find("[default ") != std::string::npos;
  CLI::Option* option = app.add_option_function<std::string>(
                               names,
                               [&flags, path, flag](const std::string& text) {
                                 flags.settings.push_back({path, text, flag});
                               },
                               names_default ? help : help + DefaultText(path))
                            ->take_last();
  // The configuration checks the value; the choices are for completion and manual pages.
  constexpr std::string_view kChoice = "one of ";
  const FieldSpec* field = FindField(path);
  if (field != nullptr && field->accepts.starts_with(kChoice)) {
    SetChoices(*option, field->accepts.substr(kChoice.size()), "");
  }
  return option;
}

void AddBackendOptions(CLI::App& app, ConfigFlags& flags) {
  AddConfigOption(app, flags);
  AddBackendOption(app, flags);
  AddPluginOption(app, flags);
}

void AddModelFileOptions(CLI::App& app, ConfigFlags& flags, std::vector<std::string>* models) {
  constexpr const char* kNames = "-m,--model";
  constexpr const char* kHelp = "GGUF file, or an Ollama name: gemma4:e2b";
  AddConfigOption(app, flags);
  CLI::Option* option = nullptr;
  if (models == nullptr) {
    option = AddSetting(app, flags, kNames, "model.path", kHelp);
  } else {
    option = app.add_option(kNames, *models, std::string(kHelp) + "; may be repeated")
                 ->allow_extra_args(false);
  }
  option->option_text("FILE|NAME")->group("Model");
  AddHubOption(app, flags.hub)->group("Model");
}

CLI::Option* AddHubOption(CLI::App& app, std::optional<std::string>& hub) {
  return app
      .add_option("--hf-repo", hub,
                  "Also -hf. Instead of -m: a model of the Hugging Face Hub, downloaded if it is "
                  "not here")
      ->option_text("USER/REPO[:QUANT]");
}

void AddAdapterOption(CLI::App& app, ConfigFlags& flags) {
  app.add_option("--lora,--lora-scaled", flags.adapters,
                 "Low-rank adapter: GGUF, or a folder of PEFT or MLX; may be repeated")
      ->option_text("FILE[:SCALE]")
      ->allow_extra_args(false)
      ->group("Model");
}

void AddTowerOption(CLI::App& app, ConfigFlags& flags) {
  flags.takes_towers = true;
  AddSetting(app, flags, "--mmproj", "model.mmproj",
             "File of the model's towers, for pictures and sound")
      ->option_text("FILE")
      ->group("Model");
}

void AddImageTokensOption(CLI::App& app, ConfigFlags& flags) {
  AddSetting(app, flags, "--image-tokens", "generation.image_tokens",
             "Most tokens of a picture: 70, 140, 280, 560 or 1120")
      ->option_text("N")
      ->group("Prompt");
}

void AddModelSettings(CLI::App& app, ConfigFlags& flags, std::vector<std::string>* models) {
  AddModelFileOptions(app, flags, models);
  AddBackendOption(app, flags);
  AddSetting(app, flags, "--device", "backend.device", "Index of the device, or part of its name")
      ->option_text("D")
      ->group("Backend");
  app.add_option("--devices", flags.devices,
                 "Devices that share the layers: BACKEND:DEVICE,..., such as vulkan:0,vulkan:1,cpu")
      ->delimiter(',')
      ->option_text("LIST")
      ->allow_extra_args(false)
      ->group("Backend");
  AddSetting(app, flags, "-t,--threads", "backend.options.threads",
             "Threads of the cpu backend [default one per core]; fewer on a busy machine")
      ->option_text("N")
      ->group("Backend");
  AddSetting(app, flags, "-c,--ctx-size", "context.capacity",
             "Tokens of prompt and answer that fit; 0: the model's context length")
      ->option_text("N")
      ->group("Model");
  AddSetting(app, flags, "-b,--prefill-chunk", "context.prefill_chunk", "Prompt tokens per step")
      ->option_text("N")
      ->group("Model");
  AddAdapterOption(app, flags);
  AddPeerOptions(app, flags.peer);
}

void AddModelOptions(CLI::App& app, ConfigFlags& flags, std::vector<std::string>* models) {
  AddModelSettings(app, flags, models);
  AddPluginOption(app, flags);
  app.add_flag("-v,--verbose", flags.verbose, "Report choices, and where time and memory go");
  app.add_flag("-q,--quiet", flags.quiet,
               "No statistics and no progress, only warnings and errors");
}

void AddSamplerOptions(CLI::App& app, ConfigFlags& flags) {
  const struct {
    const char* names;
    const char* path;
    const char* help;
  } options[] = {
      {"-s,--seed", "sampler.seed", "The same seed gives the same text; -1 draws one"},
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) \
  {flag, "sampler." #name, help},
#include "core/config/sampler_settings.def"
  };
  for (const auto& option : options) {
    AddSetting(app, flags, option.names, option.path, option.help)
        ->option_text("N")
        ->group("Sampling (the model file may recommend settings that are not given)");
  }
  app.add_flag_callback(
         "--greedy",
         [&flags] {
           flags.settings.push_back({"sampler.greedy", "true", "--greedy"});
         },
         "Always take the most likely token")
      ->group("Sampling (the model file may recommend settings that are not given)");
  app.add_option_function<std::vector<std::string>>(
         "--logit-bias",
         [&flags](const std::vector<std::string>& items) {
           for (const std::string& item : items) {
             const size_t equals = std::min(item.find('='), item.size());
             const std::string value = item.substr(std::min(equals + 1, item.size()));
             flags.settings.push_back(
                 {"sampler.logit_bias." + item.substr(0, equals), value, "--logit-bias"});
           }
         },
         "Token id and the number to add to its logit; may be repeated")
      ->option_text("ID=V")
      ->allow_extra_args(false)
      ->group("Sampling (the model file may recommend settings that are not given)");
}

void AddWarmUpOption(CLI::App& app, ConfigFlags& flags, std::string_view initial) {
  AddSetting(
      app, flags, "--warm-up", "backend.warm_up",
      fmt::format("What to compile before the first answer: off, dispatch or all [default {}]",
                  initial))
      ->option_text("WHAT")
      ->group("Backend");
}

// In other programs --draft takes the length of a guess.
CLI::Validator NotANumber() {
  return {[](const std::string& model) {
            const bool is_number = model.find_first_not_of("0123456789") == std::string::npos;
            return std::string(is_number ? "a number" : "");
          },
          "=a file or a name (use --draft-max N for the length)"};
}

void AddDraftOptions(CLI::App& app, ConfigFlags& flags) {
  constexpr const char* kGroup = "Drafts (faster answers of the same text)";
  AddSetting(app, flags, "--draft-model,--draft,--model-draft", "drafts.model",
             "Also -md. A smaller model with the same vocabulary that guesses what comes next, or "
             "the model's own drafter")
      ->option_text("FILE|NAME")
      ->check(NotANumber())
      ->group(kGroup);
  AddSetting(app, flags, "--draft-mtp", "drafts.mtp",
             "Guess with the model's own drafter, which is found next to it: auto, true or false")
      ->option_text("WHEN")
      ->group(kGroup);
  app.add_flag_callback(
         "--draft-lookup",
         [&flags] {
           flags.settings.push_back({"drafts.lookup", "true", "--draft-lookup"});
         },
         "Guess that what followed the last tokens before follows again")
      ->group(kGroup);
  AddSetting(app, flags, "--draft-max", "drafts.max", "Most tokens of a guess")
      ->option_text("N")
      ->group(kGroup);
  AddSetting(app, flags, "--draft-min", "drafts.min", "A guess of fewer tokens is not checked")
      ->option_text("N")
      ->group(kGroup);
  AddSetting(app, flags, "--draft-p-min", "drafts.min_probability",
             "The model's own drafter guesses no token that it takes to be less likely")
      ->option_text("P")
      ->group(kGroup);
}

void AddDiffusionOptions(CLI::App& app, ConfigFlags& flags) {
  const struct {
    const char* names;
    const char* path;
    const char* help;
  } options[] = {
      {"--diffusion-steps", "sampler.diffusion.max_steps", "Most denoising steps of a canvas"},
      {"--entropy-bound", "sampler.diffusion.entropy_bound",
       "Nats of uncertainty that a step accepts"},
      {"--t-min", "sampler.diffusion.t_min", "Temperature that the steps fall towards"},
      {"--t-max", "sampler.diffusion.t_max", "Temperature of the first step"},
      {"--stability-threshold", "sampler.diffusion.stability_threshold",
       "Steps without a change before a canvas may be finished"},
      {"--confidence-threshold", "sampler.diffusion.confidence_threshold",
       "Mean entropy below which a stable canvas is finished"},
      {"--diffusion-random", "sampler.diffusion.random", "Random numbers: philox or xorshift64"},
  };
  for (const auto& option : options) {
    AddSetting(app, flags, option.names, option.path, option.help)
        ->option_text("V")
        ->group("Denoising (DiffusionGemma)");
  }
}

Result<LoadedConfig> LoadConfig(const ConfigFlags& flags) {
  LoadedConfig loaded;
  const auto getenv = [](const char* name) -> const char* { return std::getenv(name); };
  RL_ASSIGN_OR_RETURN(loaded.environment, ReadEnvironment(getenv, ::getauxval(AT_SECURE) != 0));
  if (flags.config_path && flags.config_path->empty()) {
    return MakeError(ErrorKind::kUsage, "config.open",
                     "--config is empty, expected a file; leave it out to do without one");
  }
  const std::string path =
      flags.config_path.value_or(loaded.environment.config_path.value_or(std::string()));
  if (!path.empty()) RL_RETURN_IF_ERROR(loaded.config.ApplyFile(path));
  RL_RETURN_IF_ERROR(loaded.config.ApplyEnvironment(loaded.environment));
  for (const ConfigFlags::Setting& setting : flags.settings) {
    RL_RETURN_IF_ERROR(loaded.config.Set(setting.path, setting.text, Origin::kFlag, setting.flag));
  }
  if (!flags.devices.empty()) {
    RL_RETURN_IF_ERROR(loaded.config.SetList("backend.devices", DeviceNames(flags.devices),
                                             Origin::kFlag, "--devices"));
  }
  RL_RETURN_IF_ERROR(ApplyPeerOptions(flags.peer, loaded.config));
  if (!flags.stop.empty()) {
    RL_RETURN_IF_ERROR(
        loaded.config.SetList("generation.stop", flags.stop, Origin::kFlag, "--stop"));
  }
  if (!flags.adapters.empty()) {
    RL_RETURN_IF_ERROR(
        loaded.config.SetList("model.adapters", flags.adapters, Origin::kFlag, "--lora"));
  }
  if (!flags.training_targets.empty()) {
    RL_RETURN_IF_ERROR(loaded.config.SetList("training.targets", flags.training_targets,
                                             Origin::kFlag, "--lora-targets"));
  }
  RL_RETURN_IF_ERROR(ApplyHubModel(flags, loaded.config));
  if (const auto file = CachedHubFile(loaded.config.values().model.path.value_or(""))) {
    RL_RETURN_IF_ERROR(
        loaded.config.Set("model.path", *file, Origin::kFlag, "the cache of the Hub"));
  }
  if (flags.adjust) RL_RETURN_IF_ERROR(flags.adjust(loaded.config));
  RL_RETURN_IF_ERROR(loaded.config.Finish());
  return loaded;
}

Result<int64_t> ParseInteger(std::string_view text, std::string_view what, int64_t low,
                             int64_t high) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    return MakeError(ErrorKind::kUsage, "input.number",
                     "{}: found '{}', expected a whole number from {} to {}", what, text, low,
                     high);
  }
  return value;
}

Result<std::vector<int32_t>> ParseIdList(std::string_view text, std::string_view what) {
  return IdListReader(text, what).Read();
}

}  // namespace rullama::cli
