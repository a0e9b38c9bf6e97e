// Errors of one kind and id, of which a component makes several:
//
//   using BadHeader = ErrorOf<ErrorKind::kModelFile, "safetensors.header">;
//   return BadHeader("the header has {} bytes, expected at most {}", size, limit);
//
// Thread safety: value types.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <tl/expected.hpp>
#include <utility>

#include "core/base/error.h"

namespace rullama {

// The text of an id as an argument of a template.
template <size_t kSize>
struct ErrorId {
  consteval ErrorId(const char (&text)[kSize]) {  // NOLINT(google-explicit-constructor)
    std::copy_n(text, kSize, data);
  }
  char data[kSize] = {};
};

// What MakeError() returns, and used in its place.
template <ErrorKind kKind, ErrorId kId>
class ErrorOf : public tl::unexpected<Error> {
 public:
  template <typename... Args>
  explicit ErrorOf(fmt::format_string<Args...> format, Args&&... args)
      : tl::unexpected<Error>(
            Error{kKind, kId.data, fmt::format(format, std::forward<Args>(args)...)}) {}
};

}  // namespace rullama
