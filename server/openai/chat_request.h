// Reads the bodies of /v1/chat/completions and /v1/completions (server specification, 4.2 and 4.3).
#pragma once

#include <nlohmann/json.hpp>

#include "server/answer_request.h"
#include "server/api_error.h"
#include "server/openai/openai_fields.h"

namespace rullama::server {

// Errors (400): missing_required_parameter, invalid_type, invalid_value, unsupported_parameter,
// unsupported_value, with the place; 501 not_implemented for what the API has and this server does
// not do yet. The calls of a conversation are checked by the engine.
ApiResult<AnswerRequest> ReadChatRequest(const nlohmann::json& body, const BodyContext& context);
// A prompt that is empty has no text and no ids: it is continued from BOS.
ApiResult<AnswerRequest> ReadTextRequest(const nlohmann::json& body, const BodyContext& context);

}  // namespace rullama::server
