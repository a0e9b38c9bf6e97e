// A request for an answer, independent of the API that it came through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/api/request.h"

namespace rullama::server {

// What an answer shows of its prompt.
struct PromptView {
  std::string text;          // written before the answer
  std::vector<int32_t> ids;  // of its tokens, if those are shown
  size_t hidden = 0;         // of these, the first ones that are not listed: a BOS that was added
};

struct AnswerRequest {
  std::vector<Request> prompts;   // one, or several of a completion
  bool echo = false;              // prompts are written before their answers
  int32_t logprobs = -1;          // of completions, as Request::top_logprobs; with echo of prompts
  int32_t prompt_logprobs = -1;   // as StreamOptions::prompt_logprobs
  bool token_ids = false;         // the ids of tokens are told
  bool add_bos = true;            // BOS is put before texts
  std::vector<PromptView> views;  // one for each prompt of a completion
  int64_t n = 1;                  // answers to each prompt
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
