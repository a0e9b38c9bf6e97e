// Reads the bodies of /v1/messages and /v1/messages/count_tokens (server specification, second
// part, 4.1 and 4.2).
#pragma once

#include <nlohmann/json.hpp>

#include "server/answer_request.h"
#include "server/api_error.h"
#include "server/body_context.h"

namespace rullama::server {

struct MessagesRequest {
  AnswerRequest answer;         // one prompt
  bool omits_thoughts = false;  // the answer shows where thoughts are, without their text
  bool edits_context = false;   // edits of the context are asked for, of which there are none
};

// Errors: as those of chat_request.h; features of the API that this server lacks are 400, too.
ApiResult<MessagesRequest> ReadMessagesRequest(const nlohmann::json& body,
                                               const BodyContext& context);
// The same for a prompt that is to be counted: max_tokens may be missing.
ApiResult<MessagesRequest> ReadCountedRequest(const nlohmann::json& body,
                                              const BodyContext& context);

}  // namespace rullama::server
