#include "server/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <string_view>
#include <thread>
#include <utility>

#include "core/base/printable.h"
#include "server/answer_parts.h"
#include "server/http/equal_ignoring_case.h"
#include "server/routes.h"

namespace rullama::server {
namespace {

// The time that a wrong key costs, one after another.
constexpr std::chrono::milliseconds kKeyDelay{100};
constexpr size_t kMaxAgentBytes = 64;
constexpr size_t kMaxAskedFields = 50;
// The types of a body that are read as JSON. curl sends a form unless it is told otherwise, scripts
// send plain text, and clients of Ollama, which looks at no type, bytes. Pages of other origins,
// whose browser sends the first two of these without asking, are refused by their Origin.
constexpr std::array<std::string_view, 4> kJsonTypes = {"application/json",
                                                        "application/x-www-form-urlencoded",
                                                        "text/plain", "application/octet-stream"};

std::string_view GivenKey(const HttpRequest& request) {
  constexpr std::string_view kBearer = "bearer ";  // in any case
  std::string_view value = request.authorization;
  const std::string_view scheme = value.substr(0, kBearer.size());
  return EqualIgnoringCase(scheme, kBearer) ? value.substr(kBearer.size())
                                            : std::string_view(request.api_key);
}

// `value`: of Content-Type, which may be missing.
bool IsJsonType(std::string_view value) {
  value = value.substr(0, value.find(';'));
  while (value.ends_with(' ')) value.remove_suffix(1);
  return value.empty() || std::ranges::any_of(kJsonTypes, [value](std::string_view type) {
           return EqualIgnoringCase(type, value);
         });
}

// Whether the names of header fields that a preflight asks for may be given back.
bool AreFieldNames(std::string_view names) {
  return static_cast<size_t>(std::ranges::count(names, ',')) < kMaxAskedFields &&
         std::ranges::all_of(names, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == ',' || c == ' ';
         });
}

// The slots of the models that may be loaded at the same time, at most.
int64_t MaxSlots(const std::vector<ModelState>& models, int64_t max_loaded) {
  std::vector<int64_t> slots;
  slots.reserve(models.size());
  for (const ModelState& state : models) slots.push_back(state.model.info.slots);
  std::ranges::sort(slots, std::greater());
  slots.resize(std::min(slots.size(), static_cast<size_t>(max_loaded)));
  return std::reduce(slots.begin(), slots.end());
}

}  // namespace

Api::Api(std::vector<ServedModel> models, std::shared_ptr<Engine> first, ApiOptions options,
         ApiKeys keys)
    : options_(std::move(options)),
      keys_(std::make_shared<const ApiKeys>(std::move(keys))),
      models_(std::move(models), std::move(first),
              {.aliases = options_.aliases,
               .max_loaded = options_.max_loaded_models,
               .load_timeout = options_.limits.queue_timeout,
               .warn = options_.log},
              metrics_),
      running_([&] {
        RequestLimits limits = options_.limits;
        limits.slots = MaxSlots(models_.All(), options_.max_loaded_models);
        return limits;
      }()),
      services_{options_, models_, metrics_, running_} {}

void Api::Handle(Exchange& exchange) {
  Call call(exchange);
  Answer(call);
  CallRecord& record = call.record();
  metrics_.Add(Counter::kRequests, 1,
               fmt::format("endpoint=\"{}\",code=\"{}\"", record.endpoint, record.status));
  metrics_.Observe(Distribution::kRequestSeconds, SecondsSince(call.begin()));
  if (options_.log) Log(call);
}

void Api::Answer(Call& call) {
  const HttpRequest& request = call.request();
  if (request.method == "OPTIONS" && !request.foreign_origin.empty()) return AnswerPreflight(call);
  const FoundRoute found = FindRoute(request.method, request.path, options_);
  if (found.route != nullptr) {
    call.record().endpoint = found.route->path;
    if (found.route->needs_key && !CheckKey(call)) return;
    if (!IsJsonType(request.content_type)) {
      return call.Fail(MakeApiError("unsupported_media_type",
                                    fmt::format("the body is '{}', expected application/json",
                                                ShownName(request.content_type.substr(0, 64)))));
    }
    // In front of the answer, so that a prompt that ends the server is there too.
    if (options_.log_prompt && !request.body.empty()) LogPrompt(call);
    return found.route->handle(services_, call);
  }
  const std::string path = ShownName(request.path.substr(0, 64));
  if (!found.allowed.empty()) {
    ApiError error =
        MakeApiError("method_not_allowed", fmt::format("'{}' takes {}", path, found.allowed));
    error.fields.push_back({"Allow", found.allowed});
    return call.Fail(error);
  }
  call.Fail(MakeApiError(found.not_implemented ? "not_implemented" : "route_not_found",
                         fmt::format("there is no '{}' on this server; docs/server.md lists what "
                                     "there is",
                                     path)));
}

