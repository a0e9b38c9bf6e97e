#include "server/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/printable.h"
#include "server/answer_shape.h"
#include "server/chat_request.h"
#include "server/field_reader.h"
#include "server/json_body.h"

namespace rullama::server {
namespace {

using nlohmann::json;

constexpr size_t kMaxInputs = 256;
constexpr size_t kMaxIgnoredNames = 20;

// Paths of both APIs that this server does not have; "/*" stands for whatever follows.
constexpr std::string_view kNotHere[] = {
    "/v1/images/*",        "/v1/audio/*",       "/v1/files/*",      "/v1/uploads/*",
    "/v1/batches/*",       "/v1/fine_tuning/*", "/v1/assistants/*", "/v1/threads/*",
    "/v1/vector_stores/*", "/v1/moderations/*", "/v1/realtime/*",   "/v1/conversations/*",
    "/v1/messages/*",      "/v1/rerank/*",      "/v1/responses/*",  "/api/*",
};

bool Matches(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with("/*")) return pattern == path;
  pattern.remove_suffix(2);
  return path.starts_with(pattern) &&
         (path.size() == pattern.size() || path[pattern.size()] == '/');
}

HttpAnswer JsonAnswer(std::string body) {
  return {.status = 200, .content_type = "application/json", .body = std::move(body), .fields = {}};
}

void SendError(Exchange& exchange, const ApiError& error) {
  HttpAnswer answer = JsonAnswer(OpenAiBody(error));
  answer.status = error.status;
  if (error.status == 429 || error.status == 503) answer.fields.push_back({"Retry-After", "1"});
  exchange.Send(std::move(answer));
}

// X-Rullama-Ignored, if there is something to name.
std::vector<HeaderField> IgnoredFields(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMaxIgnoredNames); ++i) {
    std::string name = names[i].substr(0, 64);
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c <= ' ' || c > '~' || c == ','; }, '?');
    list += (i == 0 ? "" : ", ") + name;
  }
  return {{"X-Rullama-Ignored", list}};
}

// The number of tokens of the thoughts, which are part of what was drawn.
int64_t ThoughtTokens(const Engine& engine, const Completion& answer) {
  if (answer.thoughts.empty()) return 0;
  const auto ids = engine.Tokenize(answer.thoughts, false);
  return ids ? static_cast<int64_t>(ids->size()) : 0;
}

// Writes an answer as it comes. The status goes out with the first event, when the request has a
// slot: what is refused before has a status of its own.
class StreamedAnswer {
 public:
  StreamedAnswer(Exchange& exchange, const AnswerShape& shape, bool usage,
                 std::vector<HeaderField> fields)
      : exchange_(exchange), shape_(shape), usage_(usage), fields_(std::move(fields)) {
    fields_.push_back({"Cache-Control", "no-cache"});
  }

  bool Add(const Event& event) {
    if (!Begin()) return false;
    const bool sent = exchange_.Write(shape_.Part(event, calls_, usage_));
    if (event.kind == Event::Kind::kToolCall) ++calls_;
    return sent;
  }
  void Fail(const Error& error) {
    if (!begun_) return SendError(exchange_, FromEngine(error));
    exchange_.Write("data: " + OpenAiBody(FromEngine(error)) + "\n\n");
    exchange_.End();
  }
  void Finish(const Completion& answer, int64_t thought_tokens) {
    if (Begin() && exchange_.Write(shape_.Last(answer, thought_tokens, usage_))) exchange_.End();
  }

 private:
  bool Begin() {
    if (begun_) return true;
    begun_ = true;
    return exchange_.Begin({.status = 200,
                            .content_type = "text/event-stream; charset=utf-8",
                            .body = {},
                            .fields = fields_}) &&
           exchange_.Write(shape_.First(usage_));
  }

  Exchange& exchange_;
  const AnswerShape& shape_;
  bool usage_;
  std::vector<HeaderField> fields_;
  bool begun_ = false;
  int64_t calls_ = 0;
};

