// What stands behind the handles of the C interface.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/api/engine.h"
#include "engine/c_api/rullama.h"

struct rullama_engine {
  explicit rullama_engine(std::shared_ptr<rullama::Engine> opened);

  std::shared_ptr<rullama::Engine> engine;
  rullama_model_info info;  // points into the engine
};

struct rullama_generation {
  explicit rullama_generation(rullama::Generation started) : generation(std::move(started)) {}

  rullama::Generation generation;
  std::optional<rullama::Event> event;  // the last one handed out, and its view
  rullama_event event_view{};
  // Views of the generation's completion, made when they are asked for.
  rullama_completion completion_view{};
  std::vector<rullama_tool_call> tool_calls;
  std::vector<rullama_token_logprob> top_logprobs;
  std::vector<rullama_logprob_step> logprobs;
};
