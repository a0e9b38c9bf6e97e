#include "cli/commands/model_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/base/printable.h"
#include "core/base/size_text.h"
#include "engine/loading/backend_check.h"
#include "engine/loading/model_facts.h"
#include "models/registry.h"

namespace rullama::cli {
namespace {

constexpr size_t kMaxShownBytes = 1024;  // of a name or an error

// The day of a template that begins with a comment such as "{# Published: 2026-07-09 #}", as those
// of Google do from 2026-07-09 on; empty if there is none.
std::string_view DayOf(std::string_view chat_template) {
  constexpr std::string_view kKey = "Published: ", kShape = "dddd-dd-dd";
  const std::string_view comment = chat_template.substr(0, chat_template.find("#}"));
  const size_t key = comment.find(kKey);
  if (!comment.starts_with("{#") || key == std::string_view::npos) return {};
  const std::string_view day = comment.substr(key + kKey.size()).substr(0, kShape.size());
  const auto fits = [](char c, char shape) {
    return shape == 'd' ? c >= '0' && c <= '9' : c == shape;
  };
  return std::ranges::equal(day, kShape, fits) ? day : std::string_view();
}

// Days of this form sort like their texts.
std::string TemplateText(const GgufFile& file, std::string_view rendered) {
  if (rendered.empty()) return {};
  const auto text = file.FindString("tokenizer.chat_template");
  if (!text || !*text) return fmt::format("none; rullama renders that of {}", rendered);
  const std::string_view day = DayOf(**text);
  if (day == rendered) return fmt::format("of {}, which rullama renders", day);
  if (day.empty()) {
    return fmt::format("without a date, as before that of {}, which rullama renders", rendered);
  }
  return fmt::format("of {}, {} than that of {}, which rullama renders", day,
                     day < rendered ? "older" : "newer", rendered);
}

std::optional<Error> WhyRefused(const GgufFile& file, ModelSummary& summary) {
  const auto opened = OpenModel(file);
  if (!opened) return opened.error();
  summary.chat_warning = (*opened)->ChatWarning();
  summary.chat_template = TemplateText(file, (*opened)->TemplateDay());
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
  summary.refused = WhyRefused(file, summary);
  if (model.ollama) {
    summary.adapters.assign(model.ollama->adapters.begin(), model.ollama->adapters.end());
  }
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
  const auto line = [](std::string_view name, const std::string& text) {
    return text.empty() ? "" : fmt::format("{:<15}{}\n", name, text);
  };
  std::string adapters;
  for (const std::string& adapter : s.adapters) adapters += line("adapter", Masked(adapter));
  return fmt::format(
      "model          {}\narchitecture   {}\nparameters     {}\nquantisation   {}\n"
      "context        {}\nsize           {}\nrullama run    {}\n{}{}{}",
      Masked(s.name), s.architecture.empty() ? "unknown" : Masked(s.architecture),
      Count(s.parameters), s.quantization, context, SizeText(s.bytes), Masked(runs),
      line("chat template", s.chat_template), line("conversations", s.chat_warning), adapters);
}

}  // namespace rullama::cli
