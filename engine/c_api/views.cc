#include "engine/c_api/views.h"

namespace rullama::c_api {
namespace {

static_assert(RULLAMA_EVENT_PROGRESS == static_cast<int>(Event::Kind::kProgress) &&
              RULLAMA_EVENT_TEXT == static_cast<int>(Event::Kind::kText) &&
              RULLAMA_EVENT_THINKING == static_cast<int>(Event::Kind::kThinking) &&
              RULLAMA_EVENT_TOOL_CALL == static_cast<int>(Event::Kind::kToolCall) &&
              RULLAMA_EVENT_DRAFT == static_cast<int>(Event::Kind::kDraft));
static_assert(RULLAMA_STOP_END_OF_GENERATION == static_cast<int>(StopReason::kEndOfGeneration) &&
              RULLAMA_STOP_MAX_TOKENS == static_cast<int>(StopReason::kMaxTokens) &&
              RULLAMA_STOP_CONTEXT_FULL == static_cast<int>(StopReason::kContextFull) &&
              RULLAMA_STOP_CANCELLED == static_cast<int>(StopReason::kCancelled) &&
              RULLAMA_STOP_STOPPED == static_cast<int>(StopReason::kStopped));

rullama_tool_call ViewOf(const ToolCall& call) {
  return {call.name.c_str(), call.arguments.c_str()};
}

rullama_token_logprob ViewOf(const TokenLogprob& logprob) {
  return {logprob.token, logprob.logprob};
}

}  // namespace

rullama_event ViewOf(const Event& event) {
  rullama_event view{};
  view.struct_size = sizeof view;
  view.kind = static_cast<int32_t>(event.kind);
  view.text = event.text.c_str();
  view.text_size = event.text.size();
  view.call = ViewOf(event.call);
  view.done = event.done;
  view.total = event.total;
  return view;
}

void CompletionView::ShowLists(const Completion& completion) {
  tool_calls_.clear();
  for (const ToolCall& call : completion.tool_calls) tool_calls_.push_back(ViewOf(call));
  top_logprobs_.clear();
  for (const LogprobStep& step : completion.logprobs) {
    for (const TokenLogprob& top : step.top) top_logprobs_.push_back(ViewOf(top));
  }
  logprobs_.clear();
  const rullama_token_logprob* top = top_logprobs_.data();
  for (const LogprobStep& step : completion.logprobs) {
    logprobs_.push_back({ViewOf(step.drawn), top, step.top.size()});
    top += step.top.size();
  }
}

const rullama_completion* CompletionView::Show(const Completion& completion) {
  ShowLists(completion);
  view_.struct_size = sizeof view_;
  view_.reason = static_cast<int32_t>(completion.reason);
  view_.text = completion.text.c_str();
  view_.text_size = completion.text.size();
  view_.thoughts = completion.thoughts.c_str();
  view_.thoughts_size = completion.thoughts.size();
  view_.tool_calls = tool_calls_.data();
  view_.tool_call_count = tool_calls_.size();
  view_.ids = completion.ids.data();
  view_.id_count = completion.ids.size();
  view_.logprobs = logprobs_.data();
  view_.logprob_count = logprobs_.size();
  view_.seed = completion.seed;
  view_.prompt_tokens = completion.prompt_tokens;
  view_.cached_tokens = completion.cached_tokens;
  view_.queue_seconds = completion.queue_seconds;
  view_.prompt_seconds = completion.prompt_seconds;
  view_.generate_seconds = completion.generate_seconds;
  view_.drafted_tokens = completion.drafts.drafted;
  view_.accepted_tokens = completion.drafts.accepted;
  return &view_;
}

}  // namespace rullama::c_api
