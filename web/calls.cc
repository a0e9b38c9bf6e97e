#include "web/calls.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <exception>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/json_reader.h"
#include "core/base/printable.h"

namespace rullama::web {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kInteger = "an integer in its range";
constexpr std::string_view kNumber = "a number in its range";

Json ErrorJson(const Error& error) {
  return {{"error",
           {{"id", error.id}, {"kind", static_cast<int>(error.kind)}, {"message", error.message}}}};
}

tl::unexpected<Error> WrongMember(std::string_view name, std::string_view expected) {
  return MakeError(ErrorKind::kUsage, "usage.request", "'{}' is missing or is not {}", name,
                   expected);
}

// Read() takes a value of this type alone; false if it is another, or out of range.
bool Read(const Json& json, bool& value) {
  if (json.is_boolean()) value = json.get<bool>();
  return json.is_boolean();
}

bool Read(const Json& json, std::string& value) {
  if (json.is_string()) value = json.get<std::string>();
  return json.is_string();
}

bool Read(const Json& json, Json& value) {
  if (json.is_object()) value = json;
  return json.is_object();
}

template <std::integral T>
bool Read(const Json& json, T& value) {
  if (!json.is_number_integer()) return false;
  const bool fits = json.is_number_unsigned() ? std::in_range<T>(json.get<uint64_t>())
                                              : std::in_range<T>(json.get<int64_t>());
  if (fits) value = json.get<T>();
  return fits;
}

template <std::floating_point T>
bool Read(const Json& json, T& value) {
  if (!json.is_number()) return false;
  const auto number = json.get<double>();
  const bool fits = std::fabs(number) <= static_cast<double>(std::numeric_limits<T>::max());
  if (fits) value = static_cast<T>(number);
  return fits;
}

template <typename T>
bool Read(const Json& json, std::vector<T>& values) {
  if (!json.is_array()) return false;
  values.clear();
  for (const Json& element : json) {
    if (!Read(element, values.emplace_back())) return false;
  }
  return true;
}

bool Read(const Json& json, std::map<std::string, std::string>& values) {
  if (!json.is_object()) return false;
  for (const auto& [key, text] : json.items()) {
    if (!Read(text, values[key])) return false;
  }
  return true;
}

// Null if there is no member of this name, or if it is null.
const Json* FindMember(const Json& object, std::string_view name) {
  const auto member = object.find(name);
  return member == object.end() || member->is_null() ? nullptr : &*member;
}

// The member of this name; `value` stays as it is if there is none.
template <typename T>
Status ReadMember(const Json& object, std::string_view name, std::string_view expected, T& value) {
  const Json* const member = FindMember(object, name);
  if (member != nullptr && !Read(*member, value)) return WrongMember(name, expected);
  return OkStatus();
}

// The member of this name, which must be there.
template <typename T>
Result<T> Need(const Json& object, std::string_view name, std::string_view expected) {
  if (FindMember(object, name) == nullptr) return WrongMember(name, expected);
  T value{};
  RL_RETURN_IF_ERROR(ReadMember(object, name, expected, value));
  return value;
}

Status CheckMembers(const Json& object, std::span<const std::string_view> known) {
  for (const auto& [name, value] : object.items()) {
    if (std::ranges::find(known, name) != known.end()) continue;
    return MakeError(ErrorKind::kUsage, "usage.request",
                     "there is no member '{}', expected one of: {}", ShownName(name),
                     fmt::join(known, ", "));
  }
  return OkStatus();
}

template <typename Map>
Result<typename Map::iterator> FindHandle(Map& handles, const Json& call, std::string_view name) {
  RL_ASSIGN_OR_RETURN(const auto handle,
                      Need<int64_t>(call, name, "a number that an earlier call gave"));
  const auto found = handles.find(handle);
  if (found == handles.end()) {
    return MakeError(ErrorKind::kUsage, "usage.request", "there is no {} {}", name, handle);
  }
  return found;
}

// The text of a JSON value; empty if there is none.
std::string TextOf(const Json& object, const char* name) {
  const Json* const member = FindMember(object, name);
  return member == nullptr ? std::string() : member->dump();
}

Status ReadMedia(const Json& json, Request& request) {
  std::vector<Json> media;
  RL_RETURN_IF_ERROR(ReadMember(json, "media", "a list of objects", media));
  for (const Json& one : media) {
    static constexpr std::string_view kMembers[] = {"kind", "path"};
    RL_RETURN_IF_ERROR(CheckMembers(one, kMembers));
    Medium medium;
    RL_ASSIGN_OR_RETURN(const auto kind,
                        Need<std::string>(one, "kind", "\"picture\" or \"sound\""));
    if (kind != "picture" && kind != "sound")
      return WrongMember("kind", "\"picture\" or \"sound\"");
    medium.kind = kind == "picture" ? MediaKind::kPicture : MediaKind::kSound;
    RL_ASSIGN_OR_RETURN(medium.path, Need<std::string>(one, "path", "the path of a file"));
    request.media.push_back(std::move(medium));
  }
  return OkStatus();
}

Status ReadSampling(const Json& json, SamplingOptions& sampling) {
  const auto read = [&json](std::string_view name, auto& setting) -> Status {
    if (FindMember(json, name) == nullptr) return OkStatus();
    using Value = typename std::remove_reference_t<decltype(setting)>::value_type;
    constexpr bool kWhole = std::integral<Value>;
    RL_ASSIGN_OR_RETURN(setting, Need<Value>(json, name, kWhole ? kInteger : kNumber));
    return OkStatus();
  };
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) \
  RL_RETURN_IF_ERROR(read(#name, sampling.name));
#include <rullama/config/sampler_settings.def>
  return read("seed", sampling.seed);
}

Result<Request> ReadRequest(const Json& json) {
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) #name,
  static constexpr std::string_view kMembers[] = {"messages",   "tools", "json_schema", "prompt",
                                                  "max_tokens", "stop",  "thinking",    "media",
#include <rullama/config/sampler_settings.def>
                                                  "seed"};
  RL_RETURN_IF_ERROR(CheckMembers(json, kMembers));
  Request request;
  request.messages = TextOf(json, "messages");
  request.tools = TextOf(json, "tools");
  request.json_schema = TextOf(json, "json_schema");
  RL_RETURN_IF_ERROR(ReadMember(json, "prompt", "a text", request.prompt));
  RL_RETURN_IF_ERROR(ReadMember(json, "max_tokens", kInteger, request.max_tokens));
  RL_RETURN_IF_ERROR(ReadMember(json, "stop", "a list of texts", request.stop));
  if (FindMember(json, "thinking") != nullptr) {
    RL_ASSIGN_OR_RETURN(request.thinking, Need<bool>(json, "thinking", "true or false"));
  }
  RL_RETURN_IF_ERROR(ReadMedia(json, request));
  RL_RETURN_IF_ERROR(ReadSampling(json, request.sampling));
  return request;
}

Json CallJson(const ToolCall& call) {
  return {{"name", call.name}, {"arguments", Json::parse(call.arguments)}};
}

Json EventJson(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kProgress:
      return {{"kind", "progress"}, {"done", event.done}, {"total", event.total}};
    case Event::Kind::kText:
      return {{"kind", "text"}, {"text", event.text}};
    case Event::Kind::kThinking:
      return {{"kind", "thinking"}, {"text", event.text}};
    case Event::Kind::kToolCall:
      return {{"kind", "tool_call"}, {"call", CallJson(event.call)}};
    case Event::Kind::kDraft:
      return {
          {"kind", "draft"}, {"text", event.text}, {"done", event.done}, {"total", event.total}};
  }
  return nullptr;
}

