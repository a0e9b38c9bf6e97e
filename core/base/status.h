// Errors as values. Every fallible function of rullama returns Status or Result<T>; no exception
// crosses a component. An Error says what was found, what was expected and what to do next, and
// carries a stable id (`gguf.bad_magic`) which tests and scripts may rely on.
//
// Thread safety: value types, no shared state.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace rullama {

// The kind of an error. The number is the exit code of the `rullama` program.
enum class ErrorKind : int {
  kRuntime = 1,      // failure while running: NaN logits, cancelled work, an internal limit
  kUsage = 2,        // command line or configuration
  kBackend = 3,      // plugin, device or driver cannot be used
  kModelFile = 4,    // model file, tokenizer or model store is invalid or unsupported
  kOutOfMemory = 5,  // host or device memory
  kIo = 6,           // reading or writing failed
  kThreshold = 7,    // a comparison exceeded its threshold (diff, conformance, perplexity)
};

struct Error {
  ErrorKind kind = ErrorKind::kRuntime;
  std::string id;       // stable, dotted, lower case: "<area>.<what>"
  std::string message;  // one line; no trailing period needed

  // Prefixes the message with where the error was met ("model file 'x.gguf': ...").
  [[nodiscard]] Error WithContext(std::string_view context) && {
    message = fmt::format("{}: {}", context, message);
    return std::move(*this);
  }
  // "<message> [<id>]", the form shown to users.
  [[nodiscard]] std::string ToString() const { return fmt::format("{} [{}]", message, id); }
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline Status OkStatus() { return {}; }

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
