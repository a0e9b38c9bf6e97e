#include "server/models.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/base/alternate_stack.h"
#include "core/base/printable.h"
#include "core/base/status.h"
#include "engine/engine_access.h"
#include "server/call.h"
#include "server/engine_totals.h"

namespace rullama::server {
namespace {

// A device that is lost again within this time of its opening is not opened once more.
constexpr std::chrono::seconds kSettled{60};
constexpr size_t kMaxModelNameBytes = 64;

// The number of the adapter with this name, or else of the first one that has it without its
// ending.
std::optional<int32_t> AdapterOf(const ServedModel& model, std::string_view name) {
  const auto stem = [](const std::string& adapter) {
    return std::filesystem::path(adapter).stem().string();
  };
  auto found = std::ranges::find(model.adapters, name);
  if (found == model.adapters.end()) found = std::ranges::find(model.adapters, name, stem);
  if (found == model.adapters.end()) return std::nullopt;
  return static_cast<int32_t>(found - model.adapters.begin());
}

bool IsPattern(const ModelAlias& alias) { return alias.name.ends_with('*'); }

// A name of the form MODEL:ADAPTER.
struct NameParts {
  std::string_view model;
  std::string_view adapter;
};

std::optional<NameParts> PartsOf(std::string_view name) {
  const size_t colon = name.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  return NameParts{name.substr(0, colon), name.substr(colon + 1)};
}

std::string Quoted(std::string_view name) {
  return "'" + ShownName(name.substr(0, kMaxModelNameBytes)) + "'";
}

}  // namespace

std::string_view WithoutLatest(std::string_view name) {
  constexpr std::string_view kLatest = ":latest";
  if (name.ends_with(kLatest)) name.remove_suffix(kLatest.size());
  return name;
}

// Counts as a user of a model.
class Models::Lease {
 public:
  Lease(Models& owner, Entry& entry) : owner_(owner), entry_(entry), engine_(entry.engine) {}
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() {
    engine_.reset();
    owner_.Return(entry_);
  }
  [[nodiscard]] Engine* engine() const { return engine_.get(); }

 private:
  Models& owner_;
  Entry& entry_;
  std::shared_ptr<Engine> engine_;
};

// A request in the line for a place; leaves it at the end.
class Models::Ticket {
 public:
  explicit Ticket(Models& owner) : owner_(owner) {}
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket() { Leave(); }

  void Enter() {
    if (!Waits()) owner_.line_.push_back(this);
  }
  void Leave() {
    if (owner_.line_.remove(this) > 0) owner_.changed_.notify_all();
  }
  // Whether it is the first in the queue.
  [[nodiscard]] bool IsFirst() const {
    return owner_.line_.empty() || owner_.line_.front() == this;
  }

 private:
  [[nodiscard]] bool Waits() const {
    return std::ranges::find(owner_.line_, this) != owner_.line_.end();
  }

  Models& owner_;
};

Models::Models(std::vector<ServedModel> models, std::shared_ptr<Engine> first,
               ModelsOptions options, Metrics& metrics)
    : options_(std::move(options)), metrics_(metrics) {
  entries_.reserve(models.size());
  for (ServedModel& model : models) entries_.push_back({.model = std::move(model)});
  Entry& entry = entries_.front();
  entry.model.info = first->info();
  entry.engine = std::move(first);
  entry.keep = entry.model.keep_alive;
  entry.last_used = Clock::now();
  metrics_.Add(Counter::kModelLoads, 1, R"(result="ok")");
  watcher_ = std::thread([this] {
    const AlternateStack stack;  // unloading a model closes its devices
    Watch();
  });
}

Models::~Models() { StopWatching(); }

void Models::StopWatching() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

void Models::Finish() {
  StopWatching();
  for (Entry& entry : entries_) {
    if (entry.engine) EngineAccess::Finish(*entry.engine);
  }
}

std::optional<size_t> Models::FindOwn(std::string_view name) const {
  if (name.empty() && entries_.size() == 1) return 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (WithoutLatest(name) == WithoutLatest(entries_[i].model.id)) return i;
  }
  return std::nullopt;
}

