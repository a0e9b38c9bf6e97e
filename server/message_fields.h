// The messages of a conversation, as both APIs give them, in the form that the engine takes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/api/request.h"
#include "server/field_reader.h"

namespace rullama::server {

inline constexpr size_t kMaxMessages = 4096;

// `messages` of the OpenAI API: 1 to 4096 objects with role and content. What the template checks
// (calls and their results) is left to the engine. Their pictures and sounds go to `media`, in
// their order. Null if there is an error.
nlohmann::json ReadMessages(FieldReader& fields, std::vector<Medium>& media);

// The content of a user's message, a text or a list of parts, called `place` in errors, as one that
// the engine takes. Its pictures and sounds go to `media`.
nlohmann::json ReadUserContent(FieldReader& fields, const std::string& place,
                               const nlohmann::json& content, std::vector<Medium>& media);

// `messages` of the Ollama API, which may be empty or missing: arguments of calls are objects,
// `thinking` are the thoughts, results name their tool or their call. `images` may also be sounds.
nlohmann::json ReadOllamaMessages(FieldReader& fields, std::vector<Medium>& media);

}  // namespace rullama::server
