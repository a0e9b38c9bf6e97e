// Errors of the C interface: the struct of rullama_error, and the border that no exception crosses.
//
// Thread safety: no shared state.
#pragma once

#include <string_view>

#include "core/base/status.h"
#include "engine/c_api/rullama.h"

namespace rullama::c_api {

// A new handle for what went wrong. Throws std::bad_alloc.
[[nodiscard]] rullama_error* MakeHandle(const Error& error);

// The handle for an error whose handle there is no memory for: a constant, which may be freed.
[[nodiscard]] rullama_error* NoMemoryHandle() noexcept;

// The error for the exception that is being handled.
[[nodiscard]] Error CurrentException();

// An error in how a function was called.
Status NeedPointer(const void* pointer, std::string_view name);

// Reports the outcome of `body`, which returns Status, as a function of the C interface does:
// through its return value and *error.
template <typename Body>
rullama_code AtBorder(rullama_error** error, Body&& body) noexcept {
  const auto report = [error](const Error& what) {
    if (error != nullptr) *error = MakeHandle(what);
    return static_cast<rullama_code>(what.kind);
  };
  if (error != nullptr) *error = nullptr;
  try {
    try {
      const Status status = body();
      return status ? RULLAMA_OK : report(status.error());
    } catch (...) {
      return report(CurrentException());
    }
  } catch (...) {
    if (error != nullptr) *error = NoMemoryHandle();
    return RULLAMA_ERROR_MEMORY;
  }
}

}  // namespace rullama::c_api
