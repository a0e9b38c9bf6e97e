// A request for an answer, independent of the API that it came through.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/api/request.h"

namespace rullama::server {

struct AnswerRequest {
  std::vector<Request> prompts;     // one, or several of a completion
  std::vector<std::string> echoes;  // written before the answers; empty, or one for each prompt
  int64_t n = 1;                    // answers to each prompt
  bool stream = false;
  bool include_usage = false;
  bool include_drafts = false;  // of canvases, in a stream
  std::string form_name;        // the member that says which form the text has, if there is one
  // Where the body has what the engine names by a place such as "tools[0].function.parameters";
  // empty: in the same place.
  std::function<std::string(const std::string& place)> place_in_body = {};
  std::vector<std::string> ignored;  // members that mean nothing here, to be named in the answer
};

}  // namespace rullama::server
