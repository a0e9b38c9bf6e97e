#include "engine/api/engine.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "engine/c_api/error_handle.h"
#include "engine/c_api/handles.h"
#include "engine/c_api/requests.h"

namespace rullama::c_api {
namespace {

// Hands out a copy of `values` as a buffer for rullama_free(), with a zero after it.
template <typename Values, typename T>
void CopyOut(const Values& values, T** data, size_t* count) {
  auto* buffer = static_cast<T*>(std::calloc(values.size() + 1, sizeof(T)));
  if (buffer == nullptr) throw std::bad_alloc();
  std::ranges::copy(values, buffer);
  *data = buffer;
  if (count != nullptr) *count = values.size();
}

// Clears the place of a buffer and of its size, which may be nullptr.
template <typename T>
Status ClearResult(T** data, size_t* count, std::string_view name) {
  if (count != nullptr) *count = 0;
  RL_RETURN_IF_ERROR(NeedPointer(static_cast<const void*>(data), name));
  *data = nullptr;
  return OkStatus();
}

Status CheckFlags(uint32_t flags, uint32_t known) {
  if ((flags & ~known) == 0) return OkStatus();
  return MakeError(ErrorKind::kUsage, "usage.argument",
                   "`flags` is {:#x}, expected no bits but those of {:#x}", flags, known);
}

Status NeedEngine(const rullama_engine* engine) { return NeedPointer(engine, "engine"); }

// Hands out the vector that `embed` returns, once the pointers are known to be there.
template <typename Embed>
Status EmbedInto(const rullama_engine* engine, float** values, size_t* value_count,
                 const Embed& embed) {
  RL_RETURN_IF_ERROR(ClearResult(values, value_count, "values"));
  RL_RETURN_IF_ERROR(NeedPointer(value_count, "value_count"));
  RL_RETURN_IF_ERROR(NeedEngine(engine));
  RL_ASSIGN_OR_RETURN(const std::vector<float> embedding, embed());
  CopyOut(embedding, values, value_count);
  return OkStatus();
}

}  // namespace
}  // namespace rullama::c_api

rullama_engine::rullama_engine(std::shared_ptr<rullama::Engine> opened)
    : engine(std::move(opened)), info() {
  const rullama::ModelInfo& from = engine->info();
  info.struct_size = sizeof info;
  info.name = from.name.c_str();
  info.architecture = from.architecture.c_str();
  info.backend = from.backend.c_str();
  info.device = from.device.c_str();
  info.layers = from.layers;
  info.width = from.width;
  info.vocabulary = from.vocabulary;
  info.context_length = from.context_length;
  info.capacity = from.capacity;
  info.slots = from.slots;
  info.canvas_length = from.canvas_length;
}

// The functions of the C interface are not in a namespace; their bodies use these.
using rullama::OkStatus;
using rullama::Result;
using rullama::Status;
using rullama::c_api::AtBorder;
using rullama::c_api::CheckFlags;
using rullama::c_api::ClearResult;
using rullama::c_api::CopyOut;
using rullama::c_api::EmbedInto;
using rullama::c_api::NeedEngine;
using rullama::c_api::NeedPointer;
using rullama::c_api::SpanOf;
using rullama::c_api::TextOf;

