#include <utility>

#include "engine/c_api/error_handle.h"
#include "engine/c_api/handles.h"

namespace rullama::c_api {
namespace {

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
    *completion = generation->completion.Show(generation->generation.completion());
    return rullama::OkStatus();
  });
}

void rullama_generation_cancel(rullama_generation* generation) {
  if (generation != nullptr) generation->generation.Cancel();
}

void rullama_generation_free(rullama_generation* generation) { delete generation; }

}  // extern "C"
