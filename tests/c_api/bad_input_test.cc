// Wrong use of the C interface is an error with an id, and the engine continues.
#include <gmock/gmock.h>
#include <rullama/rullama.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/c_api/c_api_test_util.h"

namespace rullama {
namespace {

using ::testing::HasSubstr;

std::string OpenErrorId(const rullama_engine_options* options) {
  rullama_engine* engine = nullptr;
  const std::string id =
      ErrorId([&](auto** error) { return rullama_engine_open(options, &engine, error); });
  EXPECT_EQ(engine == nullptr, id != "none");
  rullama_engine_free(engine);
  return id;
}

TEST(CApiOpen, SaysWhyItCannot) {
  EXPECT_EQ(OpenErrorId(nullptr), "usage.argument");
  rullama_engine_options options = Options();
  options.model = nullptr;
  EXPECT_EQ(OpenErrorId(&options), "usage.model");
  options.model = "/nowhere/model.gguf";
  EXPECT_EQ(OpenErrorId(&options), "io.open");
  options = Options();
  options.backend = "none-such";
  EXPECT_EQ(OpenErrorId(&options), "backend.unknown");
  options = Options();
  options.config_file = "/nowhere/config.yaml";
  EXPECT_EQ(OpenErrorId(&options), "config.open");
  options = Options();
  const rullama_setting unknown = {"context.sluts", "2"};
  options.settings = &unknown;
  options.setting_count = 1;
  EXPECT_EQ(OpenErrorId(&options), "config.unknown_key");
  const rullama_setting bad_list = {"generation.stop", "[a, {b: c}]"};
  options.settings = &bad_list;
  EXPECT_EQ(OpenErrorId(&options), "config.type");
  const rullama_setting no_draft_model = {"drafts.model", "/nowhere/model.gguf"};
  options.settings = &no_draft_model;
  EXPECT_EQ(OpenErrorId(&options), "io.open");
  options = Options();
  const char* const adapter = "/nowhere/adapter.gguf:0.5";
  options.adapters = &adapter;
  options.adapter_count = 1;
  EXPECT_EQ(OpenErrorId(&options), "io.open");
}

TEST(CApiOpen, RefusesBadArguments) {
  rullama_engine_options options = Options();
  EXPECT_EQ(ErrorId([&](auto** error) { return rullama_engine_open(&options, nullptr, error); }),
            "usage.argument");
  EXPECT_EQ(rullama_engine_open(&options, nullptr, nullptr), RULLAMA_ERROR_USAGE);
  options.reserved = 1;
  EXPECT_EQ(OpenErrorId(&options), "usage.argument");
  options = Options();
  options.settings = nullptr;
  EXPECT_EQ(OpenErrorId(&options), "usage.argument");
  for (const rullama_setting& half :
       {rullama_setting{"context.slots", nullptr}, rullama_setting{nullptr, "2"}}) {
    options = Options();
    options.settings = &half;
    options.setting_count = 1;
    EXPECT_EQ(OpenErrorId(&options), "usage.argument");
  }
  options = Options();
  const char* const no_path = nullptr;
  options.plugin_paths = &no_path;
  EXPECT_EQ(OpenErrorId(&options), "usage.argument");
  options = Options();
  options.adapter_count = 1;
  EXPECT_EQ(OpenErrorId(&options), "usage.argument");
}

// An option of the log reaches the callback of the program, with its data.
TEST(CApiOpen, LogsToTheCallback) {
  rullama_engine_options options = Options();
  const std::vector<rullama_setting> settings = {
      {"backend.device", "0"}, {"context.capacity", "512"}, {"backend.options.threads", "256"}};
  options.settings = settings.data();
  options.setting_count = settings.size();
  std::string lines;
  options.log_data = &lines;
  options.log = [](void* data, rullama_log_level level, const char* text) {
    *static_cast<std::string*>(data) += std::to_string(level) + " " + text + "\n";
  };
  EXPECT_NE(Open(options), nullptr);
  EXPECT_THAT(lines, HasSubstr("1 256 threads share"));
}

TEST_F(CApi, RefusesNullHandles) {
  const rullama_request request = Prompt("a");
  rullama_generation* generation = nullptr;
  int32_t* ids = nullptr;
  char* text = nullptr;
  float* values = nullptr;
  size_t count = 1;
  double sum = 1;
  const int32_t two[] = {2, 300};
  const rullama_event* event = nullptr;
  const rullama_completion* completion = nullptr;
  const auto on_rows = [](void*, int64_t, int64_t, int64_t, const float*) -> int { return 0; };
  const auto refuses = [](auto call) { EXPECT_EQ(ErrorId(call), "usage.argument"); };
  refuses([&](auto** e) { return rullama_engine_submit(nullptr, &request, &generation, e); });
  refuses([&](auto** e) { return rullama_engine_submit(engine(), &request, nullptr, e); });
  refuses([&](auto** e) { return rullama_engine_submit(engine(), nullptr, &generation, e); });
  refuses([&](auto** e) { return rullama_generation_next(nullptr, &event, e); });
  refuses([&](auto** e) { return rullama_generation_wait(nullptr, nullptr, nullptr, e); });
  refuses([&](auto** e) { return rullama_generation_completion(nullptr, &completion, e); });
  const GenerationPtr running = Submit(request);
  refuses([&](auto** e) { return rullama_generation_next(running.get(), nullptr, e); });
  refuses([&](auto** e) { return rullama_generation_completion(running.get(), nullptr, e); });
  refuses([&](auto** e) { return rullama_engine_tokenize(nullptr, "a", 1, 0, &ids, &count, e); });
  EXPECT_EQ(count, 0U);
  refuses([&](auto** e) {
    return rullama_engine_tokenize(engine(), nullptr, RULLAMA_TERMINATED, 0, &ids, &count, e);
  });
  refuses(
      [&](auto** e) { return rullama_engine_tokenize(engine(), "a", 1, 0, nullptr, &count, e); });
  refuses([&](auto** e) { return rullama_engine_tokenize(engine(), "a", 1, 0, &ids, nullptr, e); });
  refuses(
      [&](auto** e) { return rullama_engine_detokenize(nullptr, two, 2, 0, &text, nullptr, e); });
  refuses([&](auto** e) {
    return rullama_engine_detokenize(engine(), nullptr, 2, 0, &text, nullptr, e);
  });
  refuses([&](auto** e) {
    return rullama_engine_chat_tokens(nullptr, "[]", nullptr, 0, &ids, &count, e);
  });
  refuses([&](auto** e) {
    return rullama_engine_chat_tokens(engine(), nullptr, nullptr, 0, &ids, &count, e);
  });
  refuses([&](auto** e) { return rullama_engine_embed(nullptr, "a", 1, &values, &count, e); });
  refuses([&](auto** e) { return rullama_engine_embed(engine(), "a", 1, nullptr, &count, e); });
  const rullama_embedding_options options = VectorOptions();
  const auto embed = [&](rullama_engine* in, const rullama_embedding_options* as, float** to,
                         rullama_error** e) {
    return rullama_engine_embed_with(in, "a", 1, as, to, &count, e);
  };
  refuses([&](auto** e) { return embed(nullptr, &options, &values, e); });
  refuses([&](auto** e) { return embed(engine(), nullptr, &values, e); });
  refuses([&](auto** e) { return embed(engine(), &options, nullptr, e); });
  const auto embed_content = [&](const rullama_request* content,
                                 const rullama_embedding_options* as, rullama_error** e) {
    return rullama_engine_embed_content(engine(), content, as, &values, &count, e);
  };
  refuses([&](auto** e) { return embed_content(nullptr, &options, e); });
  refuses([&](auto** e) { return embed_content(&request, nullptr, e); });
  rullama_embedding_options marked = options;
  marked.reserved = 1;
  refuses([&](auto** e) { return embed(engine(), &marked, &values, e); });
  refuses([&](auto** e) { return rullama_engine_logits(nullptr, two, 2, on_rows, nullptr, e); });
  refuses([&](auto** e) { return rullama_engine_logits(engine(), two, 2, nullptr, nullptr, e); });
  refuses(
      [&](auto** e) { return rullama_engine_negative_log_likelihood(nullptr, two, 2, &sum, e); });
  EXPECT_EQ(sum, 0);
  refuses([&](auto** e) {
    return rullama_engine_negative_log_likelihood(engine(), two, 2, nullptr, e);
  });
  refuses([&](auto** e) {
    return rullama_engine_negative_log_likelihood(engine(), nullptr, 2, &sum, e);
  });
  int64_t tokens = 7;
  refuses(
      [&](auto** e) { return rullama_engine_save_prompt(nullptr, &request, "file", &tokens, e); });
  EXPECT_EQ(tokens, 0);
  refuses(
      [&](auto** e) { return rullama_engine_save_prompt(engine(), nullptr, "file", &tokens, e); });
  refuses([&](auto** e) {
    return rullama_engine_save_prompt(engine(), &request, nullptr, &tokens, e);
  });
  refuses(
      [&](auto** e) { return rullama_engine_save_prompt(engine(), &request, "file", nullptr, e); });
  refuses([&](auto** e) { return rullama_engine_load_prompt(nullptr, "file", &tokens, e); });
  refuses([&](auto** e) { return rullama_engine_load_prompt(engine(), nullptr, &tokens, e); });
  refuses([&](auto** e) { return rullama_engine_load_prompt(engine(), "file", nullptr, e); });
  for (const auto act : {rullama_engine_save_slot, rullama_engine_restore_slot}) {
    refuses([&](auto** e) { return act(nullptr, 0, "file", &tokens, e); });
    refuses([&](auto** e) { return act(engine(), 0, nullptr, &tokens, e); });
    refuses([&](auto** e) { return act(engine(), 0, "file", nullptr, e); });
  }
  refuses([&](auto** e) { return rullama_engine_erase_slot(nullptr, 0, &tokens, e); });
  refuses([&](auto** e) { return rullama_engine_erase_slot(engine(), 0, nullptr, e); });
}

TEST_F(CApi, RefusesUnknownFlags) {
  int32_t* ids = nullptr;
  char* text = nullptr;
  size_t count = 0;
  EXPECT_EQ(ErrorId([&](auto** e) {
              return rullama_engine_tokenize(engine(), "a", 1, RULLAMA_THINKING, &ids, &count, e);
            }),
            "usage.argument");
  EXPECT_EQ(ErrorId([&](auto** e) {
              return rullama_engine_detokenize(engine(), nullptr, 0, 1U << 31, &text, nullptr, e);
            }),
            "usage.argument");
  EXPECT_EQ(ErrorId([&](auto** e) {
              return rullama_engine_chat_tokens(engine(), "[]", nullptr, RULLAMA_ADD_BOS, &ids,
                                                &count, e);
            }),
            "usage.argument");
}

TEST_F(CApi, RefusesBadRequests) {
  const auto id_with = [](auto change) {
    rullama_request request = Prompt("a");
    change(request);
    return SubmitErrorId(request);
  };
  const char* const null_text = nullptr;
  const int32_t no_token = 1 << 20;
  const rullama_logit_bias bias = {no_token, 1};
  EXPECT_EQ(id_with([](auto&) {}), "none");
  EXPECT_EQ(id_with([](auto& r) { r.prompt = nullptr; }), "usage.request");
  EXPECT_EQ(id_with([](auto& r) { r.messages = "[]"; }), "usage.request");
  EXPECT_EQ(id_with([](auto& r) { r.tools = "[]"; }), "usage.request");
  EXPECT_EQ(id_with([](auto& r) { r.thinking = RULLAMA_ON; }), "usage.request");
  EXPECT_EQ(id_with([](auto& r) { r.thinking = 3; }), "usage.argument");
  EXPECT_EQ(id_with([](auto& r) { r.reuse_prefix = -1; }), "usage.argument");
  EXPECT_EQ(id_with([](auto& r) { r.reserved = 1; }), "usage.argument");
  EXPECT_EQ(id_with([](auto& r) { r.reserved2 = 1; }), "usage.argument");
  EXPECT_EQ(id_with([](auto& r) { r.tool_choice = 3; }), "usage.argument");
  EXPECT_EQ(id_with([](auto& r) { r.tool_choice = RULLAMA_TOOLS_REQUIRED; }), "usage.request");
  EXPECT_EQ(id_with([](auto& r) { r.parallel_tool_calls = 3; }), "usage.argument");
  EXPECT_EQ(id_with([](auto& r) { r.reuse_answers = 3; }), "usage.argument");
  EXPECT_EQ(id_with([](auto& r) { r.drafts = 3; }), "usage.argument");
  EXPECT_EQ(id_with([](auto& r) { r.ignore_end = -1; }), "usage.argument");
  const rullama_turn turn = {"user", "a", 0};
  const rullama_turn no_role = {nullptr, "a", 0};
  const rullama_turn no_text = {"user", nullptr, 0};
  const rullama_turn odd_role = {"prince", "a", 0};
  const rullama_turn no_utf8 = {"user", "\xff", 0};
  const rullama_turn no_utf8_role = {"\xff", "a", 0};
  const auto id_of_turn = [&](const rullama_turn& one) {
    return id_with([&](auto& r) { r.prompt = nullptr, r.turns = &one, r.turn_count = 1; });
  };
  EXPECT_EQ(id_of_turn(turn), "none");
  EXPECT_EQ(id_of_turn(no_role), "usage.argument");
  EXPECT_EQ(id_of_turn(no_text), "usage.argument");
  EXPECT_EQ(id_of_turn(odd_role), "chat.role");
  EXPECT_EQ(id_of_turn(no_utf8), "text.utf8");
  EXPECT_EQ(id_of_turn(no_utf8_role), "chat.role");
  EXPECT_EQ(id_with([&](auto& r) { r.turns = &turn, r.turn_count = 1; }), "usage.request");
  EXPECT_EQ(id_with([](auto& r) { r.turn_count = 1; }), "usage.argument");
  EXPECT_EQ(id_with([](auto& r) { r.allowed_tool_count = 1; }), "usage.argument");
  rullama_medium odd = {};
  odd.kind = 7;
  rullama_medium no_bytes = {};
  no_bytes.size = 6;
  rullama_medium picture = no_bytes;
  picture.bytes = "GIF89a";
  EXPECT_EQ(id_with([](auto& r) { r.media_count = 1; }), "usage.argument");
  EXPECT_EQ(id_with([&](auto& r) { r.media = &odd, r.media_count = 1; }), "usage.argument");
  EXPECT_EQ(id_with([&](auto& r) { r.media = &no_bytes, r.media_count = 1; }), "usage.argument");
  EXPECT_EQ(id_with([&](auto& r) { r.media = &picture, r.media_count = 1; }), "media.unsupported");
  EXPECT_EQ(id_with([](auto& r) { r.json_schema = "{"; }), "schema.invalid");
  EXPECT_EQ(id_with([](auto& r) { r.json_schema = R"({"not": {}})"; }), "schema.unsupported");
  EXPECT_EQ(id_with([](auto& r) { r.id_count = 1; }), "usage.argument");
  EXPECT_EQ(id_with([](auto& r) { r.stop_count = 1; }), "usage.argument");
  EXPECT_EQ(id_with([](auto& r) { r.logit_bias_count = 1; }), "usage.argument");
  EXPECT_EQ(id_with([](auto& r) { r.prompt = nullptr, r.prompt_size = 1; }), "usage.argument");
  EXPECT_EQ(id_with([&](auto& r) { r.stop = &null_text, r.stop_count = 1; }), "usage.argument");
  EXPECT_EQ(id_with([](auto& r) { r.prompt = "\xff"; }), "text.utf8");
  EXPECT_EQ(id_with([](auto& r) { r.prompt = nullptr, r.messages = "{"; }), "chat.json");
  EXPECT_EQ(id_with([](auto& r) {
              r.prompt = nullptr, r.messages = "[{\"role\": \"user\", \"content\": \"\xff\"}]";
            }),
            "chat.json");
  EXPECT_EQ(id_with([](auto& r) { r.prompt = nullptr, r.messages = R"({"role": 1})"; }),
            "chat.messages");
  EXPECT_EQ(id_with([&](auto& r) { r.prompt = nullptr, r.ids = &no_token, r.id_count = 1; }),
            "tokenizer.id");
  EXPECT_EQ(id_with([](auto& r) { r.temperature = rullama_given_double(1000); }), "sampler.range");
  EXPECT_EQ(id_with([](auto& r) { r.temperature = rullama_given_double(std::nan("")); }),
            "sampler.range");
  EXPECT_EQ(id_with([](auto& r) { r.top_logprobs = rullama_given_int(21); }), "usage.request");
  EXPECT_EQ(id_with([](auto& r) { r.top_logprobs = rullama_given_int(-1); }), "usage.argument");
  EXPECT_EQ(id_with([](auto& r) { r.top_logprobs = rullama_given_int(int64_t{1} << 32); }),
            "usage.argument");
  EXPECT_NE(id_with([&](auto& r) { r.logit_bias = &bias, r.logit_bias_count = 1; }), "none");
  EXPECT_EQ(Finish(Submit(Prompt("The prince", 2)).get())->id_count, 2U);
}

TEST_F(CApi, PassesOnWhatTheEngineRefuses) {
  int32_t* ids = nullptr;
  char* text = nullptr;
  float* values = nullptr;
  size_t count = 0;
  double sum = 0;
  const int32_t bad[] = {2, 1 << 20};
  EXPECT_EQ(ErrorId([&](auto** e) {
              return rullama_engine_tokenize(engine(), "\xff", 1, 0, &ids, &count, e);
            }),
            "text.utf8");
  EXPECT_EQ(ErrorId([&](auto** e) {
              return rullama_engine_detokenize(engine(), bad, 2, 0, &text, nullptr, e);
            }),
            "tokenizer.id");
  EXPECT_EQ(ErrorId([&](auto** e) {
              return rullama_engine_chat_tokens(engine(), "{", nullptr, 0, &ids, &count, e);
            }),
            "chat.json");
  EXPECT_EQ(ErrorId([&](auto** e) {
              return rullama_engine_embed(engine(), "\xff", 1, &values, &count, e);
            }),
            "text.utf8");
  EXPECT_EQ(ErrorId([&](auto** e) {
              return rullama_engine_negative_log_likelihood(engine(), bad, 2, &sum, e);
            }),
            "tokenizer.id");
  for (const rullama_embedding_options& options :
       {VectorOptions("query"), VectorOptions(nullptr, 1 << 20)}) {
    EXPECT_EQ(ErrorId([&](auto** e) {
                return rullama_engine_embed_with(engine(), "a", 1, &options, &values, &count, e);
              }),
              "usage.request");
  }
  const rullama_embedding_options all = VectorOptions();
  rullama_request content = {};
  content.struct_size = sizeof content;
  content.messages = R"([{"role": "user", "content": "a"}])";
  EXPECT_EQ(ErrorId([&](auto** e) {
              return rullama_engine_embed_content(engine(), &content, &all, &values, &count, e);
            }),
            "model.encoder");
  EXPECT_EQ(ErrorId([&](auto** e) {
              return rullama_engine_negative_log_likelihood(engine(), bad, 1, &sum, e);
            }),
            "usage.request");
}

// An exception of a callback that is C++ all the same ends at the border.
TEST_F(CApi, NoExceptionLeaves) {
  const GenerationPtr generation = Submit(Prompt("The prince"));
  const auto throws = [](void*, const rullama_event*) -> int { throw std::bad_alloc(); };
  EXPECT_EQ(ErrorId([&](auto** e) {
              return rullama_generation_wait(generation.get(), throws, nullptr, e);
            }),
            "memory.host");
  const auto throws_int = [](void*, const rullama_event*) -> int { throw 7; };
  EXPECT_EQ(ErrorId([&](auto** e) {
              return rullama_generation_wait(generation.get(), throws_int, nullptr, e);
            }),
            "run.exception");
}

// The sizes of version 1.0 (layout_v1_0.def).
constexpr size_t kFirstRequest = 288;
constexpr size_t kFirstOptions = 80;

// A struct at the end of its allocation: the sanitizers see a read beyond it.
template <typename T>
std::unique_ptr<unsigned char[]> Sized(const T& from, size_t size) {
  auto bytes = std::make_unique<unsigned char[]>(size);
  std::memcpy(bytes.get(), &from, std::min(size, sizeof from));
  const auto written = static_cast<uint32_t>(size);
  std::memcpy(bytes.get(), &written, sizeof written);
  return bytes;
}

TEST_F(CApi, TakesStructsOfOtherVersions) {
  const auto submit = [](const unsigned char* bytes) {
    rullama_generation* generation = nullptr;
    const std::string id = ErrorId([&](auto** e) {
      return rullama_engine_submit(engine(), reinterpret_cast<const rullama_request*>(bytes),
                                   &generation, e);
    });
    rullama_generation_free(generation);
    return id;
  };
  const rullama_request request = Prompt("a");
  auto newer = Sized(request, sizeof request + 24);
  EXPECT_EQ(submit(newer.get()), "none");
  newer[sizeof request + 23] = 1;
  EXPECT_EQ(submit(newer.get()), "usage.struct");
  EXPECT_EQ(submit(Sized(request, kFirstRequest).get()), "none");
  for (const size_t size : {size_t{4}, kFirstRequest - 4}) {
    EXPECT_EQ(submit(Sized(request, size).get()), "usage.struct");
  }
  rullama_request none = request;
  none.struct_size = 0;
  EXPECT_EQ(SubmitErrorId(none), "usage.struct");
  none.struct_size = 0xCDCDCDCD;
  EXPECT_EQ(SubmitErrorId(none), "usage.struct");
}

TEST(CApiOpen, TakesStructsOfOtherVersions) {
  rullama_engine_options options = Options();
  options.model = "/nowhere/model.gguf";
  const auto id_of = [](const unsigned char* bytes) {
    return OpenErrorId(reinterpret_cast<const rullama_engine_options*>(bytes));
  };
  auto newer = Sized(options, sizeof options + 8);
  EXPECT_EQ(id_of(newer.get()), "io.open");
  newer[sizeof options] = 1;
  EXPECT_EQ(id_of(newer.get()), "usage.struct");
  EXPECT_EQ(id_of(Sized(options, kFirstOptions).get()), "io.open");
  EXPECT_EQ(id_of(Sized(options, kFirstOptions - 8).get()), "usage.struct");
}

}  // namespace
}  // namespace rullama
