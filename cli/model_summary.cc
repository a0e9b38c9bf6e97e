#include "cli/model_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/printable.h"
#include "core/base/size_text.h"
#include "models/gemma4/graph/config.h"
#include "models/gemma4/graph/weights.h"

namespace rullama::cli {
namespace {

constexpr size_t kMaxShownBytes = 1024;  // of a name or an error

// The numbers of general.file_type, as llama.cpp gives them out (enum llama_ftype).
constexpr std::pair<uint32_t, const char*> kFileTypes[] = {
    {0, "F32"},     {1, "F16"},     {2, "Q4_0"},    {3, "Q4_1"},    {7, "Q8_0"},     {8, "Q5_0"},
    {9, "Q5_1"},    {10, "Q2_K"},   {11, "Q3_K_S"}, {12, "Q3_K_M"}, {13, "Q3_K_L"},  {14, "Q4_K_S"},
    {15, "Q4_K_M"}, {16, "Q5_K_S"}, {17, "Q5_K_M"}, {18, "Q6_K"},   {19, "IQ2_XXS"}, {20, "IQ2_XS"},
    {21, "Q2_K_S"}, {25, "IQ4_NL"}, {30, "IQ4_XS"}, {32, "BF16"},   {38, "MXFP4"},
};

// The quantisation that the file states, else the type of most of its bytes.
std::string QuantizationOf(const GgufFile& file) {
  if (const auto type = file.FindU32("general.file_type"); type && *type) {
    const auto* const known =
        std::ranges::find(kFileTypes, **type, &std::pair<uint32_t, const char*>::first);
    if (known != std::end(kFileTypes)) return known->second;
  }
  std::map<DType, uint64_t> bytes;
  for (const TensorInfo& tensor : file.tensors()) bytes[tensor.dtype] += tensor.bytes;
  if (bytes.empty()) return "unknown";
  const auto most =
      std::ranges::max_element(bytes, {}, [](const auto& item) { return item.second; });
  return fmt::format("mostly {}", NameOf(most->first));
}

std::optional<Error> WhyRefused(const GgufFile& file) {
  const auto gemma = Gemma4Config::FromFile(file);
  if (!gemma) return gemma.error();
  if (const auto weights = Gemma4Weights::FromFile(*gemma, file); !weights) return weights.error();
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
  for (const TensorInfo& tensor : file.tensors()) summary.parameters += tensor.elements();
  summary.quantization = QuantizationOf(file);
  summary.bytes = file.bytes().size();
  summary.refused = WhyRefused(file);
  return summary;
}

std::string SummaryText(const ModelSummary& s) {
  const std::string context =
      s.context_length ? fmt::format("{} tokens", *s.context_length) : "unknown";
  const std::string runs =
      s.refused ? fmt::format("no: {}", s.refused->ToString()) : std::string("yes");
  return fmt::format(
      "model          {}\narchitecture   {}\nparameters     {}\nquantisation   {}\n"
      "context        {}\nsize           {}\nrullama run    {}\n",
      Masked(s.name), s.architecture.empty() ? "unknown" : Masked(s.architecture),
      Count(s.parameters), s.quantization, context, SizeText(s.bytes), Masked(runs));
}

}  // namespace rullama::cli
