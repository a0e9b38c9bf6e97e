// An error as an HTTP API answers it. Thread safety: value types, no shared state.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "core/base/error.h"

namespace rullama::server {

struct ApiError {
  int status = 500;                                 // of HTTP
  std::string type;                                 // "invalid_request_error"
  std::string code;                                 // "invalid_value"; stable
  std::string message;                              // what was found, what was expected, what to do
  std::optional<std::string> param;                 // the place in the body: "messages[1].content"
  nlohmann::json extra = nlohmann::json::object();  // further members of the error object
};

template <typename T>
using ApiResult = tl::expected<T, ApiError>;

// `code` is one of the table in api_error.cc, which gives status and type; of any other it makes
// an error of the server, 500.
ApiError MakeApiError(std::string_view code, std::string message,
                      std::optional<std::string> param = std::nullopt);

// The error of the engine, under the code that clients know; else under its own id.
ApiError FromEngine(const Error& error);

// The bodies in the two dialects: {"error": {"message", "type", "param", "code"}} and
// {"error": "...", "code": "..."}.
std::string OpenAiBody(const ApiError& error);
std::string OllamaBody(const ApiError& error);

}  // namespace rullama::server
