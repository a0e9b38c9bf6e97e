#include "cli/commands/model_summary.h"

#include <fmt/format.h>

#include "core/base/printable.h"
#include "core/base/size_text.h"
#include "engine/loading/backend_check.h"
#include "engine/loading/model_facts.h"
#include "models/registry.h"

namespace rullama::cli {
namespace {

constexpr size_t kMaxShownBytes = 1024;  // of a name or an error

std::optional<Error> WhyRefused(const GgufFile& file, std::string& chat_warning) {
  const auto opened = OpenModel(file);
  if (!opened) return opened.error();
  chat_warning = (*opened)->ChatWarning();
  if (const auto tokenizer = MakeTokenizer(file); !tokenizer) return tokenizer.error();
  return std::nullopt;
}

std::string Masked(std::string_view text) { return Printable(text, kMaxShownBytes); }

std::string Count(uint64_t parameters) {
  const auto count = static_cast<double>(parameters);
  if (parameters >= 1'000'000'000) return fmt::format("{:.1f} billion", count / 1e9);
  return fmt::format("{:.1f} million", count / 1e6);
}

}  // namespace

ModelSummary Summarize(const ModelFile& model) {
  const GgufFile& file = *model.file;
  ModelSummary summary;
  summary.name = model.name;
  if (const auto text = file.FindString("general.architecture"); text && *text) {
    summary.architecture = **text;
    const auto context = file.FindU32(summary.architecture + ".context_length");
    if (context && *context) summary.context_length = **context;
  }
  summary.parameters = ParameterCount(file);
  summary.quantization = QuantizationOf(file);
  summary.bytes = file.total_bytes();
  summary.refused = WhyRefused(file, summary.chat_warning);
  return summary;
}

Result<ModelSummary> SummarizeOnBackend(const ModelFile& model, const ConfigFlags& flags,
                                        Console& console) {
  RL_ASSIGN_OR_RETURN(const LoadedConfig loaded, LoadConfig(flags));
  ModelSummary summary = Summarize(model);
  if (summary.refused) return summary;
  const auto opened = OpenModel(*model.file);
  const Status runs = opened ? CheckBackend(**opened, loaded.config.values(), flags.plugins,
                                            ProcessHooks(loaded.environment), console)
                             : Status(tl::unexpected(opened.error()));
  if (!runs) summary.refused = runs.error();
  return summary;
}

std::string SummaryText(const ModelSummary& s) {
  const std::string context =
      s.context_length ? fmt::format("{} tokens", *s.context_length) : "unknown";
  const std::string runs =
      s.refused ? fmt::format("no: {}", s.refused->ToString()) : std::string("yes");
  const std::string chats =
      s.chat_warning.empty() ? "" : fmt::format("conversations  {}\n", s.chat_warning);
  return fmt::format(
      "model          {}\narchitecture   {}\nparameters     {}\nquantisation   {}\n"
      "context        {}\nsize           {}\nrullama run    {}\n{}",
      Masked(s.name), s.architecture.empty() ? "unknown" : Masked(s.architecture),
      Count(s.parameters), s.quantization, context, SizeText(s.bytes), Masked(runs), chats);
}

}  // namespace rullama::cli
