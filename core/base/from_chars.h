// std::from_chars, also for real numbers where the standard library has it for integers alone, as
// libc++ before version 20. Thread-safe.
#pragma once

#include <charconv>
#include <concepts>

namespace rullama {

// The same by the functions of C, for float and double. Numbers are those of
// std::chars_format::general without NaN and infinity, which are the error invalid_argument.
template <std::floating_point T>
std::from_chars_result RealFromChars(const char* first, const char* last, T& value);
extern template std::from_chars_result RealFromChars(const char*, const char*, float&);
extern template std::from_chars_result RealFromChars(const char*, const char*, double&);

template <typename T>
std::from_chars_result FromChars(const char* first, const char* last, T& value) {
#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 200000
  if constexpr (std::floating_point<T>) {
    return RealFromChars(first, last, value);
  } else {
    return std::from_chars(first, last, value);
  }
#else
  return std::from_chars(first, last, value);
#endif
}

}  // namespace rullama