Json CompletionJson(const Completion& answer) {
  Json calls = Json::array();
  for (const ToolCall& call : answer.tool_calls) calls.push_back(CallJson(call));
  return {{"text", answer.text},
          {"thoughts", answer.thoughts},
          {"tool_calls", std::move(calls)},
          {"reason", NameOf(answer.reason)},
          {"seed", answer.seed},
          {"prompt_tokens", answer.prompt_tokens},
          {"cached_tokens", answer.cached_tokens},
          {"tokens", answer.ids.size()},
          {"prompt_seconds", answer.prompt_seconds},
          {"generate_seconds", answer.generate_seconds}};
}

Json InfoJson(const ModelInfo& info) {
  return {{"architecture", info.architecture},
          {"backend", info.backend},
          {"device", info.device},
          {"context_length", info.context_length},
          {"capacity", info.capacity},
          {"vocabulary", info.vocabulary},
          {"parameters", info.parameters},
          {"file_bytes", info.file_bytes},
          {"quantization", info.quantization},
          {"embedding_width", info.embedding_width},
          {"encodes", info.encodes},
          {"takes_pictures", info.takes_pictures},
          {"takes_sound", info.takes_sound},
          {"load_seconds", info.load_seconds}};
}

// Bytes that are not UTF-8, as of tokens of a part of a character, become replacement characters.
std::string Written(const Json& answer) {
  return answer.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

// Reads an answer on a thread of its own, whether its events are asked for or not.
class Calls::Reader {
 public:
  // `engine`: the handle of its engine.
  Reader(int64_t engine, Generation generation)
      : engine_(engine), generation_(std::move(generation)), thread_([this] { ReadAll(); }) {}
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { Cancel(); }

  [[nodiscard]] int64_t engine() const { return engine_; }
  // The events since the last call; nothing after the last one. Errors: those of Generation::Next.
  Result<std::optional<std::vector<Event>>> Take() {
    const std::lock_guard lock(mutex_);
    if (!events_.empty() || !over_) return std::exchange(events_, {});
    if (error_) return tl::unexpected(*error_);
    return std::nullopt;
  }
  // From any thread.
  void Cancel() { generation_.Cancel(); }
  const Completion& Finish() {
    Cancel();
    if (thread_.joinable()) thread_.join();
    return generation_.completion();
  }

 private:
  void ReadAll() {
    while (ReadOne()) continue;
  }

  // False after the last event.
  bool ReadOne() {
    Result<std::optional<Event>> event = NextEvent();
    const std::lock_guard lock(mutex_);
    if (event && *event) {
      events_.push_back(**std::move(event));
      return true;
    }
    if (!event) error_ = std::move(event).error();
    over_ = true;
    return false;
  }

  Result<std::optional<Event>> NextEvent() {
    try {
      return generation_.Next();
    } catch (const std::bad_alloc&) {
      return MakeError(ErrorKind::kOutOfMemory, "memory.host", "there is not enough memory");
    } catch (const std::exception& failure) {
      return MakeError(ErrorKind::kRuntime, "run.exception", "{}", failure.what());
    }
  }

  int64_t engine_;
  Generation generation_;
  std::mutex mutex_;  // guards what follows
  std::vector<Event> events_;
  std::optional<Error> error_;
  bool over_ = false;
  std::jthread thread_;
};

// One function for each call.
struct Calls::Handlers {
  Calls& calls;

  Result<Json> Open(const Json& call) const {
    EngineOptions options;
    options.backend = "cpu";
    options.log = calls.log_;
    RL_ASSIGN_OR_RETURN(options.model, Need<std::string>(call, "model", "the path of a file"));
    std::map<std::string, std::string> settings;
    RL_RETURN_IF_ERROR(ReadMember(call, "settings", "an object of texts", settings));
    for (const auto& [key, value] : settings) options.settings.push_back({key, value});
    RL_ASSIGN_OR_RETURN(auto engine, Engine::Open(options));
    const int64_t handle = calls.next_handle_++;
    Json value = {{"engine", handle}, {"info", InfoJson(engine->info())}};
    calls.engines_.emplace(handle, std::move(engine));
    return value;
  }

  Result<Json> Close(const Json& call) const {
    RL_ASSIGN_OR_RETURN(const auto engine, FindHandle(calls.engines_, call, "engine"));
    for (const auto& [handle, reader] : calls.generations_) {
      if (reader->engine() == engine->first) reader->Cancel();
    }
    calls.engines_.erase(engine);
    return Json();
  }

  Result<Json> Tokenize(const Json& call) const {
    RL_ASSIGN_OR_RETURN(const auto engine, FindHandle(calls.engines_, call, "engine"));
    RL_ASSIGN_OR_RETURN(const auto text, Need<std::string>(call, "text", "a text"));
    return engine->second->Tokenize(text).map([](auto ids) { return Json(std::move(ids)); });
  }

  Result<Json> Detokenize(const Json& call) const {
    RL_ASSIGN_OR_RETURN(const auto engine, FindHandle(calls.engines_, call, "engine"));
    RL_ASSIGN_OR_RETURN(const auto ids, Need<std::vector<int32_t>>(call, "ids", "a list of ids"));
    return engine->second->Detokenize(ids).map([](auto text) { return Json(std::move(text)); });
  }

  Result<Json> Embed(const Json& call) const {
    RL_ASSIGN_OR_RETURN(const auto engine, FindHandle(calls.engines_, call, "engine"));
    RL_ASSIGN_OR_RETURN(const auto text, Need<std::string>(call, "text", "a text"));
    EmbeddingOptions options;
    RL_RETURN_IF_ERROR(ReadMember(call, "task", "a text", options.task));
    RL_RETURN_IF_ERROR(ReadMember(call, "dimensions", kInteger, options.dimensions));
    return engine->second->Embed(text, options).map([](auto row) { return Json(std::move(row)); });
  }

  Result<Json> Submit(const Json& call) const {
    RL_ASSIGN_OR_RETURN(const auto engine, FindHandle(calls.engines_, call, "engine"));
    RL_ASSIGN_OR_RETURN(const auto json, Need<Json>(call, "request", "an object"));
    RL_ASSIGN_OR_RETURN(const Request request, ReadRequest(json));
    RL_ASSIGN_OR_RETURN(Generation generation, engine->second->Submit(request));
    const int64_t handle = calls.next_handle_++;
    Json value = {{"generation", handle}, {"prompt_tokens", generation.completion().prompt_tokens}};
    auto reader = std::make_unique<Reader>(engine->first, std::move(generation));
    const std::lock_guard lock(calls.mutex_);
    calls.generations_.emplace(handle, std::move(reader));
    return value;
  }

  Result<Json> Next(const Json& call) const {
    RL_ASSIGN_OR_RETURN(const auto generation, FindHandle(calls.generations_, call, "generation"));
    RL_ASSIGN_OR_RETURN(const auto events, generation->second->Take());
    if (!events) return Json();
    Json list = Json::array();
    for (const Event& event : *events) list.push_back(EventJson(event));
    return list;
  }

  Result<Json> Cancel(const Json& call) const {
    RL_ASSIGN_OR_RETURN(const auto generation, FindHandle(calls.generations_, call, "generation"));
    generation->second->Cancel();
    return Json();
  }

  Result<Json> Finish(const Json& call) const {
    RL_ASSIGN_OR_RETURN(const auto generation, FindHandle(calls.generations_, call, "generation"));
    Json answer = CompletionJson(generation->second->Finish());
    const std::lock_guard lock(calls.mutex_);
    calls.generations_.erase(generation);
    return answer;
  }

  struct Known {
    std::string_view name;
    Result<Json> (Handlers::*handler)(const Json&) const;
    std::vector<std::string_view> members;
  };

  [[nodiscard]] Result<Json> Run(const Json& call) const {
    static const std::vector<Known> kCalls = {
        {"open", &Handlers::Open, {"call", "model", "settings"}},
        {"close", &Handlers::Close, {"call", "engine"}},
        {"tokenize", &Handlers::Tokenize, {"call", "engine", "text"}},
        {"detokenize", &Handlers::Detokenize, {"call", "engine", "ids"}},
        {"embed", &Handlers::Embed, {"call", "engine", "text", "task", "dimensions"}},
        {"submit", &Handlers::Submit, {"call", "engine", "request"}},
        {"next", &Handlers::Next, {"call", "generation"}},
        {"cancel", &Handlers::Cancel, {"call", "generation"}},
        {"finish", &Handlers::Finish, {"call", "generation"}},
    };
    constexpr std::string_view kExpected = "the name of a call";
    RL_ASSIGN_OR_RETURN(const auto name, Need<std::string>(call, "call", kExpected));
    const auto known = std::ranges::find(kCalls, name, &Known::name);
    if (known == kCalls.end()) return WrongMember("call", kExpected);
    RL_RETURN_IF_ERROR(CheckMembers(call, known->members));
    return (this->*known->handler)(call);
  }

  [[nodiscard]] Json Answer(std::string_view call) const {
    const auto json = ReadOrderedJson(call);
    if (!json) {
      return ErrorJson({ErrorKind::kUsage, "usage.request", "the call " + json.error().ToString()});
    }
    auto value = Run(*json);
    return value ? Json{{"value", *std::move(value)}} : ErrorJson(value.error());
  }
};

Calls::Calls(std::function<void(LogLevel, std::string_view)> log) : log_(std::move(log)) {}
Calls::~Calls() = default;

std::string Calls::Run(std::string_view call) {
  // The last resort: no memory is taken but for the text itself.
  constexpr const char* kNoMemory =
      R"({"error":{"id":"memory.host","kind":5,"message":"there is not enough memory"}})";
  static_assert(static_cast<int>(ErrorKind::kOutOfMemory) == 5);
  try {
    try {
      return Written(Handlers{*this}.Answer(call));
    } catch (const std::bad_alloc&) {
      return kNoMemory;
    } catch (const std::exception& failure) {
      return Written(ErrorJson({ErrorKind::kRuntime, "run.exception", failure.what()}));
    }
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  }
}

void Calls::Cancel(int64_t generation) {
  const std::lock_guard lock(mutex_);
  const auto found = generations_.find(generation);
  if (found != generations_.end()) found->second->Cancel();
}

}  // namespace rullama::web
