// The models that the server answers with. Each is loaded when a request asks for it, and unloaded
// when it has not been used for a while or when another one needs its place. One whose device was
// lost is opened again.
#pragma once

#include <chrono>
#include <condition_variable>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/api/engine.h"
#include "server/api_error.h"
#include "server/keep_alive.h"
#include "server/metrics.h"

namespace rullama::server {

// A model of the configuration.
struct ServedModel {
  std::string id;        // under which clients find it
  std::time_t time = 0;  // when its file was changed last
  // Facts of the model: those that its file tells, and all of them once it has been loaded.
  ModelInfo info = {};
  std::function<Result<std::shared_ptr<Engine>>()> load = {};  // called by one thread at a time
};

struct ModelsOptions {
  int64_t max_loaded = 1;
  KeepAlive keep_alive = kForEver;                  // unless a request says otherwise
  std::chrono::milliseconds load_timeout{300'000};  // for which a request waits for a model
  std::function<void(std::string_view text)> warn = {};
};

// A model that a request uses.
struct UsedModel {
  std::string id;
  std::shared_ptr<Engine> engine;  // is not unloaded before the last copy of this has gone
};

// A model as it is at a moment.
struct ModelState {
  ServedModel model;
  bool loaded = false;
  std::optional<std::time_t> expires;  // when it is going to be unloaded; none: never
};

// Thread safety: all member functions from any thread. Times are watched by a thread of its own.
class Models {
 public:
  // `first`: the first of `models`, loaded. `metrics` outlives this.
  Models(std::vector<ServedModel> models, std::shared_ptr<Engine> first, ModelsOptions options,
         Metrics& metrics);
  Models(const Models&) = delete;
  Models& operator=(const Models&) = delete;
  // No model is in use any more.
  ~Models();

  // The model of a name, loaded if it is not. Blocks. An empty name means the only model. Errors:
  // model_not_found, missing_required_parameter for an empty name; those of the engine where it
  // cannot be loaded; model_loading if no place for it gets free in time, shutting_down.
  ApiResult<UsedModel> Acquire(std::string_view name);
  // From now on, how long the model stays. 0: until nobody uses it.
  void Keep(std::string_view id, KeepAlive keep);
  // The model of a name. Errors: as Acquire() about the name.
  [[nodiscard]] ApiResult<ModelState> Find(std::string_view name) const;
  // All models, in the order of the configuration.
  [[nodiscard]] std::vector<ModelState> All() const;

  // Sums over the models that are loaded; what only grows, also over those that were.
  [[nodiscard]] EngineStats stats() const;
  // Whether the device of a model was lost, and the model is not open again.
  [[nodiscard]] bool lost() const;
  // Why a model whose device was lost cannot be opened again; then the server should end.
  [[nodiscard]] std::optional<Error> failure() const;
  // Requests do not wait for a model any more.
  void StopWaiting();

 private:
  struct Entry {
    ServedModel model;
    std::shared_ptr<Engine> engine = nullptr;  // null: not loaded
    bool changing = false;                     // is being loaded or closed
    bool lost = false;                         // is being opened again
    int64_t users = 0;
    KeepAlive keep = kForEver;
    std::chrono::steady_clock::time_point last_used = {};
    std::optional<std::chrono::steady_clock::time_point> reopened = {};
  };
  using Lock = std::unique_lock<std::mutex>;
  class Lease;

  [[nodiscard]] ApiResult<size_t> IndexOf(std::string_view name) const;
  [[nodiscard]] ModelState StateOf(const Entry& entry) const;
  UsedModel Lend(Entry& entry);
  void Return(Entry& entry);
  // Both unlock while they work.
  Status Load(Lock& lock, Entry& entry);
  void Close(Lock& lock, Entry& entry);
  [[nodiscard]] bool HasRoom() const;
  // The model without users that was used least recently, or null.
  [[nodiscard]] Entry* FindIdle();
  void Watch();
  void WatchOne(Lock& lock, Entry& entry);
  void Reopen(Lock& lock, Entry& entry);

  const ModelsOptions options_;
  Metrics& metrics_;
  std::mutex loading_;        // one loads at a time
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Entry> entries_;
  EngineStats closed_;  // totals of engines that were closed
  std::optional<Error> failure_;
  bool waits_ = true;
  bool stopping_ = false;
  std::thread watcher_;
};

}  // namespace rullama::server
