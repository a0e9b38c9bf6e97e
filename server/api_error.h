// An error as an HTTP API answers it. Thread safety: value types, no shared state.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "core/base/error.h"
#include "server/http/header_field.h"

namespace rullama::server {

struct ApiError {
  int status = 500;                                 // of HTTP; 0: nobody is left to be told
  std::string type;                                 // "invalid_request_error"
  std::string code;                                 // "invalid_value"; stable
  std::string message;                              // what was found, what was expected, what to do
  std::optional<std::string> param;                 // the place in the body: "messages[1].content"
  nlohmann::json extra = nlohmann::json::object();  // further members of the error object
  std::vector<HeaderField> fields = {};             // of the head of the answer
};

template <typename T>
using ApiResult = tl::expected<T, ApiError>;

// `code` is one of the table in api_error.cc, which gives status and type; of any other it makes
// an error of the server, 500. One of 503 has a Retry-After.
ApiError MakeApiError(std::string_view code, std::string message,
                      std::optional<std::string> param = std::nullopt);

// The system has no memory or no thread for a request.
ApiError OutOfMemory();

// The error of the engine, under the code that clients know; else under its own id. `param` is the
// place that its message begins with: "messages[1].content".
ApiError FromEngine(const Error& error);

// The ways to write an error: {"error": {"message", "type", "param", "code"}}, {"error": "...",
// "code": "..."} and {"type": "error", "error": {...}, "request_id"}.
enum class Dialect { kOpenAi, kOllama, kAnthropic };
// That of the API to which a request belongs. `has_version`: it has the field Anthropic-Version;
// two APIs list models at the same path.
Dialect DialectOf(std::string_view path, bool has_version = false);
nlohmann::json ErrorJson(Dialect dialect, const ApiError& error);
// The body of an answer to the request with this id.
std::string ErrorBody(Dialect dialect, const ApiError& error, std::string_view request_id);
// Adds the field by which clients of Anthropic find the id, where the dialect is theirs.
void NameRequest(Dialect dialect, const std::string& request_id, std::vector<HeaderField>& fields);

// JSON on one line; bytes that are not UTF-8 are replaced.
std::string Dump(const nlohmann::json& value);

}  // namespace rullama::server
