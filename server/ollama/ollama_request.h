// Reads the bodies of /api/chat and /api/generate (server specification, section 5).
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/keep_alive.h"
#include "server/answer_request.h"
#include "server/api_error.h"
#include "server/openai/openai_fields.h"

namespace rullama::server {

struct OllamaRequest {
  AnswerRequest answer;  // one prompt; streamed unless the body says otherwise
  bool empty = false;    // there is nothing to answer: only to load or unload the model
  std::optional<KeepAlive> keep_alive = {};  // of the model, from the end of the answer
  bool truncate = false;  // leave out the oldest turns of a conversation that does not fit
};

// Errors: as those of chat_request.h.
ApiResult<OllamaRequest> ReadOllamaChat(const nlohmann::json& body, const BodyContext& context);
ApiResult<OllamaRequest> ReadOllamaGenerate(const nlohmann::json& body, const BodyContext& context);

// The member keep_alive. Errors for anything but a duration.
std::optional<KeepAlive> ReadKeepAlive(FieldReader& fields);

// Leaves out the oldest turns, but no system message and not the last turn, until the conversation
// has at most `fits` tokens by `count`. Returns how many messages have gone.
int64_t TruncateMessages(Request& request, int64_t fits,
                         const std::function<int64_t(const Request&)>& count);

}  // namespace rullama::server
