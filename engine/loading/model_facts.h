// The description that a model file gives of itself, for people and programs. Thread safety: all
// functions from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/status.h"
#include "core/config/layered_config.h"
#include "core/gguf/gguf.h"
#include "engine/api/engine.h"
#include "engine/host_hooks.h"
#include "engine/loading/model_file.h"
#include "samplers/settings.h"

namespace rullama {

// The quantisation that the file states ("Q4_K_M"), else the type of most of its bytes ("mostly
// q8_0"), else "unknown".
std::string QuantizationOf(const GgufFile& file);

// The numbers in all tensors.
uint64_t ParameterCount(const GgufFile& file);

// 64 hexadecimal digits that name the content: of a model from Ollama's store its blob, of a file
// the SHA-256 of its header (metadata and table of tensors).
std::string ContentDigest(const ModelFile& model);

// The metadata as a JSON object; arrays of more than `max_items` elements are null.
std::string MetadataJson(const GgufFile& file, size_t max_items);

// The sampler settings of a request that leaves them open.
SamplingDefaults SamplingDefaultsOf(const SamplerSettings& settings);

// The abilities and defaults of a model, which its header tells.
struct ModelDescription {
  SamplingDefaults sampling = {};
  bool takes_pictures = false;
  bool takes_sound = false;
  bool calls_tools = false;
  bool thinks = false;
  bool embeds = false;        // Engine::Embed() works
  bool writes = true;         // Engine::Submit() works
  std::string metadata = {};  // as Engine::Metadata()
};

// Describes the model that a finished configuration names; reads the headers of its files. Errors:
// those of OpenModelHeader; gguf.key_type.
Result<ModelDescription> DescribeModel(LayeredConfig layers, const HostHooks& hooks,
                                       size_t max_items);

}  // namespace rullama
