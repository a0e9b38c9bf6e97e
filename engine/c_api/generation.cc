#include <utility>

#include "engine/c_api/error_handle.h"
#include "engine/c_api/handles.h"

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

void ViewLists(const Completion& from, rullama_generation& to) {
  to.tool_calls.clear();
  for (const ToolCall& call : from.tool_calls) to.tool_calls.push_back(ViewOf(call));
  to.top_logprobs.clear();
  for (const LogprobStep& step : from.logprobs) {
    for (const TokenLogprob& top : step.top) to.top_logprobs.push_back(ViewOf(top));
  }
  to.logprobs.clear();
  const rullama_token_logprob* top = to.top_logprobs.data();
  for (const LogprobStep& step : from.logprobs) {
    to.logprobs.push_back({ViewOf(step.drawn), top, step.top.size()});
    top += step.top.size();
  }
}

void ViewCompletion(rullama_generation& generation) {
  const Completion& from = generation.generation.completion();
  ViewLists(from, generation);
  rullama_completion& view = generation.completion_view;
  view.struct_size = sizeof view;
  view.reason = static_cast<int32_t>(from.reason);
  view.text = from.text.c_str();
  view.text_size = from.text.size();
  view.thoughts = from.thoughts.c_str();
  view.thoughts_size = from.thoughts.size();
  view.tool_calls = generation.tool_calls.data();
  view.tool_call_count = generation.tool_calls.size();
  view.ids = from.ids.data();
  view.id_count = from.ids.size();
  view.logprobs = generation.logprobs.data();
  view.logprob_count = generation.logprobs.size();
  view.seed = from.seed;
  view.prompt_tokens = from.prompt_tokens;
  view.cached_tokens = from.cached_tokens;
  view.queue_seconds = from.queue_seconds;
  view.prompt_seconds = from.prompt_seconds;
  view.generate_seconds = from.generate_seconds;
}

Status Next(rullama_generation& handle) {
  handle.event.reset();
  RL_ASSIGN_OR_RETURN(handle.event, handle.generation.Next());
  if (handle.event) handle.event_view = ViewOf(*handle.event);
  return OkStatus();
}

}  // namespace
}  // namespace rullama::c_api

extern "C" {

rullama_code rullama_generation_next(rullama_generation* generation, const rullama_event** event,
                                     rullama_error** error) {
  return rullama::c_api::AtBorder(error, [&]() -> rullama::Status {
    RL_RETURN_IF_ERROR(rullama::c_api::NeedPointer(static_cast<const void*>(event), "event"));
    *event = nullptr;
    RL_RETURN_IF_ERROR(rullama::c_api::NeedPointer(generation, "generation"));
    RL_RETURN_IF_ERROR(rullama::c_api::Next(*generation));
    if (generation->event) *event = &generation->event_view;
    return rullama::OkStatus();
  });
}

rullama_code rullama_generation_wait(rullama_generation* generation,
                                     rullama_event_callback on_event, void* data,
                                     rullama_error** error) {
  return rullama::c_api::AtBorder(error, [&]() -> rullama::Status {
    RL_RETURN_IF_ERROR(rullama::c_api::NeedPointer(generation, "generation"));
    for (;;) {
      RL_RETURN_IF_ERROR(rullama::c_api::Next(*generation));
      if (!generation->event) return rullama::OkStatus();
      if (on_event != nullptr && on_event(data, &generation->event_view) != 0) {
        generation->generation.Cancel();
      }
    }
  });
}

rullama_code rullama_generation_completion(rullama_generation* generation,
                                           const rullama_completion** completion,
                                           rullama_error** error) {
  return rullama::c_api::AtBorder(error, [&]() -> rullama::Status {
    RL_RETURN_IF_ERROR(
        rullama::c_api::NeedPointer(static_cast<const void*>(completion), "completion"));
    *completion = nullptr;
    RL_RETURN_IF_ERROR(rullama::c_api::NeedPointer(generation, "generation"));
    rullama::c_api::ViewCompletion(*generation);
    *completion = &generation->completion_view;
    return rullama::OkStatus();
  });
}

void rullama_generation_cancel(rullama_generation* generation) {
  if (generation != nullptr) generation->generation.Cancel();
}

void rullama_generation_free(rullama_generation* generation) { delete generation; }

}  // extern "C"
