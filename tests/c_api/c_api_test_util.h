// Handles that free themselves, and an engine for the tests of the C interface.
#pragma once

#include <gtest/gtest.h>
#include <rullama/rullama.h>

#include <iterator>
#include <memory>
#include <string>
#include <vector>

namespace rullama {

inline constexpr const char* kE2b = RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf";
inline constexpr const char* kPlugins[] = {RULLAMA_BINARY_DIR "/lib/rullama"};
inline constexpr rullama_setting kSettings[] = {
    {"context.slots", "2"}, {"context.capacity", "512"}, {"backend.device", "0"}};

struct Freed {
  void operator()(rullama_engine* handle) const { rullama_engine_free(handle); }
  void operator()(rullama_generation* handle) const { rullama_generation_free(handle); }
  void operator()(rullama_error* handle) const { rullama_error_free(handle); }
  void operator()(void* buffer) const { rullama_free(buffer); }
};
using EnginePtr = std::unique_ptr<rullama_engine, Freed>;
using GenerationPtr = std::unique_ptr<rullama_generation, Freed>;
using ErrorPtr = std::unique_ptr<rullama_error, Freed>;
template <typename T>
using Buffer = std::unique_ptr<T[], Freed>;

inline rullama_engine_options Options() {
  rullama_engine_options options = {};
  options.struct_size = sizeof options;
  options.model = kE2b;
  options.backend = "cpu";
  options.settings = kSettings;
  options.setting_count = std::size(kSettings);
  options.plugin_paths = kPlugins;
  options.plugin_path_count = std::size(kPlugins);
  return options;
}

inline rullama_request Prompt(const char* text, int64_t max_tokens = 8) {
  rullama_request request = {};
  request.struct_size = sizeof request;
  request.prompt = text;
  request.max_tokens = rullama_given_int(max_tokens);
  request.seed = rullama_given_int(7);
  return request;
}

inline rullama_embedding_options VectorOptions(const char* task = nullptr, int64_t dimensions = 0) {
  rullama_embedding_options options = {};
  options.struct_size = sizeof options;
  options.task = task;
  options.dimensions = dimensions;
  return options;
}

// The id of the error of a call that takes `error` last, "none" if it succeeds. The code it returns
// is that of the error.
template <typename Call>
std::string ErrorId(Call call) {
  rullama_error* error = nullptr;
  const rullama_code code = call(&error);
  const ErrorPtr owner(error);
  EXPECT_EQ(code, rullama_error_code(error));
  return code == RULLAMA_OK ? "none" : rullama_error_id(error);
}

inline EnginePtr Open(const rullama_engine_options& options) {
  rullama_engine* engine = nullptr;
  rullama_error* error = nullptr;
  if (rullama_engine_open(&options, &engine, &error) != RULLAMA_OK) {
    ADD_FAILURE() << rullama_error_text(error);
    rullama_error_free(error);
  }
  return EnginePtr(engine);
}

// Loading takes longest, so the tests share an engine.
class CApi : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { shared_ = Open(Options()).release(); }
  static void TearDownTestSuite() {
    rullama_engine_free(shared_);
    shared_ = nullptr;
  }
  void SetUp() override { ASSERT_NE(engine(), nullptr); }

  static rullama_engine* engine() { return shared_; }

  static GenerationPtr Submit(const rullama_request& request) {
    rullama_generation* generation = nullptr;
    EXPECT_EQ(rullama_engine_submit(engine(), &request, &generation, nullptr), RULLAMA_OK);
    return GenerationPtr(generation);
  }
  static std::string SubmitErrorId(const rullama_request& request) {
    rullama_generation* generation = nullptr;
    const std::string id = ErrorId([&](auto** error) {
      return rullama_engine_submit(engine(), &request, &generation, error);
    });
    EXPECT_EQ(generation == nullptr, id != "none");
    rullama_generation_free(generation);
    return id;
  }
  static const rullama_completion* Finish(rullama_generation* generation) {
    EXPECT_EQ(rullama_generation_wait(generation, nullptr, nullptr, nullptr), RULLAMA_OK);
    const rullama_completion* completion = nullptr;
    EXPECT_EQ(rullama_generation_completion(generation, &completion, nullptr), RULLAMA_OK);
    return completion;
  }
  static std::vector<int32_t> Tokens(const char* text, uint32_t flags) {
    int32_t* ids = nullptr;
    size_t count = 0;
    EXPECT_EQ(
        rullama_engine_tokenize(engine(), text, RULLAMA_TERMINATED, flags, &ids, &count, nullptr),
        RULLAMA_OK);
    const Buffer<int32_t> owner(ids);
    return {ids, ids + count};
  }

 private:
  static inline rullama_engine* shared_ = nullptr;
};

}  // namespace rullama
