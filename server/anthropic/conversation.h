// The conversation of a request of Anthropic's Messages API, in the form that the engine takes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/api/request.h"
#include "server/field_reader.h"

namespace rullama::server {

struct Conversation {
  nlohmann::json messages = nlohmann::json::array();  // as Request::messages
  std::vector<Medium> media;                          // in the order in which they stand there
  // The last turn is the assistant's, whose text the answer continues.
  bool continues_last = false;
};

// `system` and `messages`. Neighbours of one role are one turn, and the results of tools stand
// before the texts of their turn. A block of `system` that begins with x-anthropic-billing-header,
// which differs from request to request, is left out.
Conversation ReadConversation(FieldReader& fields);

}  // namespace rullama::server
