// Errors as values. Every fallible function of rullama returns Status or Result<T>; no exception
// crosses a component. An Error says what was found, what was expected and what to do next, and
// carries a stable id (`gguf.bad_magic`) which tests and scripts may rely on (docs/errors.md).
//
// Part of the public interface. Thread safety: value types, no shared state.
#pragma once

#include <algorithm>
#include <cstddef>
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
    message.insert(0, ": ").insert(0, context);
    return std::move(*this);
  }
  // "<message> [<id>]", the form shown to users.
  [[nodiscard]] std::string ToString() const { return message + " [" + id + "]"; }

  // The parts of `message`: what was found and expected, and, after the last semicolon, what to do,
  // which may be empty.
  [[nodiscard]] std::string_view finding() const {
    return std::string_view(message).substr(0, HintBegin());
  }
  [[nodiscard]] std::string_view hint() const {
    return std::string_view(message).substr(std::min(HintBegin() + 2, message.size()));
  }

 private:
  // The position of the last "; ", or the size. One between quotes belongs to what was found, such
  // as the name of a file.
  [[nodiscard]] size_t HintBegin() const {
    bool quoted = false;
    for (size_t i = message.size(); i-- > 0;) {
      const bool apostrophe = i > 0 && IsLetter(i - 1) && IsLetter(i + 1);
      if (message[i] == '\'' && !apostrophe) quoted = !quoted;
      if (!quoted && message.compare(i, 2, "; ") == 0) return i;
    }
    return message.size();
  }
  // Bytes outside ASCII are parts of letters.
  [[nodiscard]] bool IsLetter(size_t at) const {
    if (at >= message.size()) return false;
    const auto c = static_cast<unsigned char>(message[at]);
    return c >= 0x80 || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  }
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline Status OkStatus() { return {}; }

}  // namespace rullama
