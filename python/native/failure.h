// Errors of the library as exceptions, for this module only: nanobind hands them to Python.
#pragma once

#include <rullama/base/error.h>

#include <exception>
#include <type_traits>
#include <utility>

namespace rullama::python {

// Becomes the exception that rullama._errors.make_error() makes of it.
class Failure : public std::exception {
 public:
  explicit Failure(Error error) : error_(std::move(error)) {}
  [[nodiscard]] const Error& error() const { return error_; }
  [[nodiscard]] const char* what() const noexcept override { return error_.message.c_str(); }

 private:
  Error error_;
};

template <typename T>
T Unwrap(Result<T> result) {
  if (!result) throw Failure(std::move(result.error()));
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace rullama::python