std::optional<Models::Named> Models::FindExact(std::string_view name) const {
  if (const auto index = FindOwn(name)) return Named{*index};
  for (const ModelAlias& alias : options_.aliases) {
    if (IsPattern(alias) || alias.name != name) continue;
    if (const auto index = FindOwn(alias.model)) return Named{.index = *index, .is_alias = true};
  }
  return std::nullopt;
}

std::optional<Models::Named> Models::FindByPattern(std::string_view name) const {
  for (const ModelAlias& alias : options_.aliases) {
    if (!IsPattern(alias)) continue;
    const auto begin = std::string_view(alias.name).substr(0, alias.name.size() - 1);
    if (!name.starts_with(begin)) continue;
    if (const auto index = FindOwn(alias.model)) return Named{.index = *index, .is_alias = true};
  }
  return std::nullopt;
}

std::optional<Models::Named> Models::WithAdapter(std::optional<Named> model,
                                                 std::string_view adapter) const {
  if (!model) return std::nullopt;
  model->adapter = AdapterOf(entries_[model->index].model, adapter);
  return model->adapter ? model : std::nullopt;
}

ApiResult<Models::Named> Models::FindNamed(std::string_view name) const {
  const auto parts = PartsOf(name);
  if (const auto found = FindExact(name)) return *found;
  if (parts) {
    if (const auto found = WithAdapter(FindExact(parts->model), parts->adapter)) return *found;
    if (const auto found = WithAdapter(FindByPattern(parts->model), parts->adapter)) return *found;
  }
  if (const auto found = FindByPattern(name)) return *found;
  std::string names;
  for (const Entry& entry : entries_) {
    names += (names.empty() ? "" : ", ") + Quoted(entry.model.id);
  }
  if (name.empty()) {
    return tl::unexpected(MakeApiError("missing_required_parameter",
                                       "'model' is missing; name one of " + names, "model"));
  }
  return tl::unexpected(MakeApiError(
      "model_not_found",
      fmt::format("there is no model {}; this server has {}", Quoted(name), names), "model"));
}

ApiResult<UsedModel> Models::Acquire(std::string_view name, const std::atomic<bool>* left) {
  const Clock::time_point deadline = Clock::now() + options_.load_timeout;
  Lock lock(mutex_);
  const auto named = FindNamed(name);
  if (!named) return tl::unexpected(named.error());
  Entry& entry = entries_[named->index];
  Ticket ticket(*this);
  while (true) {
    if (auto result = TryAcquire(lock, entry, ticket, left)) {
      if (*result) {
        (*result)->adapter = named->adapter;
        if (named->adapter || named->is_alias) (*result)->id = name;
      }
      return *std::move(result);
    }
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout) {
      return tl::unexpected(MakeApiError(
          "model_loading",
          fmt::format("{} is not loaded, and other models are in use; try again later, or raise "
                      "server.max_loaded_models",
                      Quoted(entry.model.id))));
    }
  }
}

bool Models::IsLost(const Entry& entry) {
  return entry.lost || (entry.engine && entry.engine->stats().device_lost);
}

std::optional<ApiResult<UsedModel>> Models::TryAcquire(Lock& lock, Entry& entry, Ticket& ticket,
                                                       const std::atomic<bool>* left) {
  const bool lost = IsLost(entry);
  const bool ready = entry.engine && !entry.changing && !lost;
  if (ready && ticket.IsFirst()) return Lend(entry);
  if (!ready && failure_) return tl::unexpected(FromEngine(*failure_));
  if (!waits_) {
    return tl::unexpected(
        MakeApiError("shutting_down", "the server is shutting down; ask another one"));
  }
  if (left != nullptr && *left) {
    return tl::unexpected(MakeApiError("client_left", "the client has left"));
  }
  if (entry.changing || lost) {
    ticket.Leave();  // needs no place of its own
    return std::nullopt;
  }
  ticket.Enter();
  if (ready || !ticket.IsFirst()) return std::nullopt;
  while (!HasRoom()) {
    Entry* idle = FindIdle();
    if (idle == nullptr) return std::nullopt;
    Close(lock, *idle);
  }
  ticket.Leave();  // so that the next ones do not wait for the loading
  const Status loaded = Load(lock, entry);
  if (!loaded) return tl::unexpected(FromEngine(loaded.error()));
  return Lend(entry);
}