extern "C" {

const char* rullama_version() { return RULLAMA_VERSION; }

uint32_t rullama_c_api_version() {
  return uint32_t{RULLAMA_C_API_MAJOR} << 16 | RULLAMA_C_API_MINOR;
}

void rullama_free(void* buffer) { std::free(buffer); }

rullama_code rullama_engine_open(const rullama_engine_options* options, rullama_engine** engine,
                                 rullama_error** error) {
  return AtBorder(error, [&]() -> Status {
    RL_RETURN_IF_ERROR(ClearResult(engine, nullptr, "engine"));
    RL_ASSIGN_OR_RETURN(const auto checked, rullama::c_api::OptionsOf(options));
    RL_ASSIGN_OR_RETURN(auto opened, rullama::Engine::Open(checked));
    *engine = std::make_unique<rullama_engine>(std::move(opened)).release();
    return OkStatus();
  });
}

void rullama_engine_free(rullama_engine* engine) { delete engine; }

const rullama_model_info* rullama_engine_info(const rullama_engine* engine) {
  return engine == nullptr ? nullptr : &engine->info;
}

rullama_code rullama_engine_submit(rullama_engine* engine, const rullama_request* request,
                                   rullama_generation** generation, rullama_error** error) {
  return AtBorder(error, [&]() -> Status {
    RL_RETURN_IF_ERROR(ClearResult(generation, nullptr, "generation"));
    RL_RETURN_IF_ERROR(NeedEngine(engine));
    RL_ASSIGN_OR_RETURN(const auto checked, rullama::c_api::RequestOf(request));
    RL_ASSIGN_OR_RETURN(auto started, engine->engine->Submit(checked));
    *generation = std::make_unique<rullama_generation>(std::move(started)).release();
    return OkStatus();
  });
}

rullama_code rullama_engine_tokenize(const rullama_engine* engine, const char* text,
                                     size_t text_size, uint32_t flags, int32_t** ids,
                                     size_t* id_count, rullama_error** error) {
  return AtBorder(error, [&]() -> Status {
    RL_RETURN_IF_ERROR(ClearResult(ids, id_count, "ids"));
    RL_RETURN_IF_ERROR(NeedPointer(id_count, "id_count"));
    RL_RETURN_IF_ERROR(NeedEngine(engine));
    RL_RETURN_IF_ERROR(CheckFlags(flags, RULLAMA_PLAIN_TEXT | RULLAMA_ADD_BOS));
    RL_ASSIGN_OR_RETURN(const std::string_view view, TextOf(text, text_size, "text"));
    RL_ASSIGN_OR_RETURN(const auto tokens,
                        engine->engine->Tokenize(view, (flags & RULLAMA_PLAIN_TEXT) == 0,
                                                 (flags & RULLAMA_ADD_BOS) != 0));
    CopyOut(tokens, ids, id_count);
    return OkStatus();
  });
}

rullama_code rullama_engine_detokenize(const rullama_engine* engine, const int32_t* ids,
                                       size_t id_count, uint32_t flags, char** text,
                                       size_t* text_size, rullama_error** error) {
  return AtBorder(error, [&]() -> Status {
    RL_RETURN_IF_ERROR(ClearResult(text, text_size, "text"));
    RL_RETURN_IF_ERROR(NeedEngine(engine));
    RL_RETURN_IF_ERROR(CheckFlags(flags, RULLAMA_SHOW_CONTROL));
    RL_ASSIGN_OR_RETURN(const auto tokens, SpanOf(ids, id_count, "ids"));
    RL_ASSIGN_OR_RETURN(const auto written,
                        engine->engine->Detokenize(tokens, (flags & RULLAMA_SHOW_CONTROL) != 0));
    CopyOut(written, text, text_size);
    return OkStatus();
  });
}

rullama_code rullama_engine_chat_tokens(const rullama_engine* engine, const char* messages,
                                        const char* tools, uint32_t flags, int32_t** ids,
                                        size_t* id_count, rullama_error** error) {
  return AtBorder(error, [&]() -> Status {
    RL_RETURN_IF_ERROR(ClearResult(ids, id_count, "ids"));
    RL_RETURN_IF_ERROR(NeedPointer(id_count, "id_count"));
    RL_RETURN_IF_ERROR(NeedEngine(engine));
    RL_RETURN_IF_ERROR(NeedPointer(messages, "messages"));
    RL_RETURN_IF_ERROR(CheckFlags(flags, RULLAMA_THINKING));
    RL_ASSIGN_OR_RETURN(const auto tokens,
                        engine->engine->ChatTokens(messages, tools == nullptr ? "" : tools,
                                                   (flags & RULLAMA_THINKING) != 0));
    CopyOut(tokens, ids, id_count);
    return OkStatus();
  });
}

rullama_code rullama_engine_embed(rullama_engine* engine, const char* text, size_t text_size,
                                  float** values, size_t* value_count, rullama_error** error) {
  return AtBorder(error, [&]() -> Status {
    return EmbedInto(engine, values, value_count, [&]() -> Result<std::vector<float>> {
      RL_ASSIGN_OR_RETURN(const std::string_view view, TextOf(text, text_size, "text"));
      return engine->engine->Embed(view);
    });
  });
}

rullama_code rullama_engine_embed_with(rullama_engine* engine, const char* text, size_t text_size,
                                       const rullama_embedding_options* options, float** values,
                                       size_t* value_count, rullama_error** error) {
  return AtBorder(error, [&]() -> Status {
    return EmbedInto(engine, values, value_count, [&]() -> Result<std::vector<float>> {
      RL_ASSIGN_OR_RETURN(const std::string_view view, TextOf(text, text_size, "text"));
      RL_ASSIGN_OR_RETURN(const auto asked, rullama::c_api::EmbeddingOptionsOf(options));
      return engine->engine->Embed(view, asked);
    });
  });
}

rullama_code rullama_engine_embed_content(rullama_engine* engine, const rullama_request* content,
                                          const rullama_embedding_options* options, float** values,
                                          size_t* value_count, rullama_error** error) {
  return AtBorder(error, [&]() -> Status {
    return EmbedInto(engine, values, value_count, [&]() -> Result<std::vector<float>> {
      RL_ASSIGN_OR_RETURN(const auto request, rullama::c_api::RequestOf(content));
      RL_ASSIGN_OR_RETURN(const auto asked, rullama::c_api::EmbeddingOptionsOf(options));
      return engine->engine->EmbedContent(request, asked);
    });
  });
}

rullama_code rullama_engine_logits(rullama_engine* engine, const int32_t* ids, size_t id_count,
                                   rullama_logits_callback on_rows, void* data,
                                   rullama_error** error) {
  return AtBorder(error, [&]() -> Status {
    RL_RETURN_IF_ERROR(NeedEngine(engine));
    if (on_rows == nullptr) return NeedPointer(nullptr, "on_rows");
    RL_ASSIGN_OR_RETURN(const auto tokens, SpanOf(ids, id_count, "ids"));
    const int64_t vocabulary = engine->info.vocabulary;
    return engine->engine->Logits(tokens, [&](int64_t first, std::span<const float> logits) {
      return on_rows(data, first, std::ssize(logits) / vocabulary, vocabulary, logits.data()) == 0;
    });
  });
}

rullama_code rullama_engine_negative_log_likelihood(rullama_engine* engine, const int32_t* ids,
                                                    size_t id_count, double* sum,
                                                    rullama_error** error) {
  return AtBorder(error, [&]() -> Status {
    RL_RETURN_IF_ERROR(NeedPointer(sum, "sum"));
    *sum = 0;
    RL_RETURN_IF_ERROR(NeedEngine(engine));
    RL_ASSIGN_OR_RETURN(const auto tokens, SpanOf(ids, id_count, "ids"));
    RL_ASSIGN_OR_RETURN(*sum, engine->engine->NegativeLogLikelihood(tokens));
    return OkStatus();
  });
}

rullama_code rullama_engine_save_prompt(rullama_engine* engine, const rullama_request* request,
                                        const char* path, int64_t* tokens, rullama_error** error) {
  return AtBorder(error, [&]() -> Status {
    RL_RETURN_IF_ERROR(NeedPointer(tokens, "tokens"));
    *tokens = 0;
    RL_RETURN_IF_ERROR(NeedEngine(engine));
    RL_RETURN_IF_ERROR(NeedPointer(path, "path"));
    RL_ASSIGN_OR_RETURN(const auto checked, rullama::c_api::RequestOf(request));
    RL_ASSIGN_OR_RETURN(*tokens, engine->engine->SavePrompt(checked, path));
    return OkStatus();
  });
}

rullama_code rullama_engine_load_prompt(rullama_engine* engine, const char* path, int64_t* tokens,
                                        rullama_error** error) {
  return AtBorder(error, [&]() -> Status {
    RL_RETURN_IF_ERROR(NeedPointer(tokens, "tokens"));
    *tokens = 0;
    RL_RETURN_IF_ERROR(NeedEngine(engine));
    RL_RETURN_IF_ERROR(NeedPointer(path, "path"));
    RL_ASSIGN_OR_RETURN(*tokens, engine->engine->LoadPrompt(path));
    return OkStatus();
  });
}

rullama_code rullama_engine_save_slot(rullama_engine* engine, int32_t slot, const char* path,
                                      int64_t* tokens, rullama_error** error) {
  return AtBorder(error, [&]() -> Status {
    RL_RETURN_IF_ERROR(NeedPointer(tokens, "tokens"));
    *tokens = 0;
    RL_RETURN_IF_ERROR(NeedEngine(engine));
    RL_RETURN_IF_ERROR(NeedPointer(path, "path"));
    RL_ASSIGN_OR_RETURN(const auto saved,
                        engine->engine->SaveSlot(slot, /*client=*/0, {.path = path}));
    *tokens = saved.tokens;
    return OkStatus();
  });
}

rullama_code rullama_engine_restore_slot(rullama_engine* engine, int32_t slot, const char* path,
                                         int64_t* tokens, rullama_error** error) {
  return AtBorder(error, [&]() -> Status {
    RL_RETURN_IF_ERROR(NeedPointer(tokens, "tokens"));
    *tokens = 0;
    RL_RETURN_IF_ERROR(NeedEngine(engine));
    RL_RETURN_IF_ERROR(NeedPointer(path, "path"));
    RL_ASSIGN_OR_RETURN(const auto restored,
                        engine->engine->RestoreSlot(slot, /*client=*/0, {.path = path}));
    *tokens = restored.tokens;
    return OkStatus();
  });
}

rullama_code rullama_engine_erase_slot(rullama_engine* engine, int32_t slot, int64_t* tokens,
                                       rullama_error** error) {
  return AtBorder(error, [&]() -> Status {
    RL_RETURN_IF_ERROR(NeedPointer(tokens, "tokens"));
    *tokens = 0;
    RL_RETURN_IF_ERROR(NeedEngine(engine));
    RL_ASSIGN_OR_RETURN(*tokens, engine->engine->EraseSlot(slot, /*client=*/0));
    return OkStatus();
  });
}

}  // extern "C"
