// The models that the server answers with. Each is loaded when a request asks for it, and unloaded
// when it has not been used for a while or when another one needs its place or its memory. One
// whose device was lost is opened again.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/base/keep_alive.h"
#include "core/config/config.h"
#include "engine/api/engine.h"
#include "engine/loading/model_facts.h"
#include "server/api_error.h"
#include "server/metrics.h"

namespace rullama::server {

// A name without ":latest", which means the same model.
std::string_view WithoutLatest(std::string_view name);

// A model of the configuration.
struct ServedModel {
  std::string id;                   // under which clients find it
  std::time_t time = 0;             // when its file was changed last
  KeepAlive keep_alive = kForEver;  // unless a request says otherwise
  // Names of its adapters. NAME:ADAPTER is the model with this one alone.
  std::vector<std::string> adapters = {};
  // Facts of the model: those that its file tells, and all of them once it has been loaded.
  ModelInfo info = {};
  std::function<Result<std::shared_ptr<Engine>>()> load = {};  // called by one thread at a time
  // Does not load it. `max_items`: as Engine::Metadata(). Called by any thread.
  std::function<Result<ModelDescription>(size_t max_items)> describe = {};
};

// The slots of a model that is loaded.
struct ModelSlots {
  std::string id;
  int64_t capacity = 0;  // tokens per slot
  std::vector<SlotActivity> slots;
};

struct ModelsOptions {
  std::vector<ModelAlias> aliases = {};
  int64_t max_loaded = 1;
  std::chrono::milliseconds load_timeout{300'000};  // for which a request waits for a model
  std::function<void(std::string_view text)> warn = {};
};

// A model that a request uses.
struct UsedModel {
  std::string id;
  std::shared_ptr<Engine> engine;       // is not unloaded before the last copy of this has gone
  std::optional<int32_t> adapter = {};  // that was asked for with the name
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

  // The model of a name or an alias, which may end in ":" and the name of an adapter. It is lent
  // under this name, and loaded if it is not. An empty name means the only model. Blocks: requests
  // that wait for a place come in the order of their calls, and before later ones for models that
  // are loaded. A model that lacks memory takes that of models without users. Errors:
  // model_not_found, missing_required_parameter for an empty name; those of the engine where it
  // cannot be loaded; model_loading if no place for it gets free in time, shutting_down;
  // client_left if `left` becomes true while the request waits, which LookAtLeft() makes known.
  ApiResult<UsedModel> Acquire(std::string_view name, const std::atomic<bool>* left = nullptr);
  void LookAtLeft();
  // Engine::SetAdapterScales(), also for when the model is loaded again.
  Status SetAdapterScales(const UsedModel& model, std::span<const AdapterScale> scales);
  // From now on, how long the model stays. 0: until nobody uses it.
  void Keep(std::string_view id, KeepAlive keep);
  // The model of a name. Errors: as Acquire() about the name.
  [[nodiscard]] ApiResult<ModelState> Find(std::string_view name) const;
  // All models, in the order of the configuration.
  [[nodiscard]] std::vector<ModelState> All() const;

  // The slots of the models that are loaded, in the order of the configuration.
  [[nodiscard]] std::vector<ModelSlots> Slots() const;

  // Sums over the models that are loaded; what only grows, also over those that were. Requests that
  // wait for a place count as waiting.
  [[nodiscard]] EngineStats stats() const;
  // Whether the device of a model was lost, and the model is not open again.
  [[nodiscard]] bool lost() const;
  // Why a model whose device was lost cannot be opened again; then the server should end.
  [[nodiscard]] std::optional<Error> failure() const;
  // Requests do not wait for a model any more.
  void StopWaiting();
  // Once no model is in use any more: EngineAccess::Finish() for each. Only the destructor may
  // follow.
  void Finish();

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
    std::optional<std::vector<AdapterScale>> adapter_scales = {};  // none: as they were loaded
  };
  using Lock = std::unique_lock<std::mutex>;
  class Lease;
  class Ticket;

  // A model, and the adapter that its name has.
  struct Named {
    size_t index = 0;
    std::optional<int32_t> adapter = {};
    bool is_alias = false;
  };
  // Names and aliases come before MODEL:ADAPTER, and patterns ("gpt-*") after both.
  [[nodiscard]] ApiResult<Named> FindNamed(std::string_view name) const;
  // The model with this name of its own; nothing if there is none.
  [[nodiscard]] std::optional<size_t> FindOwn(std::string_view name) const;
  // The model with this name or with this alias, patterns apart; nothing if there is none.
  [[nodiscard]] std::optional<Named> FindExact(std::string_view name) const;
  // The model of the first pattern that fits; nothing if there is none.
  [[nodiscard]] std::optional<Named> FindByPattern(std::string_view name) const;
  // The model with its adapter of this name.
  [[nodiscard]] std::optional<Named> WithAdapter(std::optional<Named> model,
                                                 std::string_view adapter) const;
  [[nodiscard]] ModelState StateOf(const Entry& entry) const;
  // The result of Acquire(): an error or a model, or nothing if the request has to wait.
  std::optional<ApiResult<UsedModel>> TryAcquire(Lock& lock, Entry& entry, Ticket& ticket,
                                                 const std::atomic<bool>* left);
  [[nodiscard]] static bool IsLost(const Entry& entry);
  UsedModel Lend(Entry& entry);
  void Return(Entry& entry);
  // These unlock while they work.
  Status Load(Lock& lock, Entry& entry);
  Result<std::shared_ptr<Engine>> CallLoad(Lock& lock, const Entry& entry);
  void Close(Lock& lock, Entry& entry);
  [[nodiscard]] bool HasRoom() const;
  // The model without users that was used least recently, or null.
  [[nodiscard]] Entry* FindIdle();
  void StopWatching();
  void Watch();
  // Whether it did something, for which it unlocked.
  bool WatchOne(Lock& lock, Entry& entry);
  void Reopen(Lock& lock, Entry& entry);
  // When the next model without users is to be unloaded.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> NextExpiry() const;

  const ModelsOptions options_;
  Metrics& metrics_;
  std::mutex loading_;        // one loads at a time
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Entry> entries_;
  std::list<const Ticket*> line_;  // of requests that wait for a place
  EngineStats closed_;             // totals of engines that were closed
  std::optional<Error> failure_;
  bool waits_ = true;
  bool stopping_ = false;
  std::thread watcher_;
};

}  // namespace rullama::server