UsedModel Models::Lend(Entry& entry) {
  ++entry.users;
  entry.keep = entry.model.keep_alive;
  const auto lease = std::make_shared<Lease>(*this, entry);
  return {.id = entry.model.id, .engine = std::shared_ptr<Engine>(lease, lease->engine())};
}

void Models::Return(Entry& entry) {
  Lock lock(mutex_);
  entry.last_used = Clock::now();
  const bool unused = --entry.users == 0;
  if (unused && entry.keep == KeepAlive(0) && entry.engine && !entry.changing) Close(lock, entry);
  changed_.notify_all();
}

Status Models::SetAdapterScales(const UsedModel& model, std::span<const AdapterScale> scales) {
  const std::lock_guard lock(mutex_);
  RL_RETURN_IF_ERROR(model.engine->SetAdapterScales(scales));
  if (const auto named = FindNamed(model.id)) {
    entries_[named->index].adapter_scales.emplace(scales.begin(), scales.end());
  }
  return OkStatus();
}

void Models::Keep(std::string_view id, KeepAlive keep) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto named = FindNamed(id)) entries_[named->index].keep = keep;
  }
  changed_.notify_all();
}

Status Models::Load(Lock& lock, Entry& entry) {
  entry.changing = true;
  Result<std::shared_ptr<Engine>> engine = CallLoad(lock, entry);
  while (!engine && engine.error().kind == ErrorKind::kOutOfMemory) {
    Entry* idle = FindIdle();
    if (idle == nullptr) break;
    Close(lock, *idle);
    engine = CallLoad(lock, entry);
  }
  metrics_.Add(Counter::kModelLoads, 1, engine ? R"(result="ok")" : R"(result="error")");
  entry.changing = false;
  changed_.notify_all();
  if (!engine) return tl::unexpected(engine.error());
  entry.engine = *std::move(engine);
  if (entry.adapter_scales) {
    // The adapters are those that took them before, unless the files were replaced.
    const Status set = entry.engine->SetAdapterScales(*entry.adapter_scales);
    if (!set && options_.warn) options_.warn(set.error().ToString());
  }
  entry.model.info = entry.engine->info();
  entry.keep = entry.model.keep_alive;
  entry.last_used = Clock::now();
  return OkStatus();
}

Result<std::shared_ptr<Engine>> Models::CallLoad(Lock& lock, const Entry& entry) {
  lock.unlock();
  Result<std::shared_ptr<Engine>> engine = [&] {
    const std::lock_guard loading(loading_);
    return entry.model.load();
  }();
  lock.lock();
  return engine;
}

void Models::Close(Lock& lock, Entry& entry) {
  AddTotals(closed_, entry.engine->stats());
  std::shared_ptr<Engine> engine = std::exchange(entry.engine, nullptr);
  entry.changing = true;
  lock.unlock();
  engine.reset();
  lock.lock();
  entry.changing = false;
  changed_.notify_all();
}

bool Models::HasRoom() const {
  return std::ranges::count_if(entries_, [](const Entry& entry) {
           return entry.engine != nullptr || entry.changing;
         }) < options_.max_loaded;
}

Models::Entry* Models::FindIdle() {
  Entry* least = nullptr;
  for (Entry& entry : entries_) {
    if (!entry.engine || entry.changing || entry.users > 0) continue;
    if (least == nullptr || entry.last_used < least->last_used) least = &entry;
  }
  return least;
}

void Models::Watch() {
  Lock lock(mutex_);
  while (!stopping_) {
    bool acted = false;
    for (Entry& entry : entries_) acted = WatchOne(lock, entry) || acted;
    if (acted) continue;  // a change in between sent no notification
    if (const auto expiry = NextExpiry()) {
      changed_.wait_until(lock, *expiry);
    } else {
      changed_.wait(lock);
    }
  }
}

