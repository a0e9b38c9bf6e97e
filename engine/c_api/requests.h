// The structs that a C program hands in, as those of the C++ interface.
//
// Ownership: results are copies. Thread safety: pure functions.
#pragma once

#include <span>
#include <string_view>

#include "core/base/status.h"
#include "engine/api/engine.h"
#include "engine/api/options.h"
#include "engine/api/request.h"
#include "engine/c_api/error_handle.h"
#include "engine/c_api/rullama.h"

namespace rullama::c_api {

// Errors: usage.struct, usage.argument.
Result<EngineOptions> OptionsOf(const rullama_engine_options* options);
Result<Request> RequestOf(const rullama_request* request);
Result<EmbeddingOptions> EmbeddingOptionsOf(const rullama_embedding_options* options);

// Views of the memory that a pointer and a count or size describe. Error usage.argument for nullptr
// with a count that is not 0.
Result<std::string_view> TextOf(const char* text, size_t size, std::string_view name);
template <typename T>
Result<std::span<const T>> SpanOf(const T* data, size_t count, std::string_view name) {
  if (count > 0) RL_RETURN_IF_ERROR(NeedPointer(static_cast<const void*>(data), name));
  return std::span<const T>(data, count);
}

}  // namespace rullama::c_api
