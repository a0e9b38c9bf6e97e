// Helpers for functions that return Status or Result: formatted errors, and macros that pass an
// error on to the caller.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include "core/base/error.h"

namespace rullama {

// MakeError(ErrorKind::kModelFile, "gguf.version", "found version {}, expected 2 or 3", v).
template <typename... Args>
[[nodiscard]] tl::unexpected<Error> MakeError(ErrorKind kind, std::string_view id,
                                              fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(
      Error{kind, std::string(id), fmt::format(format, std::forward<Args>(args)...)});
}

}  // namespace rullama

#define RL_CONCAT_INNER(a, b) a##b
#define RL_CONCAT(a, b) RL_CONCAT_INNER(a, b)

// Returns the error of `expr` (a Status or Result) to the caller, if there is one.
#define RL_RETURN_IF_ERROR(expr)                                               \
  do {                                                                         \
    if (auto rl_status = (expr); !rl_status) {                                 \
      return ::tl::unexpected<::rullama::Error>(std::move(rl_status).error()); \
    }                                                                          \
  } while (false)

// RL_ASSIGN_OR_RETURN(auto file, MmapFile::Open(path));
#define RL_ASSIGN_OR_RETURN(decl, expr) \
  RL_ASSIGN_OR_RETURN_INNER(RL_CONCAT(rl_result_, __LINE__), decl, expr)
#define RL_ASSIGN_OR_RETURN_INNER(tmp, decl, expr)                     \
  auto tmp = (expr);                                                   \
  if (!tmp) {                                                          \
    return ::tl::unexpected<::rullama::Error>(std::move(tmp).error()); \
  }                                                                    \
  decl = *std::move(tmp)
