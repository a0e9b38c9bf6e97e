#include "core/ollama/manifest.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/json_reader.h"

namespace rullama::gguf_internal {
namespace {

using Json = nlohmann::json;

// Manifests nest three deep, configs a little more.
constexpr size_t kMaxJsonDepth = 16;
constexpr std::string_view kLayerPrefix = "application/vnd.ollama.image.";

struct LayerKind {
  std::string_view name;  // after kLayerPrefix
  LayerRole role;
};
constexpr LayerKind kLayerKinds[] = {
    {"model", LayerRole::kModel},     {"projector", LayerRole::kProjector},
    {"adapter", LayerRole::kAdapter}, {"draft", LayerRole::kDraft},
    {"params", LayerRole::kParams},   {"template", LayerRole::kIgnored},
    {"prompt", LayerRole::kIgnored},  {"system", LayerRole::kSystem},
    {"license", LayerRole::kIgnored}, {"messages", LayerRole::kIgnored},
};

// Text of a foreign file in a form that is safe and short enough for a message.
std::string Quoted(std::string_view text) {
  constexpr size_t kMaxShown = 100;
  return Json(std::string(text.substr(0, kMaxShown)))
      .dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

tl::unexpected<Error> BadManifest(std::string_view found, std::string_view expected) {
  return MakeError(ErrorKind::kModelFile, "store.manifest",
                   "found {}, expected {}; pull the model again", found, expected);
}

// An object of limited depth, or nothing.
std::optional<Json> ParseObject(std::string_view text) {
  if (text.size() > kMaxStoreJsonBytes) return std::nullopt;
  auto json = ReadJson(text, {.depth = kMaxJsonDepth});
  if (!json || !json->is_object()) return std::nullopt;
  return *std::move(json);
}

// The string member `key`, or "" if it is missing or something else.
std::string StringOr(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Result<LayerRole> RoleOf(const std::string& media_type) {
  if (media_type.starts_with(kLayerPrefix)) {
    const std::string_view name = std::string_view(media_type).substr(kLayerPrefix.size());
    for (const LayerKind& kind : kLayerKinds) {
      if (kind.name == name) return kind.role;
    }
    if (name == "tensor" || name == "json") {
      return MakeError(ErrorKind::kModelFile, "store.not_gguf",
                       "this model is stored as single safetensors tensors (an MLX build), "
                       "expected GGUF; pull the build without '-mlx' in its tag");
    }
  }
  // Passing over a layer that we do not know could change what the model says.
  return MakeError(ErrorKind::kModelFile, "store.not_gguf",
                   "found a layer of unknown media type {}, expected the layers of a GGUF model; "
                   "pull the model again or use a newer rullama",
                   Quoted(media_type));
}

Result<OllamaLayer> ParseLayer(const Json& json) {
  if (!json.is_object()) return BadManifest("a layer that is not an object", "an object");
  RL_ASSIGN_OR_RETURN(const LayerRole role, RoleOf(StringOr(json, "mediaType")));
  RL_ASSIGN_OR_RETURN(std::string blob, BlobName(StringOr(json, "digest")));
  const auto size = json.find("size");
  if (size == json.end() || !size->is_number_unsigned()) {
    return BadManifest("a layer without a valid size", "a size in bytes, 0 to 2^64-1");
  }
  return OllamaLayer{role, std::move(blob), size->get<uint64_t>()};
}

Status ReadNumber(const Json& object, const char* key, std::optional<double>& out) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return OkStatus();
  if (!found->is_number() || !std::isfinite(found->get<double>())) {
    return MakeError(ErrorKind::kModelFile, "store.params",
                     "'{}' is of type {}, expected a number; pull the model again", key,
                     found->type_name());
  }
  out = found->get<double>();
  return OkStatus();
}

Status ReadStops(const Json& object, std::vector<std::string>& stops) {
  const auto found = object.find("stop");
  if (found == object.end() || found->is_null()) return OkStatus();
  const bool array = found->is_array();
  const bool valid =
      found->is_string() || (array && std::all_of(found->begin(), found->end(),
                                                  [](const Json& j) { return j.is_string(); }));
  if (!valid) {
    return MakeError(ErrorKind::kModelFile, "store.params",
                     "'stop' is of type {}, expected a list of strings; pull the model again",
                     found->type_name());
  }
  if (!array) {
    stops.push_back(found->get<std::string>());
  } else {
    for (const Json& stop : *found) stops.push_back(stop.get<std::string>());
  }
  return OkStatus();
}

}  // namespace

Result<std::string> BlobName(std::string_view digest) {
  constexpr std::string_view kAlgorithm = "sha256";
  constexpr size_t kHexDigits = 64;
  const bool shape = digest.size() == kAlgorithm.size() + 1 + kHexDigits &&
                     digest.starts_with(kAlgorithm) &&
                     (digest[kAlgorithm.size()] == ':' || digest[kAlgorithm.size()] == '-');
  const std::string_view hex = shape ? digest.substr(kAlgorithm.size() + 1) : std::string_view();
  if (!shape || hex.find_first_not_of("0123456789abcdef") != hex.npos) {
    return MakeError(
        ErrorKind::kModelFile, "store.digest",
        "found digest {}, expected 'sha256:' and 64 lower-case hex digits; the manifest "
        "is damaged or hostile, pull the model again",
        Quoted(digest));
  }
  return fmt::format("{}-{}", kAlgorithm, hex);
}

Result<OllamaManifest> ParseOllamaManifest(std::string_view text) {
  const auto json = ParseObject(text);
  if (!json) return BadManifest("a manifest that is not a valid JSON object", "an image manifest");
  const auto config = json->find("config");
  if (config == json->end() || !config->is_object()) {
    return BadManifest("a manifest without 'config'", "an object with a digest");
  }
  OllamaManifest manifest;
  RL_ASSIGN_OR_RETURN(manifest.config_blob, BlobName(StringOr(*config, "digest")));
  const auto layers = json->find("layers");
  if (layers == json->end() || !layers->is_array()) {
    return BadManifest("a manifest without 'layers'", "a list of layers");
  }
  size_t models = 0;
  for (const Json& entry : *layers) {
    RL_ASSIGN_OR_RETURN(OllamaLayer layer, ParseLayer(entry));
    models += layer.role == LayerRole::kModel ? 1 : 0;
    manifest.layers.push_back(std::move(layer));
  }
  if (models != 1) {
    return BadManifest(fmt::format("{} model layers", models), "exactly one");
  }
  return manifest;
}

Status ParseOllamaConfig(std::string_view text, OllamaModel& model) {
  const auto json = ParseObject(text);
  if (!json) return BadManifest("a config that is not a valid JSON object", "an image config");
  const std::string format = StringOr(*json, "model_format");
  if (!format.empty() && format != "gguf") {
    return MakeError(ErrorKind::kModelFile, "store.not_gguf",
                     "the model has format {}, expected gguf; pull a GGUF build of it",
                     Quoted(format));
  }
  model.model_family = StringOr(*json, "model_family");
  model.model_type = StringOr(*json, "model_type");
  model.file_type = StringOr(*json, "file_type");
  model.renderer = StringOr(*json, "renderer");
  return OkStatus();
}

Result<OllamaParams> ParseOllamaParams(std::string_view text) {
  const auto json = ParseObject(text);
  if (!json) {
    return MakeError(ErrorKind::kModelFile, "store.params",
                     "the params layer is not a valid JSON object; pull the model again");
  }
  OllamaParams params;
  RL_RETURN_IF_ERROR(ReadNumber(*json, "temperature", params.temperature));
  RL_RETURN_IF_ERROR(ReadNumber(*json, "top_p", params.top_p));
  RL_RETURN_IF_ERROR(ReadNumber(*json, "min_p", params.min_p));
  std::optional<double> top_k;
  RL_RETURN_IF_ERROR(ReadNumber(*json, "top_k", top_k));
  if (top_k) {
    // A count that some writers store as 64.0.
    if (*top_k != std::floor(*top_k) || std::abs(*top_k) > 0x1p31) {
      return MakeError(ErrorKind::kModelFile, "store.params",
                       "'top_k' is {}, expected a whole number of at most 2^31", *top_k);
    }
    params.top_k = static_cast<int64_t>(*top_k);
  }
  RL_RETURN_IF_ERROR(ReadStops(*json, params.stop));
  return params;
}

}  // namespace rullama::gguf_internal
