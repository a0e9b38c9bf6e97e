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

constexpr std::array<CodeRow, 34> kCodes = {{
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
    {"bad_request", 400, kInvalid},
    {"invalid_api_key", 401, "authentication_error"},
    {"host_forbidden", 403, "permission_error"},
    {"origin_forbidden", 403, "permission_error"},
    {"model_not_found", 404, "not_found_error"},
    {"route_not_found", 404, "not_found_error"},
    {"method_not_allowed", 405, kInvalid},
    {"request_timeout", 408, kInvalid},
    {"body_too_large", 413, kInvalid},
    {"uri_too_long", 414, kInvalid},
    {"unsupported_media_type", 415, kInvalid},
    {"header_too_large", 431, kInvalid},
    {"queue_full", 429, "rate_limit_error"},
    {"backend.nan", 500, "server_error"},
    {"sampler.empty", 500, "server_error"},
    {"internal", 500, "server_error"},
    {"not_implemented", 501, "not_supported_error"},
    {"shutting_down", 503, kUnavailable},
    {"deadline_exceeded", 503, kUnavailable},
    {"device_lost", 503, kUnavailable},
    {"out_of_memory", 503, kUnavailable},
    {"too_many_connections", 503, kUnavailable},
    {"version_not_supported", 505, kInvalid},
}};

// What a request gets wrong has these ids in the engine; all of them are told when it is submitted.
std::string_view CodeOf(const Error& error) {
  if (error.id == "context.overflow") return "context_length_exceeded";
  if (error.id == "backend.nan" || error.id == "sampler.empty") return error.id;
  if (error.kind == ErrorKind::kOutOfMemory) return "out_of_memory";
  if (error.id == "device.lost") return "device_lost";
  if (error.kind == ErrorKind::kUsage) return "invalid_value";
  return "internal";
}

}  // namespace

ApiError MakeApiError(std::string_view code, std::string message,
                      std::optional<std::string> param) {
  const auto* row = std::find_if(kCodes.begin(), kCodes.end(),
                                 [code](const CodeRow& one) { return one.code == code; });
  const bool known = row != kCodes.end();
  return {.status = known ? row->status : 500,
          .type = std::string(known ? row->type : "server_error"),
          .code = std::string(code),
          .message = std::move(message),
          .param = std::move(param)};
}

ApiError FromEngine(const Error& error) { return MakeApiError(CodeOf(error), error.ToString()); }

std::string OpenAiBody(const ApiError& error) {
  json fields = error.extra;
  fields["message"] = error.message;
  fields["type"] = error.type;
  fields["param"] = error.param ? json(*error.param) : json(nullptr);
  fields["code"] = error.code;
  return json{{"error", fields}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string OllamaBody(const ApiError& error) {
  json fields = error.extra;
  fields["error"] = error.message;
  fields["code"] = error.code;
  return fields.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace rullama::server
