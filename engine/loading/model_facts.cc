#include "engine/loading/model_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/sha256.h"
#include "engine/loading/loaded_model.h"

namespace rullama {
namespace {

using Json = nlohmann::ordered_json;

// The numbers of general.file_type, as llama.cpp gives them out (enum llama_ftype).
constexpr std::pair<uint32_t, const char*> kFileTypes[] = {
    {0, "F32"},     {1, "F16"},     {2, "Q4_0"},    {3, "Q4_1"},    {7, "Q8_0"},     {8, "Q5_0"},
    {9, "Q5_1"},    {10, "Q2_K"},   {11, "Q3_K_S"}, {12, "Q3_K_M"}, {13, "Q3_K_L"},  {14, "Q4_K_S"},
    {15, "Q4_K_M"}, {16, "Q5_K_S"}, {17, "Q5_K_M"}, {18, "Q6_K"},   {19, "IQ2_XXS"}, {20, "IQ2_XS"},
    {21, "Q2_K_S"}, {25, "IQ4_NL"}, {30, "IQ4_XS"}, {32, "BF16"},   {38, "MXFP4"},
};

template <typename T>
Json NumberJson(const std::byte* bytes) {
  return LoadUnaligned<T>(bytes);
}

Json ScalarJson(GgufType type, const std::byte* bytes) {
  switch (type) {
    case GgufType::kU8:
      return NumberJson<uint8_t>(bytes);
    case GgufType::kI8:
      return NumberJson<int8_t>(bytes);
    case GgufType::kU16:
      return NumberJson<uint16_t>(bytes);
    case GgufType::kI16:
      return NumberJson<int16_t>(bytes);
    case GgufType::kU32:
      return NumberJson<uint32_t>(bytes);
    case GgufType::kI32:
      return NumberJson<int32_t>(bytes);
    case GgufType::kU64:
      return NumberJson<uint64_t>(bytes);
    case GgufType::kI64:
      return NumberJson<int64_t>(bytes);
    case GgufType::kF32:
      return NumberJson<float>(bytes);
    case GgufType::kF64:
      return NumberJson<double>(bytes);
    case GgufType::kBool:
      return *bytes != std::byte{0};
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return nullptr;
}

Json ValueJson(const GgufValue& value, size_t max_items) {
  if (value.type == GgufType::kString) return value.text();
  if (value.type != GgufType::kArray) return ScalarJson(value.type, value.bytes.data());
  if (value.count > max_items) return nullptr;
  Json list = Json::array();
  if (value.element_type == GgufType::kString) {
    for (const std::string_view text : value.strings()) list.push_back(text);
    return list;
  }
  const size_t size = ScalarBytes(value.element_type);
  for (size_t i = 0; i < value.count; ++i) {
    list.push_back(ScalarJson(value.element_type, value.bytes.data() + i * size));
  }
  return list;
}

// For what was told when the program started.
class NoNotices final : public Notices {
 public:
  void Note(std::string_view /*text*/) override {}
  void Warn(std::string_view /*text*/) override {}
};

}  // namespace

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

uint64_t ParameterCount(const GgufFile& file) {
  uint64_t count = 0;
  for (const TensorInfo& tensor : file.tensors()) count += tensor.elements();
  return count;
}

std::string ContentDigest(const ModelFile& model) {
  constexpr std::string_view kPrefix = "sha256-";
  if (model.ollama) {
    const std::string blob = model.ollama->model.filename().string();
    if (blob.starts_with(kPrefix)) return blob.substr(kPrefix.size());
  }
  const GgufFile& file = *model.file;
  const auto header = file.bytes().first(static_cast<size_t>(file.data_offset()));
  std::string text(reinterpret_cast<const char*>(header.data()), header.size());
  // The tables of tensors of further parts.
  for (const TensorInfo& tensor : file.tensors()) {
    if (tensor.part == 0) continue;
    text += fmt::format("{} {} {}\n", tensor.name, NameOf(tensor.dtype),
                        fmt::join(std::span(tensor.dims).first(tensor.rank), "x"));
  }
  return HexText(Sha256(text));
}

std::string MetadataJson(const GgufFile& file, size_t max_items) {
  Json object = Json::object();
  for (const GgufEntry& entry : file.metadata()) {
    object[std::string(entry.key)] = ValueJson(entry.value, max_items);
  }
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

SamplingDefaults SamplingDefaultsOf(const SamplerSettings& settings) {
  SamplingDefaults defaults;
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) \
  defaults.name = settings.name;
#include "core/config/sampler_settings.def"
  if (settings.greedy) defaults.temperature = 0;
  return defaults;
}

Result<ModelDescription> DescribeModel(LayeredConfig layers, const HostHooks& hooks,
                                       size_t max_items) {
  NoNotices notices;
  RL_ASSIGN_OR_RETURN(const LoadedModel model, OpenModelHeader(std::move(layers), hooks, notices));
  const GgufFile& file = *model.file.file;
  RL_ASSIGN_OR_RETURN(const SamplerSettings settings,
                      ResolveSettings(model.config().sampler, file));
  return ModelDescription{.sampling = SamplingDefaultsOf(settings),
                          .takes_pictures = model.Takes(MediaKind::kPicture),
                          .takes_sound = model.Takes(MediaKind::kSound),
                          .calls_tools = !model.model->AnswerMarkers().empty(),
                          .thinks = model.facts().thinks,
                          .embeds = !model.facts().denoises(),
                          .writes = !model.facts().encodes(),
                          .metadata = MetadataJson(file, max_items)};
}

}  // namespace rullama
