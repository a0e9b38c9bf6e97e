// The model that the server answers with: loaded when it is asked for, and unloaded on request.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "engine/api/engine.h"
#include "server/api_error.h"
#include "server/metrics.h"

namespace rullama::server {

struct ServedModel {
  std::string id;        // under which clients find it
  std::time_t time = 0;  // when its file was changed last
};

// Thread safety: all member functions from any thread.
class ModelHost {
 public:
  using Loader = std::function<Result<std::shared_ptr<Engine>>()>;

  // `engine` is what `loader` has returned once.
  ModelHost(ServedModel model, std::shared_ptr<Engine> engine, Loader loader, Metrics& metrics);

  [[nodiscard]] const ServedModel& model() const { return model_; }
  // Facts that do not change from one loading to the next.
  [[nodiscard]] const ModelInfo& info() const { return info_; }

  // The model, loaded if it is not. Blocks. Errors: those of the engine.
  ApiResult<std::shared_ptr<Engine>> Acquire();
  // Gives the model's memory back once the requests that use it are over.
  void Unload();
  // The model if it is loaded, else null.
  [[nodiscard]] std::shared_ptr<Engine> loaded() const;

  // 404 if `name` is neither empty nor that of the model.
  [[nodiscard]] ApiResult<void> CheckName(std::string_view name) const;

 private:
  ServedModel model_;
  ModelInfo info_;
  Loader loader_;
  Metrics& metrics_;
  mutable std::mutex mutex_;  // guards engine_
  std::mutex loading_;        // one loads at a time
  std::shared_ptr<Engine> engine_;
};

}  // namespace rullama::server
