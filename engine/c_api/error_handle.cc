#include "engine/c_api/error_handle.h"

#include <exception>
#include <memory>
#include <new>
#include <string>

// A handle whose strings are elsewhere: constants, or those of OwnedError.
struct rullama_error {
  rullama_code code;
  const char* id;
  const char* message;
  const char* hint;
  const char* text;
};

namespace rullama::c_api {
namespace {

constexpr rullama_error kNoMemory = {RULLAMA_ERROR_MEMORY, "memory.host",
                                     "the system refused more memory", "",
                                     "the system refused more memory [memory.host]"};

struct OwnedError : rullama_error {
  explicit OwnedError(const Error& error)
      : rullama_error(),
        id_text(error.id),
        message_text(error.finding()),
        hint_text(error.hint()),
        whole(error.ToString()) {
    code = static_cast<rullama_code>(error.kind);
    id = id_text.c_str();
    message = message_text.c_str();
    hint = hint_text.c_str();
    text = whole.c_str();
  }
  OwnedError(const OwnedError&) = delete;
  OwnedError& operator=(const OwnedError&) = delete;

  std::string id_text;
  std::string message_text;
  std::string hint_text;
  std::string whole;
};

}  // namespace

rullama_error* MakeHandle(const Error& error) {
  return std::make_unique<OwnedError>(error).release();
}

rullama_error* NoMemoryHandle() noexcept {
  // Nobody writes to an error, and rullama_error_free() knows this one.
  return const_cast<rullama_error*>(&kNoMemory);
}

Error CurrentException() {
  const auto unexpected = [](std::string_view what) {
    return MakeError(ErrorKind::kRuntime, "run.exception",
                     "an exception reached the C interface: {}; please report it", what)
        .value();
  };
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return {ErrorKind::kOutOfMemory, "memory.host", "the system refused more memory"};
  } catch (const std::exception& exception) {
    return unexpected(exception.what());
  } catch (...) {
    return unexpected("of unknown type");
  }
}

Status NeedPointer(const void* pointer, std::string_view name) {
  if (pointer != nullptr) return OkStatus();
  return MakeError(ErrorKind::kUsage, "usage.argument", "`{}` is NULL", name);
}

static_assert(RULLAMA_ERROR_RUNTIME == static_cast<int>(ErrorKind::kRuntime) &&
              RULLAMA_ERROR_USAGE == static_cast<int>(ErrorKind::kUsage) &&
              RULLAMA_ERROR_BACKEND == static_cast<int>(ErrorKind::kBackend) &&
              RULLAMA_ERROR_MODEL_FILE == static_cast<int>(ErrorKind::kModelFile) &&
              RULLAMA_ERROR_MEMORY == static_cast<int>(ErrorKind::kOutOfMemory) &&
              RULLAMA_ERROR_IO == static_cast<int>(ErrorKind::kIo) &&
              RULLAMA_ERROR_THRESHOLD == static_cast<int>(ErrorKind::kThreshold));

}  // namespace rullama::c_api

extern "C" {

rullama_code rullama_error_code(const rullama_error* error) {
  return error == nullptr ? RULLAMA_OK : error->code;
}
const char* rullama_error_id(const rullama_error* error) {
  return error == nullptr ? "" : error->id;
}
const char* rullama_error_message(const rullama_error* error) {
  return error == nullptr ? "" : error->message;
}
const char* rullama_error_hint(const rullama_error* error) {
  return error == nullptr ? "" : error->hint;
}
const char* rullama_error_text(const rullama_error* error) {
  return error == nullptr ? "" : error->text;
}
void rullama_error_free(rullama_error* error) {
  if (error == &rullama::c_api::kNoMemory) return;
  delete static_cast<rullama::c_api::OwnedError*>(error);
}

}  // extern "C"
