// The structs that the handles of the C interface stand for.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "engine/api/engine.h"
#include "engine/c_api/rullama.h"
#include "engine/c_api/views.h"

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
  rullama::c_api::CompletionView completion;
};