// Counts a request for as long as it lives.
class Running {
 public:
  explicit Running(std::atomic<int64_t>& count) : count_(count) { ++count_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() { --count_; }

 private:
  std::atomic<int64_t>& count_;
};

// `input` of /v1/embeddings: a text or a list of texts.
std::vector<std::string> ReadInputs(FieldReader& fields) {
  const json* input = fields.Find("input");
  std::vector<std::string> texts;
  if (input == nullptr) {
    fields.Fail("missing_required_parameter", "input", "is missing; give a text");
    return texts;
  }
  const json list = input->is_array() ? *input : json::array({*input});
  if (list.empty() || list.size() > kMaxInputs) {
    fields.Fail("invalid_value", "input",
                fmt::format("has {} texts, expected 1 to {}", list.size(), kMaxInputs));
  }
  for (const json& text : list) {
    if (text.is_number() || text.is_array()) {
      fields.Fail("not_implemented", "input", "has token ids, which this server does not read yet");
    } else if (!text.is_string()) {
      fields.Fail("invalid_type", "input", "is no text and no list of texts");
    } else if (text.get_ref<const std::string&>().empty()) {
      fields.Fail("invalid_value", "input", "has an empty text");
    } else {
      texts.push_back(text.get<std::string>());
    }
    if (fields.error()) break;
  }
  return texts;
}

// Little-endian binary32 in base64, as the clients of OpenAI ask for.
std::string Base64(const std::vector<float>& values) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (size_t k = 0; k < 4; ++k) {
      text.push_back(i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=');
    }
  }
  return text;
}

// The first `dimensions` numbers, scaled to length 1 again.
void Shorten(std::vector<float>& values, size_t dimensions) {
  if (dimensions >= values.size()) return;
  values.resize(dimensions);
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  if (squares == 0) return;
  for (float& value : values) value = static_cast<float>(value / std::sqrt(squares));
}

}  // namespace

struct Api::Route {
  std::string_view method;
  std::string_view path;
  void (Api::*handle)(Exchange&);
};

const Api::Route Api::kRoutes[] = {
    {"GET", "/health", &Api::Health},
    {"GET", "/v1/health", &Api::Health},
    {"GET", "/v1/models", &Api::Models},
    {"GET", "/v1/models/*", &Api::Model},
    {"POST", "/v1/chat/completions", &Api::ChatCompletions},
    {"POST", "/v1/completions", &Api::Completions},
    {"POST", "/v1/embeddings", &Api::Embeddings},
    {"POST", "/tokenize", &Api::Tokenize},
    {"POST", "/detokenize", &Api::Detokenize},
};

Api::Api(std::shared_ptr<Engine> engine, ApiOptions options)
    : engine_(std::move(engine)), options_(std::move(options)) {}

void Api::Handle(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  const std::string_view method =
      request.method == "HEAD" ? "GET" : std::string_view(request.method);
  std::string allowed;
  for (const Route& route : kRoutes) {
    if (!Matches(route.path, request.path)) continue;
    if (route.method == method) return (this->*route.handle)(exchange);
    allowed = route.method == "GET" ? "GET, HEAD" : route.method;
  }
  if (!allowed.empty()) {
    HttpAnswer answer = JsonAnswer(OpenAiBody(MakeApiError(
        "method_not_allowed", fmt::format("{} takes {}", ShownName(request.path), allowed))));
    answer.status = 405;
    answer.fields.push_back({"Allow", allowed});
    exchange.Send(std::move(answer));
    return;
  }
  const bool known = std::any_of(std::begin(kNotHere), std::end(kNotHere),
                                 [&](std::string_view one) { return Matches(one, request.path); });
  SendError(exchange,
            MakeApiError(known ? "not_implemented" : "route_not_found",
                         fmt::format("there is no '{}' on this server; docs/server.md lists what "
                                     "there is",
                                     ShownName(request.path.substr(0, 64)))));
}

