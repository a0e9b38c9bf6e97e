#include "web/calls.h"

#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/json_reader.h"

namespace rullama::web {
namespace {

using Json = nlohmann::ordered_json;

Json ErrorJson(const Error& error) {
  return {{"error",
           {{"id", error.id}, {"kind", static_cast<int>(error.kind)}, {"message", error.message}}}};
}

tl::unexpected<Error> WrongMember(std::string_view name, std::string_view expected) {
  return MakeError(ErrorKind::kUsage, "usage.request", "'{}' is missing or not {}", name, expected);
}

// The member of this name; `value` stays as it is if there is none.
template <typename T>
Status ReadMember(const Json& object, const char* name, std::string_view expected, T& value) {
  const auto member = object.find(name);
  if (member == object.end() || member->is_null()) return OkStatus();
  try {
    value = member->get<T>();
  } catch (const Json::exception&) {
    return WrongMember(name, expected);
  }
  return OkStatus();
}

// The member of this name, which must be there.
template <typename T>
Result<T> Need(const Json& object, const char* name, std::string_view expected) {
  std::optional<T> value;
  const auto member = object.find(name);
  if (member != object.end() && !member->is_null()) {
    T read{};
    RL_RETURN_IF_ERROR(ReadMember(object, name, expected, read));
    value = std::move(read);
  }
  if (!value) return WrongMember(name, expected);
  return *std::move(value);
}

template <typename Map>
Result<typename Map::iterator> FindHandle(Map& handles, const Json& call, const char* name) {
  RL_ASSIGN_OR_RETURN(const auto handle, Need<int64_t>(call, name, "the number of one"));
  const auto found = handles.find(handle);
  if (found == handles.end()) {
    return MakeError(ErrorKind::kUsage, "usage.request", "there is no {} {}: it was closed", name,
                     handle);
  }
  return found;
}

// The text of a JSON value; empty if there is none.
std::string TextOf(const Json& object, const char* name) {
  const auto member = object.find(name);
  return member == object.end() || member->is_null() ? std::string() : member->dump();
}

Status ReadMedia(const Json& json, Request& request) {
  const auto media = json.find("media");
  if (media == json.end()) return OkStatus();
  for (const Json& one : *media) {
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
  const auto read = [&json](const char* name, auto& setting) -> Status {
    typename std::remove_reference_t<decltype(setting)>::value_type value{};
    const auto member = json.find(name);
    if (member == json.end() || member->is_null()) return OkStatus();
    RL_RETURN_IF_ERROR(ReadMember(json, name, "a number", value));
    setting = value;
    return OkStatus();
  };
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) \
  RL_RETURN_IF_ERROR(read(#name, sampling.name));
#include <rullama/config/sampler_settings.def>
  return read("seed", sampling.seed);
}

Result<Request> ReadRequest(const Json& json) {
  Request request;
  request.messages = TextOf(json, "messages");
  request.tools = TextOf(json, "tools");
  request.json_schema = TextOf(json, "json_schema");
  RL_RETURN_IF_ERROR(ReadMember(json, "prompt", "a text", request.prompt));
  RL_RETURN_IF_ERROR(ReadMember(json, "max_tokens", "an integer", request.max_tokens));
  RL_RETURN_IF_ERROR(ReadMember(json, "stop", "a list of texts", request.stop));
  if (json.contains("thinking")) {
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

}  // namespace

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
    RL_RETURN_IF_ERROR(ReadMember(call, "dimensions", "an integer", options.dimensions));
    return engine->second->Embed(text, options).map([](auto row) { return Json(std::move(row)); });
  }

  Result<Json> Submit(const Json& call) const {
    RL_ASSIGN_OR_RETURN(const auto engine, FindHandle(calls.engines_, call, "engine"));
    RL_ASSIGN_OR_RETURN(const auto json, Need<Json>(call, "request", "an object"));
    RL_ASSIGN_OR_RETURN(const Request request, ReadRequest(json));
    RL_ASSIGN_OR_RETURN(Generation generation, engine->second->Submit(request));
    const int64_t handle = calls.next_handle_++;
    Json value = {{"generation", handle}, {"prompt_tokens", generation.completion().prompt_tokens}};
    calls.generations_.emplace(handle, std::move(generation));
    return value;
  }

  Result<Json> Next(const Json& call) const {
    RL_ASSIGN_OR_RETURN(const auto generation, FindHandle(calls.generations_, call, "generation"));
    RL_ASSIGN_OR_RETURN(const auto event, generation->second.Next());
    return event ? EventJson(*event) : Json();
  }

  Result<Json> Cancel(const Json& call) const {
    RL_ASSIGN_OR_RETURN(const auto generation, FindHandle(calls.generations_, call, "generation"));
    generation->second.Cancel();
    return Json();
  }

  Result<Json> Finish(const Json& call) const {
    RL_ASSIGN_OR_RETURN(const auto generation, FindHandle(calls.generations_, call, "generation"));
    Json answer = CompletionJson(generation->second.completion());
    calls.generations_.erase(generation);
    return answer;
  }

  [[nodiscard]] Result<Json> Run(const Json& call) const {
    static constexpr std::pair<std::string_view, Result<Json> (Handlers::*)(const Json&) const>
        kHandlers[] = {
            {"open", &Handlers::Open},         {"close", &Handlers::Close},
            {"tokenize", &Handlers::Tokenize}, {"detokenize", &Handlers::Detokenize},
            {"embed", &Handlers::Embed},       {"submit", &Handlers::Submit},
            {"next", &Handlers::Next},         {"cancel", &Handlers::Cancel},
            {"finish", &Handlers::Finish},
        };
    RL_ASSIGN_OR_RETURN(const auto name, Need<std::string>(call, "call", "the name of one"));
    for (const auto& [known, handler] : kHandlers) {
      if (known == name) return (this->*handler)(call);
    }
    return WrongMember("call", "the name of one");
  }
};

std::string Calls::Run(std::string_view call) {
  Json answer;
  try {
    const auto json = ReadOrderedJson(call);
    if (!json) {
      answer =
          ErrorJson({ErrorKind::kUsage, "usage.request", "the call " + json.error().ToString()});
    } else {
      auto value = Handlers{*this}.Run(*json);
      answer = value ? Json{{"value", *std::move(value)}} : ErrorJson(value.error());
    }
  } catch (const std::bad_alloc&) {
    answer = ErrorJson({ErrorKind::kOutOfMemory, "memory.host", "there is not enough memory"});
  } catch (const std::exception& failure) {
    answer = ErrorJson({ErrorKind::kRuntime, "run.exception", failure.what()});
  }
  return answer.dump();
}

}  // namespace rullama::web