void Api::AnswerPreflight(Call& call) {
  const HttpRequest& request = call.request();
  HttpAnswer answer{.status = 204, .content_type = "", .body = {}, .fields = {}};
  answer.fields.push_back({"Access-Control-Allow-Methods", "GET, HEAD, POST"});
  if (!request.asked_fields.empty() && AreFieldNames(request.asked_fields)) {
    answer.fields.push_back({"Access-Control-Allow-Headers", request.asked_fields});
  }
  answer.fields.push_back({"Access-Control-Max-Age", "600"});
  call.Send(std::move(answer));
}

void Api::ReplaceKeys(ApiKeys keys) {
  auto replacement = std::make_shared<const ApiKeys>(std::move(keys));
  const std::lock_guard lock(keys_mutex_);
  keys_ = std::move(replacement);
}

std::optional<KeyOwner> Api::OwnerOf(const HttpRequest& request) {
  std::shared_ptr<const ApiKeys> keys;
  {
    const std::lock_guard lock(keys_mutex_);
    keys = keys_;
  }
  if (keys->empty()) return KeyOwner{.client = 0, .name = "-"};
  return keys->Find(GivenKey(request));
}

bool Api::WantsBody(const HttpRequest& head) {
  if (head.method == "OPTIONS" && !head.foreign_origin.empty()) return false;
  const FoundRoute found = FindRoute(head.method, head.path, options_);
  if (found.route == nullptr) return false;
  if (found.route->needs_key && !OwnerOf(head)) return false;
  return IsJsonType(head.content_type);
}

void Api::DelayWrongKey() {
  Clock::time_point turn;
  {
    const std::lock_guard lock(keys_mutex_);
    turn = last_wrong_key_ = std::max(last_wrong_key_, Clock::now()) + kKeyDelay;
  }
  std::this_thread::sleep_until(turn);
}

bool Api::CheckKey(Call& call) {
  if (const auto owner = OwnerOf(call.request())) {
    call.set_client(owner->client);
    call.record().client = owner->name;
    call.set_owner(owner->lasting, owner->without_secret);
    return true;
  }
  metrics_.Add(Counter::kAuthFailures);
  DelayWrongKey();
  ApiError error = MakeApiError(
      "invalid_api_key",
      "the request has no key that this server knows; send 'Authorization: Bearer KEY'");
  error.fields.push_back({"WWW-Authenticate", "Bearer"});
  call.Fail(error);
  return false;
}

void Api::LogPrompt(Call& call) {
  const HttpRequest& request = call.request();
  options_.log_prompt(Dump({{"time", TimeTextNow()},
                            {"id", request.request_id},
                            {"key", call.record().client},
                            {"route", call.record().endpoint},
                            {"body", request.body}}));
}

void Api::Log(Call& call) {
  const CallRecord& record = call.record();
  const HttpRequest& request = call.request();
  options_.log(fmt::format(
      "{} id={} key={} route={} status={} model={} in={} cached={} out={} queue_ms={:.1f} "
      "first_ms={:.1f} total_ms={:.1f} reason={} agent=\"{}\"",
      TimeTextNow(), request.request_id, record.client, record.endpoint, record.status,
      record.model.empty() ? "-" : record.model, record.prompt_tokens, record.cached_tokens,
      record.drawn_tokens, record.queue_seconds * 1e3, record.first_seconds * 1e3,
      SecondsSince(call.begin()) * 1e3, record.reason,
      Printable(request.user_agent.substr(0, kMaxAgentBytes), kMaxAgentBytes)));
}

}  // namespace rullama::server
