// Texts and token ids as vectors, for the endpoints of both APIs.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/call.h"
#include "server/field_reader.h"
#include "server/services.h"

namespace rullama::server {

// Parts as of a user's message, which are embedded together.
struct EmbeddingContent {
  nlohmann::json parts;
  std::vector<Medium> media = {};
};
using EmbeddingInput = std::variant<std::string, std::vector<int32_t>, EmbeddingContent>;

// The member `name`: a text, or up to 2,048; with `ids` also token ids, or lists of them, and
// objects {"content": [parts]}.
std::vector<EmbeddingInput> ReadInputs(FieldReader& fields, std::string_view name, bool ids,
                                       bool may_be_empty);

// The member `images` of Ollama's API, beside `inputs`: for each input a picture or a sound in
// base64 that comes before its text, or null. Nothing if it is missing.
void ReadImages(FieldReader& fields, std::vector<EmbeddingInput>& inputs);

struct EmbeddingSettings {
  int64_t dimensions = 0;  // of the vectors; 0: all
  bool truncate = false;   // inputs that do not fit are cut; BOS, and EOS if there is one, stay
  // The task whose prompt comes before each text, a name of ModelInfo::embedding_prompts, and the
  // member of the request that named it; empty: none.
  std::string task = {};
  std::string task_field = {};
  std::optional<std::vector<AdapterScale>> adapters = {};  // as Request::adapters
};
// Reads the members but the inputs: `dimensions`; `input_type`, `prompt_name` or `task_type`, which
// may stand in `extra_body`; `normalize`, which must not be false.
EmbeddingSettings ReadSettings(FieldReader& fields, const Engine& engine);

struct Embedded {
  std::vector<std::vector<float>> vectors;
  int64_t tokens = 0;
  // Members without an effect: that of the task, where an input begins with its prompt already.
  std::vector<std::string> ignored = {};
};
// Runs all inputs; an embedding model reads several in a step. Ends after a step if the client has
// left, or after the time that a request may take.
ApiResult<Embedded> EmbedAll(const Services& services, Call& call, Engine& engine,
                             const std::vector<EmbeddingInput>& inputs,
                             const EmbeddingSettings& settings);

}  // namespace rullama::server
