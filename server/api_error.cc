#include "server/api_error.h"

#include <algorithm>
#include <array>

namespace rullama::server {
namespace {

using nlohmann::json;

struct CodeRow {
  std::string_view code;
  int status;
  std::string_view type;
};

constexpr std::string_view kInvalid = "invalid_request_error";
constexpr std::string_view kUnavailable = "unavailable_error";

constexpr std::array<CodeRow, 53> kCodes = {{
    {"json.syntax", 400, kInvalid},
    {"json.depth", 400, kInvalid},
    {"json.size", 400, kInvalid},
    {"json.utf8", 400, kInvalid},
    {"json.duplicate_key", 400, kInvalid},
    {"missing_required_parameter", 400, kInvalid},
    {"invalid_type", 400, kInvalid},
    {"invalid_value", 400, kInvalid},
    {"unsupported_parameter", 400, kInvalid},
    {"unsupported_value", 400, kInvalid},
    {"context_length_exceeded", 400, kInvalid},
    {"schema.invalid", 400, kInvalid},
    {"schema.unsupported", 400, kInvalid},
    {"schema.too_large", 400, kInvalid},
    {"slot.empty", 400, kInvalid},
    {"slot.mismatch", 400, kInvalid},
    {"slot.corrupt", 400, kInvalid},
    {"slot.too_long", 400, kInvalid},
    {"bad_request", 400, kInvalid},
    {"invalid_api_key", 401, "authentication_error"},
    {"host_forbidden", 403, "permission_error"},
    {"origin_forbidden", 403, "permission_error"},
    {"tools_forbidden", 403, "permission_error"},
    {"tool_not_found", 404, "not_found_error"},
    {"model_not_found", 404, "not_found_error"},
    {"slot.not_found", 404, "not_found_error"},
    {"route_not_found", 404, "not_found_error"},
    {"method_not_allowed", 405, kInvalid},
    {"request_timeout", 408, kInvalid},
    {"body_too_large", 413, kInvalid},
    {"media.too_large", 413, kInvalid},
    {"uri_too_long", 414, kInvalid},
    {"unsupported_media_type", 415, kInvalid},
    {"header_too_large", 431, kInvalid},
    {"client_left", 0, kInvalid},
    {"queue_full", 429, "rate_limit_error"},
    {"backend.nan", 500, "server_error"},
    {"sampler.empty", 500, "server_error"},
    {"constraint.dead_end", 500, "server_error"},
    {"internal", 500, "server_error"},
    {"not_implemented", 501, "not_supported_error"},
    {"model_loading", 503, kUnavailable},
    {"shutting_down", 503, kUnavailable},
    {"no_free_slot", 503, kUnavailable},
    {"queue_timeout", 503, kUnavailable},
    {"deadline_exceeded", 503, kUnavailable},
    {"device_lost", 503, kUnavailable},
    {"out_of_memory", 503, kUnavailable},
    {"too_many_connections", 503, kUnavailable},
    {"too_many_bodies", 503, kUnavailable},
    {"version_not_supported", 505, kInvalid},
    {"slot.limit", 507, "server_error"},
    {"slot.no_space", 507, "server_error"},
}};

// The codes of the engine's errors that have one of their own.
struct EngineErrorRow {
  std::string_view id;
  std::string_view code;
};
constexpr std::array<EngineErrorRow, 18> kEngineErrors = {{
    {"model.canvas", "unsupported_value"},
    {"model.encoder", "unsupported_value"},
    {"media.too_large", "media.too_large"},
    {"context.overflow", "context_length_exceeded"},
    {"device.lost", "device_lost"},
    {"backend.nan", "backend.nan"},
    {"sampler.empty", "sampler.empty"},
    {"schema.invalid", "schema.invalid"},
    {"schema.unsupported", "schema.unsupported"},
    {"schema.too_large", "schema.too_large"},
    {"constraint.dead_end", "constraint.dead_end"},
    {"slot.empty", "slot.empty"},
    {"slot.mismatch", "slot.mismatch"},
    {"slot.corrupt", "slot.corrupt"},
    {"slot.too_long", "slot.too_long"},
    {"slot.not_found", "slot.not_found"},
    {"slot.limit", "slot.limit"},
    {"slot.no_space", "slot.no_space"},
}};

std::string_view CodeOf(const Error& error) {
  for (const EngineErrorRow& row : kEngineErrors) {
    if (row.id == error.id) return row.code;
  }
  if (error.kind == ErrorKind::kOutOfMemory) return "out_of_memory";
  if (error.kind == ErrorKind::kUsage) return "invalid_value";
  return "internal";
}

// "sampler.top_k is 5, ..." -> "top_k"; "logit_bias has ..." -> "logit_bias".
std::string SettingIn(std::string_view message) {
  constexpr std::string_view kBlock = "sampler.";
  std::string_view setting = message.substr(0, message.find(' '));
  if (setting.starts_with(kBlock)) setting.remove_prefix(kBlock.size());
  return std::string(setting);
}

// The member of the request that an error of the engine is about, if it says so:
// "messages[1].content: expected ..." -> "messages[1].content".
std::optional<std::string> PlaceIn(const Error& error) {
  if (error.id == "sampler.range" || error.id == "sampler.logit_bias") {
    return SettingIn(error.message);
  }
  const std::string_view message = error.message;
  const std::string_view place = message.substr(0, message.find(": "));
  const bool is_place = place.size() < message.size() &&
                        (place.starts_with("messages") || place.starts_with("tools")) &&
                        place.find(' ') == std::string_view::npos;
  return is_place ? std::optional(std::string(place)) : std::nullopt;
}

// The type that Anthropic's API has for a status.
std::string_view AnthropicType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? kInvalid : "api_error";
  }
}

}  // namespace

