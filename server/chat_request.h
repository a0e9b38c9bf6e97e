// Reads the bodies of /v1/chat/completions and /v1/completions (server specification, 4.2 and 4.3).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/api/request.h"
#include "server/api_error.h"

namespace rullama::server {

struct CompletionRequest {
  Request request;
  std::string model;  // empty: the one that is served
  bool stream = false;
  bool include_usage = false;
  std::vector<std::string> ignored;  // members that mean nothing here, to be named in the answer
};

// Errors (400): missing_required_parameter, invalid_type, invalid_value, unsupported_parameter,
// unsupported_value, with the place; 501 not_implemented for what the API has and this server does
// not do yet. The conversation itself is checked by the engine.
ApiResult<CompletionRequest> ReadChatRequest(const nlohmann::json& body);
ApiResult<CompletionRequest> ReadTextRequest(const nlohmann::json& body);

}  // namespace rullama::server
