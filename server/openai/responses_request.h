// Reads the bodies of /v1/responses (server specification, 4.5). Nothing is stored: a conversation
// comes whole each time.
#pragma once

#include <nlohmann/json.hpp>

#include "server/answer_request.h"
#include "server/api_error.h"
#include "server/openai/openai_fields.h"

namespace rullama::server {

struct ResponsesRequest {
  AnswerRequest answer;  // one prompt
  // Members of the request that the answer repeats: instructions, temperature, tools, ...
  nlohmann::json repeated;
};

// Errors: as those of chat_request.h.
ApiResult<ResponsesRequest> ReadResponsesRequest(const nlohmann::json& body,
                                                 const BodyContext& context);

}  // namespace rullama::server