// A device is lost in a step of a request, so that Return() follows.
bool Models::WatchOne(Lock& lock, Entry& entry) {
  if (!entry.engine || entry.changing || entry.users > 0) return false;
  const bool lost = entry.engine->stats().device_lost;
  const bool expired = entry.keep >= KeepAlive(0) && Clock::now() - entry.last_used >= entry.keep;
  if (lost) {
    Reopen(lock, entry);
  } else if (expired) {
    Close(lock, entry);
  }
  return lost || expired;
}

std::optional<Clock::time_point> Models::NextExpiry() const {
  std::optional<Clock::time_point> next;
  for (const Entry& entry : entries_) {
    if (!entry.engine || entry.changing || entry.users > 0 || entry.keep < KeepAlive(0)) continue;
    const Clock::time_point expiry = entry.last_used + entry.keep;
    if (!next || expiry < *next) next = expiry;
  }
  return next;
}

void Models::Reopen(Lock& lock, Entry& entry) {
  const std::string id = Quoted(entry.model.id);
  const bool settled = !entry.reopened || Clock::now() - *entry.reopened >= kSettled;
  metrics_.Add(Counter::kDeviceLosses);
  entry.lost = true;
  Close(lock, entry);
  if (options_.warn) options_.warn("the device of " + id + " was lost; the model is opened again");
  Status opened = MakeError(ErrorKind::kBackend, "device.lost", "it was lost again at once");
  if (settled) opened = Load(lock, entry);
  entry.lost = false;
  if (opened) {
    entry.reopened = Clock::now();
  } else if (!failure_) {
    failure_ = Error{ErrorKind::kBackend, "device.lost",
                     fmt::format("the device of {} was lost, and the model cannot be opened again: "
                                 "{}",
                                 id, opened.error().ToString())};
  }
  changed_.notify_all();
}

ModelState Models::StateOf(const Entry& entry) const {
  ModelState state{.model = entry.model, .loaded = entry.engine != nullptr, .expires = {}};
  if (entry.keep >= KeepAlive(0)) {
    const auto begin = entry.users > 0 ? Clock::now() : entry.last_used;
    const auto left =
        std::chrono::duration_cast<std::chrono::seconds>(begin + entry.keep - Clock::now());
    state.expires = std::time(nullptr) + static_cast<std::time_t>(left.count());
  }
  return state;
}

ApiResult<ModelState> Models::Find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto named = FindNamed(name);
  if (!named) return tl::unexpected(named.error());
  return StateOf(entries_[named->index]);
}

std::vector<ModelState> Models::All() const {
  const std::lock_guard lock(mutex_);
  std::vector<ModelState> states;
  states.reserve(entries_.size());
  for (const Entry& entry : entries_) states.push_back(StateOf(entry));
  return states;
}

std::vector<ModelSlots> Models::Slots() const {
  const std::lock_guard lock(mutex_);
  std::vector<ModelSlots> models;
  for (const Entry& entry : entries_) {
    if (!entry.engine) continue;
    models.push_back({.id = entry.model.id,
                      .capacity = entry.model.info.capacity,
                      .slots = entry.engine->slots()});
  }
  return models;
}

EngineStats Models::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats sum = closed_;
  for (const Entry& entry : entries_) {
    if (!entry.engine) continue;
    const EngineStats stats = entry.engine->stats();
    AddTotals(sum, stats);
    AddMoment(sum, stats);
  }
  sum.waiting += std::ssize(line_);
  return sum;
}

bool Models::lost() const {
  const std::lock_guard lock(mutex_);
  return failure_ || std::ranges::any_of(entries_, IsLost);
}

std::optional<Error> Models::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Models::StopWaiting() {
  {
    const std::lock_guard lock(mutex_);
    waits_ = false;
  }
  changed_.notify_all();
}

void Models::LookAtLeft() {
  // Whoever has looked already waits by now.
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

}  // namespace rullama::server