ApiError MakeApiError(std::string_view code, std::string message,
                      std::optional<std::string> param) {
  const auto* row = std::find_if(kCodes.begin(), kCodes.end(),
                                 [code](const CodeRow& one) { return one.code == code; });
  const bool known = row != kCodes.end();
  ApiError error{.status = known ? row->status : 500,
                 .type = std::string(known ? row->type : "server_error"),
                 .code = std::string(code),
                 .message = std::move(message),
                 .param = std::move(param)};
  if (error.status == 503) error.fields.push_back({"Retry-After", "1"});
  if (error.status == 501 || error.status == 405 || code == "route_not_found") {
    error.fields.push_back({"X-Should-Retry", "false"});  // clients repeat 5xx otherwise
  }
  return error;
}

ApiError OutOfMemory() {
  return MakeApiError(
      "out_of_memory",
      "the system refused the server memory or a thread for this request; try again "
      "later, or raise the limits on processes and memory (ulimit -u, ulimit -v)");
}

ApiError FromEngine(const Error& error) {
  return MakeApiError(CodeOf(error), error.ToString(), PlaceIn(error));
}

Dialect DialectOf(std::string_view path, bool has_version) {
  if (path.starts_with("/api/")) return Dialect::kOllama;
  const auto is_below = [path](std::string_view folder) {
    std::string_view rest = path;
    if (rest.starts_with("/v1/")) rest.remove_prefix(3);
    if (!rest.starts_with(folder)) return false;
    rest.remove_prefix(folder.size());
    return rest.empty() || rest.starts_with('/');
  };
  if (is_below("/messages") || is_below("/complete")) return Dialect::kAnthropic;
  return has_version && is_below("/models") ? Dialect::kAnthropic : Dialect::kOpenAi;
}

json ErrorJson(Dialect dialect, const ApiError& error) {
  json fields = error.extra;
  fields["code"] = error.code;
  if (dialect == Dialect::kOllama) {
    fields["error"] = error.message;
    return fields;
  }
  fields["message"] = error.message;
  fields["param"] = error.param ? json(*error.param) : json(nullptr);
  if (dialect == Dialect::kAnthropic) {
    fields["type"] = AnthropicType(error.status);
    return {{"type", "error"}, {"error", std::move(fields)}};
  }
  fields["type"] = error.type;
  return {{"error", std::move(fields)}};
}

std::string ErrorBody(Dialect dialect, const ApiError& error, std::string_view request_id) {
  json body = ErrorJson(dialect, error);
  if (dialect == Dialect::kAnthropic) body["request_id"] = request_id;
  return Dump(body);
}

void NameRequest(Dialect dialect, const std::string& request_id, std::vector<HeaderField>& fields) {
  if (dialect == Dialect::kAnthropic) fields.push_back({"Request-Id", request_id});
}

std::string Dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace rullama::server
