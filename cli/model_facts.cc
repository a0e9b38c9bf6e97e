#include "cli/model_facts.h"

#include <filesystem>
#include <map>
#include <string_view>

namespace rullama::cli {
namespace {

struct FileTypeName {
  uint32_t value;
  std::string_view name;
};

// general.file_type, as llama.cpp numbers and names it.
constexpr FileTypeName kFileTypes[] = {
    {0, "F32"},      {1, "F16"},      {2, "Q4_0"},    {3, "Q4_1"},    {7, "Q8_0"},
    {8, "Q5_0"},     {9, "Q5_1"},     {10, "Q2_K"},   {11, "Q3_K_S"}, {12, "Q3_K_M"},
    {13, "Q3_K_L"},  {14, "Q4_K_S"},  {15, "Q4_K_M"}, {16, "Q5_K_S"}, {17, "Q5_K_M"},
    {18, "Q6_K"},    {19, "IQ2_XXS"}, {20, "IQ2_XS"}, {21, "Q2_K_S"}, {22, "IQ3_XS"},
    {23, "IQ3_XXS"}, {24, "IQ1_S"},   {25, "IQ4_NL"}, {26, "IQ3_S"},  {27, "IQ3_M"},
    {28, "IQ2_S"},   {29, "IQ2_M"},   {30, "IQ4_XS"}, {31, "IQ1_M"},  {32, "BF16"},
    {36, "TQ1_0"},   {37, "TQ2_0"},   {38, "MXFP4"},
};

std::string QuantizationOf(const GgufFile& file) {
  const auto type = file.FindU32("general.file_type");
  if (type && type->has_value()) {
    for (const FileTypeName& row : kFileTypes) {
      if (row.value == **type) return std::string(row.name);
    }
  }
  std::map<std::string, uint64_t> bytes;
  for (const TensorInfo& tensor : file.tensors()) {
    bytes[std::string(NameOf(tensor.dtype))] += tensor.bytes;
  }
  std::string most = "unknown";
  uint64_t most_bytes = 0;
  for (const auto& [name, sum] : bytes) {
    if (sum <= most_bytes) continue;
    most_bytes = sum;
    most = "mostly " + name;
  }
  return most;
}

}  // namespace

ModelFacts FactsOf(const ModelFile& model) {
  ModelFacts facts;
  facts.name = model.ollama ? model.name : std::filesystem::path(model.name).filename().string();
  facts.quantization = QuantizationOf(*model.file);
  for (const TensorInfo& tensor : model.file->tensors()) {
    facts.parameters += tensor.elements();
    facts.bytes += tensor.bytes;
  }
  return facts;
}

}  // namespace rullama::cli
