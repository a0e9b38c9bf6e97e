// rullama export-lora: a model file with low-rank adapters merged into its weights.
#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cli/commands/command.h"
#include "cli/commands/loading.h"
#include "cli/commands/options.h"
#include "cli/terminal/signals.h"
#include "core/gguf/quantize.h"
#include "engine/loading/loaded_model.h"
#include "models/common/merge.h"
#include "models/registry.h"

namespace rullama::cli {
namespace {

struct ExportLoraFlags {
  ConfigFlags config;
  std::string output;
  std::string type;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
};

constexpr std::string_view kKeep = "keep";
constexpr DType kLeastType = DType::kQ8_0;

Result<std::optional<DType>> TypeOfFlag(const std::string& name) {
  if (name.empty() || name == kKeep) return std::optional<DType>();
  const std::optional<DType> type = DTypeFromName(name);
  if (type && CanQuantize(*type)) return type;
  return MakeError(ErrorKind::kUsage, "adapter.merge_type",
                   "--type is '{}', expected {} or one of {}", name, kKeep, QuantizableTypes());
}

int64_t CountLost(const std::vector<MergedTensor>& merged) {
  return std::ranges::count_if(merged, &MergedTensor::loses_change);
}

// Says what the types of the merged tensors cost, of the worst one.
void ReportRounding(const std::vector<MergedTensor>& merged, Console& console) {
  const auto worst = std::ranges::max_element(merged, {}, &MergedTensor::error);
  console.Note(
      fmt::format("merged {} tensors; rounding is at most {:.2g} of a tensor ('{}', {}), whose "
                  "change is {:.2g}",
                  merged.size(), worst->error, worst->name, NameOf(worst->type), worst->change));
  if (const int64_t lost = CountLost(merged); lost > 0) {
    console.Warn(fmt::format(
        "in {} of the merged tensors rounding is larger than half of the change by the adapter, so "
        "part of what was learnt is lost; --type q8_0 or f16 keeps more, and --lora when the model "
        "runs keeps all of it",
        lost));
  }
}

// Merged tensors keep their types, unless rounding in one of them would be larger than half of what
// the adapter changes there, or a type cannot be written. Then all that have fewer bits than q8_0
// get that type.
Status ChooseTypes(const GgufFile& model, const std::vector<ScaledAdapter>& adapters,
                   MergeOptions& options, Console& console) {
  Progress progress(console, "measuring");
  options.on_progress = [&](uint64_t done, uint64_t total) {
    progress.Update(static_cast<int64_t>(done), static_cast<int64_t>(total));
  };
  const auto measured = MeasureMerge(model, adapters, options);
  progress.Clear();
  const bool unwritable = !measured && measured.error().id == "adapter.merge_type";
  if (!measured && !unwritable) return tl::unexpected(measured.error());
  const int64_t lost = unwritable ? 0 : CountLost(*measured);
  if (lost == 0 && !unwritable) return OkStatus();
  options.least = kLeastType;
  console.Note(fmt::format(
      "{}, so merged tensors of fewer bits become {}; --type {} leaves their types",
      unwritable ? std::string("a merged tensor has a type that cannot be written")
                 : fmt::format("in {} of {} merged tensors rounding to their own types would be "
                               "larger than half of the change by the adapter",
                               lost, measured->size()),
      NameOf(kLeastType), kKeep));
  return OkStatus();
}

Result<int> ExportLora(const ExportLoraFlags& flags, Console& console) {
  MergeOptions options;
  RL_ASSIGN_OR_RETURN(options.type, TypeOfFlag(flags.type));
  RL_ASSIGN_OR_RETURN(const LoadedConfig loaded, LoadConfig(flags.config));
  const Config& config = loaded.config.values();
  if (config.model.adapters.empty()) {
    return MakeError(ErrorKind::kUsage, "adapter.none",
                     "no adapter is given, expected --lora FILE or model.adapters");
  }
  RL_ASSIGN_OR_RETURN(const ModelFile model, OpenModelFile(config.model.path));
  RL_ASSIGN_OR_RETURN(const auto opened, OpenModel(*model.file));
  RL_ASSIGN_OR_RETURN(const std::vector<ScaledAdapter> adapters,
                      ReadAdapters(config, *opened, console));
  options.threads = flags.threads;
  options.cancel = CancelFlag();
  if (flags.type.empty()) {
    RL_RETURN_IF_ERROR(ChooseTypes(*model.file, adapters, options, console));
  }
  Progress progress(console, "merging");
  options.on_progress = [&](uint64_t done, uint64_t total) {
    progress.Update(static_cast<int64_t>(done), static_cast<int64_t>(total));
  };
  auto merged = MergeAdapters(*model.file, adapters, options, flags.output);
  progress.Clear();
  if (!merged) {
    return tl::unexpected(
        std::move(merged).error().WithContext(fmt::format("merging into '{}'", model.name)));
  }
  ReportRounding(*merged, console);
  console.Note(fmt::format("wrote '{}'", flags.output));
  return 0;
}

}  // namespace

void AddExportLoraCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<ExportLoraFlags>();
  CLI::App* command = app.add_subcommand(
      "export-lora", "Write a model with low-rank adapters (LoRA) merged into its weights");
  AddModelFileOptions(*command, flags->config);
  AddAdapterOption(*command, flags->config);
  command->add_option("-o,--output", flags->output, "Where the new file goes")
      ->required()
      ->option_text("FILE");
  command
      ->add_option(
          "--type", flags->type,
          "Type of the merged tensors, such as f16; keep: their own. Default: their own, or "
          "q8_0 if rounding would be larger than half of the change")
      ->option_text("TYPE");
  command->add_option("-t,--threads", flags->threads, "Threads that merge; default: all cores")
      ->check(CLI::Range(1, 1024))
      ->option_text("N");
  command->footer(R"(Examples:
  rullama export-lora -m model-Q4_K_M.gguf --lora my-adapter -o merged.gguf
  rullama export-lora -m model-f16.gguf --lora first:0.5 --lora second.gguf -o merged.gguf)");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return ExportLora(*flags, context.console); };
  });
}

}  // namespace rullama::cli
