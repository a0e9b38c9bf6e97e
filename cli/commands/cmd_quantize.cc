// rullama quantize: a model file in a smaller type.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "cli/commands/command.h"
#include "cli/commands/loading.h"
#include "cli/commands/option_words.h"
#include "cli/terminal/signals.h"
#include "core/base/size_text.h"
#include "models/quantize/quantize.h"
#include "models/registry.h"

namespace rullama::cli {
namespace {

struct QuantizeFlags {
  std::string input;
  std::string output;
  std::string type;
  std::string imatrix;
  bool copy = false;
  bool verbose = false;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
};

// "3 tensors as q4_k, 1 as q6_k, "
std::string ConvertedText(const QuantizeReport& report) {
  std::string text;
  for (const auto& [dtype, count] : report.converted) {
    text += fmt::format("{}{} as {}, ", count, text.empty() ? " tensors" : "", NameOf(dtype));
  }
  return text;
}

// Whether the rules for the types of tensors are known for the file.
Status CheckKind(const GgufFile& file, bool towers) {
  if (!towers) {
    RL_RETURN_IF_ERROR(FamilyOf(file));
    return OkStatus();
  }
  RL_RETURN_IF_ERROR(ReadTowers(file));
  return OkStatus();
}

std::string ReportText(const QuantizeReport& report, bool towers) {
  return fmt::format("{}{} as they were{}; {} became {}", ConvertedText(report), report.copied,
                     towers ? " (vectors, positions, patches and convolutions always)" : "",
                     SizeText(report.bytes_before), SizeText(report.bytes_after));
}

Result<int> QuantizeModel(const QuantizeFlags& flags, Console& console) {
  if (flags.copy && !flags.imatrix.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.option",
                     "found --copy and --imatrix, expected one of them: a copy rounds nothing");
  }
  if (flags.copy != flags.type.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.option",
                     "found {}, expected either a TYPE or --copy; TYPE is one of {}",
                     flags.copy ? "both" : "neither", QuantMixNames());
  }
  QuantizeOptions options;
  options.copy = flags.copy;
  if (!flags.copy) {
    RL_ASSIGN_OR_RETURN(options.mix, FindQuantMix(flags.type));
  }
  RL_ASSIGN_OR_RETURN(const ModelFile model, OpenModelFile(flags.input));
  if (!flags.copy) {
    RL_ASSIGN_OR_RETURN(const std::string_view architecture,
                        model.file->GetString("general.architecture"));
    options.towers = architecture == kProjectorArchitecture;
    RL_RETURN_IF_ERROR(CheckKind(*model.file, options.towers));
  }
  options.threads = flags.threads;
  options.cancel = CancelFlag();
  std::optional<Importance> importance;
  if (!flags.imatrix.empty()) {
    RL_ASSIGN_OR_RETURN(importance, Importance::Read(flags.imatrix));
    options.importance = &*importance;
  }
  if (flags.verbose) {
    options.on_tensor = [&](const QuantizedTensor& tensor) {
      console.Note(fmt::format("{} as {}: relative error {:.4f}", tensor.name, NameOf(tensor.dtype),
                               tensor.error));
    };
  }
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
  if (flags.copy) {
    console.Note(fmt::format("wrote '{}': {} tensors as they were, {}", flags.output,
                             report->copied, SizeText(report->bytes_after)));
    return 0;
  }
  console.Note(fmt::format("wrote '{}' of type {}: {}", flags.output, options.mix.name,
                           ReportText(*report, options.towers)));
  if (report->without_importance > 0) {
    console.Warn(
        fmt::format("the importance matrix says nothing about {} of the tensors; all their "
                    "columns count the same",
                    report->without_importance));
  }
  if (report->unseen_experts > 0) {
    console.Warn(
        fmt::format("the text of the importance matrix never reached {} matrices of experts; all "
                    "their columns count the same",
                    report->unseen_experts));
  }
  return 0;
}

}  // namespace

void AddQuantizeCommand(CLI::App& app, CommandContext& context) {
  auto flags = std::make_shared<QuantizeFlags>();
  CLI::App* command = app.add_subcommand(
      "quantize",
      "Write a model, or its towers, in a smaller type, from a file of f32, f16 or bf16");
  command->add_option("IN", flags->input, "The model, or its mmproj file: a GGUF file")->required();
  command->add_option("OUT", flags->output, "Where the new file goes")->required();
  SetChoices(*command->add_option("TYPE", flags->type, "One of " + QuantMixNames()),
             QuantMixNames(), "TEXT");
  command->add_option("--imatrix", flags->imatrix,
                      "Importance of the columns, a file of llama-imatrix: errors of columns with "
                      "large activations count more");
  command->add_flag("-v,--verbose", flags->verbose,
                    "Tell the relative error of each tensor that is converted");
  command->add_flag("--copy", flags->copy,
                    "Keep every tensor as it is: makes one file of a split model");
  command->add_option("--threads", flags->threads, "Threads that convert; default: all cores")
      ->check(CLI::Range(1, 1024));
  command->footer("Example:\n  rullama quantize model-bf16.gguf model-q4.gguf Q4_K_M");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return QuantizeModel(*flags, context.console); };
  });
}

}  // namespace rullama::cli
