// Views of events and completions for C programs: structs of pointers into those of C++.
//
// Ownership: a view is valid as long as its source exists unchanged. Thread safety: none of its
// own.
#pragma once

#include <vector>

#include "engine/api/request.h"
#include "engine/c_api/rullama.h"

namespace rullama::c_api {

rullama_event ViewOf(const Event& event);

class CompletionView {
 public:
  // The view of `completion`; the one before it is no longer valid.
  const rullama_completion* Show(const Completion& completion);

 private:
  void ShowLists(const Completion& completion);

  rullama_completion view_{};
  std::vector<rullama_tool_call> tool_calls_;
  std::vector<rullama_token_logprob> top_logprobs_;  // of all steps
  std::vector<rullama_logprob_step> logprobs_;
};

}  // namespace rullama::c_api