ApiResult<void> Api::CheckModel(const std::string& model) const {
  const std::string_view name = model;
  const auto bare = [](std::string_view id) {
    return id.ends_with(":latest") ? id.substr(0, id.size() - 7) : id;
  };
  if (name.empty() || bare(name) == bare(options_.model_id)) return {};
  return tl::unexpected(MakeApiError("model_not_found",
                                     fmt::format("there is no model '{}'; this server has '{}'",
                                                 ShownName(name.substr(0, 64)), options_.model_id),
                                     "model"));
}

ApiResult<void> Api::CheckLoad() const {
  if (draining_) {
    return tl::unexpected(MakeApiError("shutting_down", "the server is shutting down"));
  }
  if (running_ < engine_->info().slots + options_.max_queue) return {};
  return tl::unexpected(MakeApiError(
      "queue_full",
      fmt::format("{} requests are waiting, the limit; try again later", options_.max_queue)));
}

void Api::Health(Exchange& exchange) {
  if (draining_) {
    return SendError(exchange, MakeApiError("shutting_down", "the server is shutting down"));
  }
  exchange.Send(JsonAnswer(R"({"status":"ok"})"));
}

namespace {
json ModelEntry(const ApiOptions& options) {
  return {{"id", options.model_id},
          {"object", "model"},
          {"created", static_cast<int64_t>(options.model_time)},
          {"owned_by", "rullama"}};
}
}  // namespace

void Api::Models(Exchange& exchange) {
  exchange.Send(
      JsonAnswer(Dump({{"object", "list"}, {"data", json::array({ModelEntry(options_)})}})));
}

void Api::Model(Exchange& exchange) {
  const std::string id = exchange.request().path.substr(std::string_view("/v1/models").size());
  const auto found = CheckModel(id.size() > 1 ? id.substr(1) : "/");
  if (!found) return SendError(exchange, found.error());
  exchange.Send(JsonAnswer(Dump(ModelEntry(options_))));
}

void Api::ChatCompletions(Exchange& exchange) { Complete(exchange, true); }
void Api::Completions(Exchange& exchange) { Complete(exchange, false); }

void Api::Complete(Exchange& exchange, bool chat) {
  const auto body = ParseBody(exchange.request().body);
  if (!body) return SendError(exchange, body.error());
  const auto request = chat ? ReadChatRequest(*body) : ReadTextRequest(*body);
  if (!request) return SendError(exchange, request.error());
  if (const auto model = CheckModel(request->model); !model) {
    return SendError(exchange, model.error());
  }
  if (const auto load = CheckLoad(); !load) return SendError(exchange, load.error());
  const Running running(running_);
  auto generation = engine_->Submit(request->request);
  if (!generation) {
    ApiError error = FromEngine(generation.error());
    if (error.code == "invalid_value") error.param = chat ? "messages" : "prompt";
    return SendError(exchange, error);
  }
  exchange.OnLeave([&generation] { generation->Cancel(); });
  const AnswerShape shape(chat, options_.model_id,
                          fmt::format("rullama-{}-{}", options_.version, engine_->info().backend));
  if (!request->stream) {
    const auto answer = generation->Wait();
    exchange.OnLeave({});
    if (!answer) return SendError(exchange, FromEngine(answer.error()));
    HttpAnswer whole = JsonAnswer(shape.Whole(*answer, ThoughtTokens(*engine_, *answer)));
    whole.fields = IgnoredFields(request->ignored);
    exchange.Send(std::move(whole));
    return;
  }
  StreamedAnswer stream(exchange, shape, request->include_usage, IgnoredFields(request->ignored));
  const auto answer = generation->Wait([&](const Event& event) { return stream.Add(event); });
  exchange.OnLeave({});
  if (!answer) return stream.Fail(answer.error());
  if (answer->reason == StopReason::kCancelled) return;  // there is nobody to tell
  stream.Finish(*answer, ThoughtTokens(*engine_, *answer));
}

