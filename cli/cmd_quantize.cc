// rullama quantize: a model file in a smaller type.
#include <algorithm>
#include <memory>
#include <string>
#include <thread>

#include "cli/command.h"
#include "cli/loading.h"
#include "cli/option_words.h"
#include "cli/signals.h"
#include "core/base/size_text.h"
#include "models/quantize/quantize.h"
#include "models/registry.h"

namespace rullama::cli {
namespace {

struct QuantizeFlags {
  std::string input;
  std::string output;
  std::string type;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
};

Result<int> QuantizeModel(const QuantizeFlags& flags, Console& console) {
  QuantizeOptions options;
  RL_ASSIGN_OR_RETURN(options.mix, FindQuantMix(flags.type));
  RL_ASSIGN_OR_RETURN(const ModelFile model, OpenModelFile(flags.input));
  // The rules for the types of tensors are known for these families only.
  RL_RETURN_IF_ERROR(FamilyOf(*model.file));
  options.threads = flags.threads;
  options.cancel = CancelFlag();
  Progress progress(console, "quantising");
  options.on_progress = [&](uint64_t done, uint64_t total) {
    progress.Update(static_cast<int64_t>(done), static_cast<int64_t>(total));
  };
  auto report = QuantizeFile(*model.file, options, flags.output);
  progress.Clear();
  if (!report) {
    return tl::unexpected(
        std::move(report).error().WithContext(fmt::format("quantising '{}'", model.name)));
  }
  console.Note(fmt::format("wrote '{}': {} tensors as {}, {} as they were; {} became {}",
                           flags.output, report->converted, options.mix.name, report->copied,
                           SizeText(report->bytes_before), SizeText(report->bytes_after)));
  return 0;
}

}  // namespace

void AddQuantizeCommand(CLI::App& app, CommandContext& context) {
  auto flags = std::make_shared<QuantizeFlags>();
  CLI::App* command = app.add_subcommand(
      "quantize", "Write a model in a smaller type, from a file of f32, f16 or bf16");
  command->add_option("IN", flags->input, "The model: a GGUF file")->required();
  command->add_option("OUT", flags->output, "Where the new file goes")->required();
  SetChoices(*command->add_option("TYPE", flags->type, "One of " + QuantMixNames())->required(),
             QuantMixNames(), "TEXT REQUIRED");
  command->add_option("--threads", flags->threads, "Threads that convert; default: all cores")
      ->check(CLI::Range(1, 1024));
  command->footer("Example:\n  rullama quantize model-bf16.gguf model-q4.gguf Q4_K_M");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return QuantizeModel(*flags, context.console); };
  });
}

}  // namespace rullama::cli