void Api::Embeddings(Exchange& exchange) {
  const auto body = ParseBody(exchange.request().body);
  if (!body) return SendError(exchange, body.error());
  FieldReader fields(*body);
  const auto model = CheckModel(fields.Text("model").value_or(""));
  const std::vector<std::string> texts = ReadInputs(fields);
  const auto format = fields.Text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    fields.Fail("invalid_value", "encoding_format", "is none of float, base64");
  }
  const auto dimensions = fields.Integer("dimensions", 1, engine_->info().width);
  fields.Find("user");
  if (fields.error()) return SendError(exchange, *fields.error());
  if (!model) return SendError(exchange, model.error());
  if (const auto load = CheckLoad(); !load) return SendError(exchange, load.error());
  const Running running(running_);
  json data = json::array();
  int64_t tokens = 0;
  for (const std::string& text : texts) {
    const auto ids = engine_->Tokenize(text, false, true);
    auto values = engine_->Embed(text);
    if (!values) return SendError(exchange, FromEngine(values.error()));
    tokens += ids ? static_cast<int64_t>(ids->size()) : 0;
    if (dimensions) Shorten(*values, static_cast<size_t>(*dimensions));
    json entry = {{"object", "embedding"}, {"index", data.size()}};
    entry["embedding"] = format == "base64" ? json(Base64(*values)) : json(*values);
    data.push_back(std::move(entry));
  }
  HttpAnswer answer =
      JsonAnswer(Dump({{"object", "list"},
                       {"data", std::move(data)},
                       {"model", options_.model_id},
                       {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}}));
  answer.fields = IgnoredFields(fields.Unknown());
  exchange.Send(std::move(answer));
}

void Api::Tokenize(Exchange& exchange) {
  const auto body = ParseBody(exchange.request().body);
  if (!body) return SendError(exchange, body.error());
  FieldReader fields(*body);
  const auto text = fields.Text("content");
  const bool add_bos = fields.Boolean("add_special").value_or(false);
  const bool parse_special = fields.Boolean("parse_special").value_or(true);
  if (fields.Boolean("with_pieces").value_or(false)) {
    fields.Fail("not_implemented", "with_pieces", "is not there yet; leave it out");
  }
  if (!text) fields.Fail("missing_required_parameter", "content", "is missing; give a text");
  if (fields.error()) return SendError(exchange, *fields.error());
  const auto ids = engine_->Tokenize(*text, parse_special, add_bos);
  if (!ids) return SendError(exchange, FromEngine(ids.error()));
  HttpAnswer answer = JsonAnswer(Dump({{"tokens", *ids}}));
  answer.fields = IgnoredFields(fields.Unknown());
  exchange.Send(std::move(answer));
}

void Api::Detokenize(Exchange& exchange) {
  const auto body = ParseBody(exchange.request().body);
  if (!body) return SendError(exchange, body.error());
  FieldReader fields(*body);
  std::vector<int32_t> ids;
  const json* tokens = fields.Find("tokens");
  if (tokens == nullptr) {
    fields.Fail("missing_required_parameter", "tokens", "is missing; give a list of token ids");
  } else if (!tokens->is_array()) {
    fields.Fail("invalid_type", "tokens", "is no list of token ids");
  } else {
    for (const json& id : *tokens) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() > 0x7FFFFFFF) {
        fields.Fail("invalid_type", "tokens", "has an element that is no token id");
        break;
      }
      ids.push_back(id.get<int32_t>());
    }
  }
  if (fields.error()) return SendError(exchange, *fields.error());
  const auto text = engine_->Detokenize(ids, true);
  if (!text) return SendError(exchange, FromEngine(text.error()));
  HttpAnswer answer = JsonAnswer(Dump({{"content", *text}}));
  answer.fields = IgnoredFields(fields.Unknown());
  exchange.Send(std::move(answer));
}

}  // namespace rullama::server
