// The C interface of librullama, used through the shared library on a tiny trained model: what it
// gives is what the C++ interface gives, and wrong use is an error.
#include <gmock/gmock.h>
#include <rullama/engine/engine.h>
#include <rullama/rullama.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/c_api/c_api_test_util.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::StrEq;

TEST_F(CApi, KnowsItsVersions) {
  EXPECT_STREQ(rullama_version(), RULLAMA_VERSION);
  EXPECT_EQ(rullama_c_api_version(), RULLAMA_C_API_MAJOR * 65536U + RULLAMA_C_API_MINOR);
}

TEST_F(CApi, SaysWhatWasLoaded) {
  const rullama_model_info* info = rullama_engine_info(engine());
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(info->struct_size, sizeof *info);
  EXPECT_STREQ(info->architecture, "gemma4");
  EXPECT_STREQ(info->backend, "cpu");
  EXPECT_THAT(info->name, HasSubstr("tiny-e2b"));
  EXPECT_STRNE(info->device, "");
  EXPECT_EQ(info->capacity, 512);
  EXPECT_EQ(info->slots, 2);
  EXPECT_GT(info->layers, 0);
  EXPECT_GT(info->vocabulary, 0);
  EXPECT_GE(info->context_length, 512);
  EXPECT_EQ(info->canvas_length, 0);
  EXPECT_EQ(rullama_engine_info(nullptr), nullptr);
}

// Every member of a request reaches the C++ interface, and every member of its answer comes back.
TEST_F(CApi, AnswersAsTheCxxInterface) {
  const rullama_logit_bias biases[] = {{300, 2.0F}, {301, -1.0F}};
  const char* const stops[] = {"never written", "qqq"};
  rullama_request request = Prompt("The prince", 24);
  request.temperature = rullama_given_double(0.8);
  request.top_k = rullama_given_int(20);
  request.top_p = rullama_given_double(0.9);
  request.min_p = rullama_given_double(0.01);
  request.typical_p = rullama_given_double(0.99);
  request.repeat_penalty = rullama_given_double(1.1);
  request.repeat_last_n = rullama_given_int(32);
  request.frequency_penalty = rullama_given_double(0.1);
  request.presence_penalty = rullama_given_double(0.2);
  request.logit_bias = biases;
  request.logit_bias_count = std::size(biases);
  request.stop = stops;
  request.stop_count = std::size(stops);
  request.top_logprobs = rullama_given_int(2);
  request.reuse_prefix = RULLAMA_OFF;
  const GenerationPtr generation = Submit(request);
  const rullama_completion* completion = Finish(generation.get());

  const auto cxx = Engine::Open({.model = kE2b,
                                 .backend = "cpu",
                                 .settings = {{"context.capacity", "512"}},
                                 .plugin_paths = {kPlugins[0]}});
  ASSERT_TRUE(cxx) << cxx.error().ToString();
  Request same{.prompt = "The prince",
               .max_tokens = 24,
               .stop = {"never written", "qqq"},
               .sampling = {.temperature = 0.8,
                            .top_k = 20,
                            .top_p = 0.9,
                            .min_p = 0.01,
                            .typical_p = 0.99,
                            .repeat_penalty = 1.1,
                            .repeat_last_n = 32,
                            .frequency_penalty = 0.1,
                            .presence_penalty = 0.2,
                            .logit_bias = {{300, 2.0F}, {301, -1.0F}},
                            .seed = 7},
               .top_logprobs = 2};
  auto started = (*cxx)->Submit(same);
  ASSERT_TRUE(started) << started.error().ToString();
  const auto expected = started->Wait();
  ASSERT_TRUE(expected) << expected.error().ToString();

  EXPECT_EQ(completion->struct_size, sizeof *completion);
  EXPECT_EQ(std::string(completion->text, completion->text_size), expected->text);
  EXPECT_STREQ(completion->text, expected->text.c_str());
  EXPECT_STREQ(completion->thoughts, "");
  EXPECT_EQ(completion->tool_call_count, 0U);
  EXPECT_THAT(std::vector(completion->ids, completion->ids + completion->id_count),
              ElementsAreArray(expected->ids));
  EXPECT_EQ(completion->reason, static_cast<int>(expected->reason));
  EXPECT_EQ(completion->seed, 7);
  EXPECT_EQ(completion->prompt_tokens, expected->prompt_tokens);
  EXPECT_EQ(completion->cached_tokens, 0);
  EXPECT_GT(completion->generate_seconds, 0);
  ASSERT_EQ(completion->logprob_count, expected->logprobs.size());
  for (size_t i = 0; i < expected->logprobs.size(); ++i) {
    const rullama_logprob_step& step = completion->logprobs[i];
    EXPECT_EQ(step.drawn.token, expected->logprobs[i].drawn.token);
    EXPECT_EQ(step.drawn.logprob, expected->logprobs[i].drawn.logprob);
    ASSERT_EQ(step.top_count, 2U);
    EXPECT_EQ(step.top[1].token, expected->logprobs[i].top[1].token);
    EXPECT_EQ(step.top[1].logprob, expected->logprobs[i].top[1].logprob);
  }
}

TEST_F(CApi, EventsJoinedAreTheCompletion) {
  const GenerationPtr generation = Submit(Prompt("The prince", 12));
  std::string text;
  int64_t read = 0;
  for (;;) {
    const rullama_event* event = nullptr;
    ASSERT_EQ(rullama_generation_next(generation.get(), &event, nullptr), RULLAMA_OK);
    if (event == nullptr) break;
    EXPECT_EQ(event->struct_size, sizeof *event);
    EXPECT_STREQ(event->call.name, "");
    if (event->kind == RULLAMA_EVENT_TEXT) text.append(event->text, event->text_size);
    if (event->kind == RULLAMA_EVENT_PROGRESS) read = event->done;
  }
  const rullama_completion* completion = Finish(generation.get());
  EXPECT_EQ(text, completion->text);
  EXPECT_EQ(completion->id_count, 12U);
  EXPECT_EQ(completion->reason, RULLAMA_STOP_MAX_TOKENS);
  EXPECT_EQ(read, completion->prompt_tokens);
}

TEST_F(CApi, WaitHandsOutPartsAndCanBeCancelled) {
  const GenerationPtr generation = Submit(Prompt("The prince", -1));
  int parts = 0;
  const auto two_parts = [](void* data, const rullama_event* event) -> int {
    if (event->kind == RULLAMA_EVENT_TEXT) ++*static_cast<int*>(data);
    return *static_cast<int*>(data) == 2 ? 1 : 0;
  };
  ASSERT_EQ(rullama_generation_wait(generation.get(), two_parts, &parts, nullptr), RULLAMA_OK);
  EXPECT_GE(parts, 2);
  EXPECT_EQ(Finish(generation.get())->reason, RULLAMA_STOP_CANCELLED);
}

// A thread that waits for an answer continues when another one cancels it.
TEST_F(CApi, AnyThreadCancels) {
  rullama_request request = Prompt("The prince", -1);
  const rullama_logit_bias no_end[] = {{1, -100.0F}};
  request.logit_bias = no_end;
  request.logit_bias_count = 1;
  const GenerationPtr generation = Submit(request);
  std::atomic<bool> begun = false;
  std::thread other([&] {
    begun.wait(false);
    rullama_generation_cancel(generation.get());
    rullama_generation_cancel(generation.get());
  });
  const auto tell = [](void* data, const rullama_event* /*event*/) -> int {
    auto* flag = static_cast<std::atomic<bool>*>(data);
    flag->store(true);
    flag->notify_one();
    return 0;
  };
  EXPECT_EQ(rullama_generation_wait(generation.get(), tell, &begun, nullptr), RULLAMA_OK);
  other.join();
  EXPECT_EQ(Finish(generation.get())->reason, RULLAMA_STOP_CANCELLED);
}

TEST_F(CApi, ThreadsShareAnEngine) {
  const std::string alone = Finish(Submit(Prompt("The prince")).get())->text;
  std::array<std::string, 4> texts;
  std::vector<std::thread> threads;
  for (std::string& text : texts) {
    threads.emplace_back([&text] {
      const GenerationPtr generation = Submit(Prompt("The prince"));
      text = Finish(generation.get())->text;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(texts, ElementsAre(alone, alone, alone, alone));
}

TEST(CApiLifetime, AGenerationKeepsItsEngine) {
  EnginePtr engine = Open(Options());
  ASSERT_NE(engine, nullptr);
  const rullama_request request = Prompt("The prince");
  rullama_generation* generation = nullptr;
  ASSERT_EQ(rullama_engine_submit(engine.get(), &request, &generation, nullptr), RULLAMA_OK);
  const GenerationPtr owner(generation);
  engine.reset();
  EXPECT_EQ(rullama_generation_wait(generation, nullptr, nullptr, nullptr), RULLAMA_OK);
  const rullama_completion* completion = nullptr;
  ASSERT_EQ(rullama_generation_completion(generation, &completion, nullptr), RULLAMA_OK);
  EXPECT_EQ(completion->id_count, 8U);
}

// The child does not have the engine's threads: a call that would wait for them is an error or does
// nothing.
TEST(CApiLifetime, AChildOfAForkIsRefusedAtOnce) {
  EnginePtr engine = Open(Options());
  ASSERT_NE(engine, nullptr);
  const rullama_request request = Prompt("The prince");
  rullama_generation* generation = nullptr;
  ASSERT_EQ(rullama_engine_submit(engine.get(), &request, &generation, nullptr), RULLAMA_OK);
  GenerationPtr owner(generation);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // instead of hanging
    const bool refused = ErrorId([&](rullama_error** error) {
                           rullama_generation* another = nullptr;
                           return rullama_engine_submit(engine.get(), &request, &another, error);
                         }) == "engine.forked" &&
                         ErrorId([&](rullama_error** error) {
                           return rullama_generation_wait(generation, nullptr, nullptr, error);
                         }) == "engine.forked";
    rullama_generation_cancel(generation);
    owner.reset();
    engine.reset();
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(rullama_generation_wait(generation, nullptr, nullptr, nullptr), RULLAMA_OK);
}

TEST_F(CApi, ChatsWithTheTemplate) {
  constexpr const char* kMessages = R"([{"role": "user", "content": "Who is Anna Pavlovna?"}])";
  constexpr const char* kTools =
      R"([{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}])";
  int32_t* ids = nullptr;
  size_t count = 0;
  ASSERT_EQ(rullama_engine_chat_tokens(engine(), kMessages, kTools, RULLAMA_THINKING, &ids, &count,
                                       nullptr),
            RULLAMA_OK);
  const Buffer<int32_t> owner(ids);
  char* text = nullptr;
  ASSERT_EQ(rullama_engine_detokenize(engine(), ids, count, RULLAMA_SHOW_CONTROL, &text, nullptr,
                                      nullptr),
            RULLAMA_OK);
  const Buffer<char> text_owner(text);
  EXPECT_THAT(text, HasSubstr("<|turn>user"));
  EXPECT_THAT(text, HasSubstr("look"));
  EXPECT_THAT(text, HasSubstr("<|think|>"));

  rullama_request request = Prompt(nullptr);
  request.messages = kMessages;
  request.tools = kTools;
  request.thinking = RULLAMA_ON;
  EXPECT_EQ(Finish(Submit(request).get())->prompt_tokens, static_cast<int64_t>(count));
  request.thinking = RULLAMA_OFF;
  EXPECT_NE(Finish(Submit(request).get())->prompt_tokens, static_cast<int64_t>(count));
}

// Role and text apart are the conversation that JSON would have been, whatever the text has in it.
TEST_F(CApi, TurnsAreMessagesWithoutJson) {
  rullama_request request = Prompt(nullptr, 12);
  request.messages =
      R"([{"role": "system", "content": "Say \"no\"."}, {"role": "user", "content": "Who\n?<turn|>"},)"
      R"( {"role": "assistant", "content": "A \\ b"}, {"role": "user", "content": "And {}?"}])";
  const GenerationPtr json = Submit(request);
  const rullama_completion* expected = Finish(json.get());

  constexpr std::string_view kLast = "And {}? What follows is not part of it";
  const rullama_turn turns[] = {{"system", "Say \"no\".", 0},
                                {"user", "Who\n?<turn|>", RULLAMA_TERMINATED},
                                {"assistant", "A \\ b", 0},
                                {"user", kLast.data(), 7}};
  request.messages = nullptr;
  request.turns = turns;
  request.turn_count = std::size(turns);
  const GenerationPtr apart = Submit(request);
  const rullama_completion* completion = Finish(apart.get());
  EXPECT_EQ(completion->prompt_tokens, expected->prompt_tokens);
  EXPECT_STREQ(completion->text, expected->text);
  EXPECT_THAT(std::vector(completion->ids, completion->ids + completion->id_count),
              ElementsAreArray(expected->ids, expected->id_count));
}

TEST_F(CApi, AnswersHaveTheFormThatIsAsked) {
  constexpr const char* kTools =
      R"([{"type": "function", "function": {"name": "look"}},)"
      R"( {"type": "function", "function": {"name": "listen", "parameters": {"type": "object",)"
      R"( "properties": {"to": {"enum": ["Anna", "Boris"]}}, "required": ["to"]}}}])";
  rullama_request request = Prompt(nullptr, 60);
  request.messages = R"([{"role": "user", "content": "Who is Anna Pavlovna?"}])";
  request.json_schema = R"({"enum": ["a countess", "a maid"]})";
  const GenerationPtr word = Submit(request);
  EXPECT_THAT(Finish(word.get())->text,
              ::testing::AnyOf(StrEq(R"("a countess")"), StrEq(R"("a maid")")));

  const char* const allowed[] = {"listen"};
  request.json_schema = nullptr;
  request.tools = kTools;
  request.tool_choice = RULLAMA_TOOLS_REQUIRED;
  request.allowed_tools = allowed;
  request.allowed_tool_count = std::size(allowed);
  request.parallel_tool_calls = RULLAMA_OFF;
  const GenerationPtr generation = Submit(request);
  const rullama_completion* completion = Finish(generation.get());
  ASSERT_EQ(completion->tool_call_count, 1U);
  EXPECT_STREQ(completion->tool_calls[0].name, "listen");
  EXPECT_THAT(completion->tool_calls[0].arguments, HasSubstr(R"("to":)"));
  EXPECT_STREQ(completion->text, "");
}

TEST_F(CApi, AnswersAreReusedIfAsked) {
  std::vector<int32_t> ids = Tokens("The prince and the princess went out", 0);
  rullama_request request = Prompt(nullptr, 4);
  request.reuse_answers = RULLAMA_ON;
  request.ids = ids.data();
  request.id_count = ids.size();
  const GenerationPtr first = Submit(request);
  const rullama_completion* answer = Finish(first.get());
  ASSERT_EQ(answer->id_count, 4U);
  ids.insert(ids.end(), answer->ids, answer->ids + answer->id_count);
  request.ids = ids.data();
  request.id_count = ids.size();
  // The last token of an answer has no row yet.
  EXPECT_EQ(Finish(Submit(request).get())->cached_tokens, static_cast<int64_t>(ids.size()) - 1);
}

TEST_F(CApi, AnswersContinueAfterTheirEnd) {
  // The end token is all but certain from the first token on.
  const rullama_logit_bias to_the_end[] = {{1, 100.0F}};
  rullama_request request = Prompt("The prince", 8);
  request.logit_bias = to_the_end;
  request.logit_bias_count = 1;
  const GenerationPtr ended = Submit(request);
  EXPECT_EQ(Finish(ended.get())->reason, RULLAMA_STOP_END_OF_GENERATION);
  request.ignore_end = RULLAMA_ON;
  const GenerationPtr goes_on = Submit(request);
  EXPECT_EQ(Finish(goes_on.get())->reason, RULLAMA_STOP_MAX_TOKENS);
}

// Settings ask for drafts; a request can leave them out, and its answer tells their number.
TEST(CApiDrafts, AreSettingsAndAreCounted) {
  const rullama_setting settings[] = {{"context.capacity", "256"},
                                      {"backend.device", "0"},
                                      {"drafts.model", kE2b},
                                      {"drafts.max", "3"},
                                      {"generation.stop", "[never written, qqq]"}};
  rullama_engine_options options = Options();
  options.settings = settings;
  options.setting_count = std::size(settings);
  const EnginePtr engine = Open(options);
  ASSERT_NE(engine, nullptr);
  rullama_request request = Prompt("The prince", 16);
  std::string texts[2];
  int64_t drafted[2] = {};
  int64_t accepted[2] = {};
  for (const int32_t drafts : {RULLAMA_DEFAULT, RULLAMA_OFF}) {
    request.drafts = drafts;
    rullama_generation* generation = nullptr;
    ASSERT_EQ(rullama_engine_submit(engine.get(), &request, &generation, nullptr), RULLAMA_OK);
    const GenerationPtr owner(generation);
    ASSERT_EQ(rullama_generation_wait(generation, nullptr, nullptr, nullptr), RULLAMA_OK);
    const rullama_completion* completion = nullptr;
    ASSERT_EQ(rullama_generation_completion(generation, &completion, nullptr), RULLAMA_OK);
    const size_t i = drafts == RULLAMA_OFF ? 1 : 0;
    texts[i] = completion->text;
    drafted[i] = completion->drafted_tokens;
    accepted[i] = completion->accepted_tokens;
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_GT(accepted[0], 0);
  EXPECT_GE(drafted[0], accepted[0]);
  EXPECT_EQ(drafted[1], 0);
  EXPECT_EQ(accepted[1], 0);
}

TEST_F(CApi, TokensGoThereAndBack) {
  const std::vector<int32_t> plain = Tokens("<|turn>user", RULLAMA_PLAIN_TEXT);
  const std::vector<int32_t> special = Tokens("<|turn>user", 0);
  const std::vector<int32_t> with_bos = Tokens("<|turn>user", RULLAMA_ADD_BOS);
  EXPECT_GT(plain.size(), special.size());
  EXPECT_EQ(with_bos.size(), special.size() + 1);
  char* text = nullptr;
  size_t size = 0;
  ASSERT_EQ(
      rullama_engine_detokenize(engine(), plain.data(), plain.size(), 0, &text, &size, nullptr),
      RULLAMA_OK);
  const Buffer<char> owner(text);
  EXPECT_STREQ(text, "<|turn>user");
  EXPECT_EQ(size, 11U);
  EXPECT_TRUE(Tokens("", 0).empty());
  // Sizes count zero bytes as text, and nothing at all is a text.
  int32_t* ids = nullptr;
  size_t count = 0;
  ASSERT_EQ(rullama_engine_tokenize(engine(), "a\0b", 3, 0, &ids, &count, nullptr), RULLAMA_OK);
  rullama_free(ids);
  EXPECT_GT(count, Tokens("a", 0).size());
  ASSERT_EQ(rullama_engine_tokenize(engine(), nullptr, 0, 0, &ids, &count, nullptr), RULLAMA_OK);
  rullama_free(ids);
  EXPECT_EQ(count, 0U);
}

TEST_F(CApi, EmbedsAndScores) {
  float* values = nullptr;
  size_t count = 0;
  ASSERT_EQ(
      rullama_engine_embed(engine(), "Prince Vasili", RULLAMA_TERMINATED, &values, &count, nullptr),
      RULLAMA_OK);
  const Buffer<float> owner(values);
  EXPECT_EQ(static_cast<int64_t>(count), rullama_engine_info(engine())->width);
  double squares = 0;
  for (size_t i = 0; i < count; ++i) squares += static_cast<double>(values[i]) * values[i];
  EXPECT_NEAR(squares, 1, 1e-5);

  const std::vector<int32_t> ids = Tokens("It was in July, 1805", RULLAMA_ADD_BOS);
  struct Rows {
    int64_t count = 0;
    double surprise = 0;
    const std::vector<int32_t>& ids;
  } seen{.ids = ids};
  const auto add = [](void* data, int64_t first, int64_t rows, int64_t vocabulary,
                      const float* logits) -> int {
    auto& sum = *static_cast<Rows*>(data);
    EXPECT_EQ(first, sum.count);
    for (int64_t row = 0; row < rows; ++row, logits += vocabulary) {
      const size_t next = static_cast<size_t>(++sum.count);
      if (next == sum.ids.size()) break;
      double total = 0;
      for (int64_t i = 0; i < vocabulary; ++i) total += std::exp(static_cast<double>(logits[i]));
      sum.surprise += std::log(total) - logits[sum.ids[next]];
    }
    return 0;
  };
  ASSERT_EQ(rullama_engine_logits(engine(), ids.data(), ids.size(), add, &seen, nullptr),
            RULLAMA_OK);
  EXPECT_EQ(seen.count, static_cast<int64_t>(ids.size()));
  double sum = 0;
  ASSERT_EQ(rullama_engine_negative_log_likelihood(engine(), ids.data(), ids.size(), &sum, nullptr),
            RULLAMA_OK);
  EXPECT_NEAR(sum, seen.surprise, 1e-6 * sum);
}

TEST(CApiPrompts, GoThroughAFile) {
  rullama_engine_options options = Options();
  const rullama_setting settings[] = {{"context.capacity", "512"}, {"context.prefill_chunk", "8"}};
  options.settings = settings;
  options.setting_count = std::size(settings);
  const EnginePtr engine = Open(options);
  ASSERT_NE(engine, nullptr);
  const std::string path =
      ::testing::TempDir() + "c_prompt_" + std::to_string(::getpid()) + ".gguf";
  const rullama_request request =
      Prompt("Well, Prince, so Genoa and Lucca are now just family estates of the Buonapartes.");
  int64_t saved = 0;
  ASSERT_EQ(rullama_engine_save_prompt(engine.get(), &request, path.c_str(), &saved, nullptr),
            RULLAMA_OK);
  EXPECT_GE(saved, 8);
  EXPECT_EQ(saved % 8, 0);
  int64_t loaded = 0;
  EXPECT_EQ(rullama_engine_load_prompt(engine.get(), path.c_str(), &loaded, nullptr), RULLAMA_OK);
  EXPECT_EQ(loaded, saved);
  std::filesystem::remove(path);
}

TEST(CApiSlots, AreSavedAndRestored) {
  rullama_engine_options options = Options();
  const rullama_setting settings[] = {
      {"context.capacity", "512"}, {"context.prefill_chunk", "8"}, {"context.slots", "2"}};
  options.settings = settings;
  options.setting_count = std::size(settings);
  const EnginePtr engine = Open(options);
  ASSERT_NE(engine, nullptr);
  const std::string path = ::testing::TempDir() + "c_slot_" + std::to_string(::getpid());
  int64_t tokens = -1;
  rullama_error* error = nullptr;
  EXPECT_NE(rullama_engine_save_slot(engine.get(), 1, path.c_str(), &tokens, &error), RULLAMA_OK);
  EXPECT_STREQ(rullama_error_id(error), "slot.empty");
  rullama_error_free(error);
  rullama_request request =
      Prompt("Well, Prince, so Genoa and Lucca are now just family estates of the Buonapartes.");
  request.max_tokens = rullama_given_int(1);
  request.slot = rullama_given_int(1);
  rullama_generation* generation = nullptr;
  ASSERT_EQ(rullama_engine_submit(engine.get(), &request, &generation, nullptr), RULLAMA_OK);
  ASSERT_EQ(rullama_generation_wait(generation, nullptr, nullptr, nullptr), RULLAMA_OK);
  rullama_generation_free(generation);
  int64_t saved = 0;
  ASSERT_EQ(rullama_engine_save_slot(engine.get(), 1, path.c_str(), &saved, nullptr), RULLAMA_OK);
  EXPECT_GT(saved, 8);
  ASSERT_EQ(rullama_engine_erase_slot(engine.get(), 1, &tokens, nullptr), RULLAMA_OK);
  EXPECT_EQ(tokens, saved);
  EXPECT_EQ(rullama_engine_restore_slot(engine.get(), 0, path.c_str(), &tokens, nullptr),
            RULLAMA_OK);
  EXPECT_EQ(tokens, saved);
  EXPECT_NE(rullama_engine_restore_slot(engine.get(), 2, path.c_str(), &tokens, nullptr),
            RULLAMA_OK);
  request.slot = rullama_given_int(-1);
  EXPECT_EQ(rullama_engine_submit(engine.get(), &request, &generation, nullptr),
            RULLAMA_ERROR_USAGE);
  std::filesystem::remove(path);
}

TEST(CApiDiffusion, ShowsDrafts) {
  rullama_engine_options options = Options();
  options.model = RULLAMA_SOURCE_DIR "/tests/data/tiny-diffusion-Q4_K_M.gguf";
  const EnginePtr engine = Open(options);
  ASSERT_NE(engine, nullptr);
  EXPECT_GT(rullama_engine_info(engine.get())->canvas_length, 0);
  const rullama_request request = Prompt("The prince");
  rullama_generation* generation = nullptr;
  ASSERT_EQ(rullama_engine_submit(engine.get(), &request, &generation, nullptr), RULLAMA_OK);
  const GenerationPtr owner(generation);
  int64_t last_draft = 0;
  const auto see = [](void* data, const rullama_event* event) -> int {
    if (event->kind != RULLAMA_EVENT_DRAFT) return 0;
    EXPECT_GT(event->text_size, 0U);
    EXPECT_GE(event->total, event->done);
    *static_cast<int64_t*>(data) = event->done;
    return 0;
  };
  ASSERT_EQ(rullama_generation_wait(generation, see, &last_draft, nullptr), RULLAMA_OK);
  EXPECT_GT(last_draft, 0);
  float* values = nullptr;
  size_t count = 0;
  EXPECT_EQ(ErrorId([&](auto** error) {
              return rullama_engine_embed(engine.get(), "a", 1, &values, &count, error);
            }),
            "model.canvas");
}

TEST_F(CApi, EmbedsWithOptions) {
  rullama_embedding_options options = VectorOptions(nullptr, 16);
  const char* text = "Prince Vasili";
  const auto embed = [&](size_t& count) {
    float* values = nullptr;
    EXPECT_EQ(rullama_engine_embed_with(engine(), text, RULLAMA_TERMINATED, &options, &values,
                                        &count, nullptr),
              RULLAMA_OK);
    return Buffer<float>(values);
  };
  size_t count = 0;
  const Buffer<float> cut = embed(count);
  ASSERT_EQ(count, 16U);
  double squares = 0;
  for (size_t i = 0; i < count; ++i) squares += static_cast<double>(cut[i]) * cut[i];
  EXPECT_NEAR(squares, 1, 1e-5);
  options.dimensions = 0;
  const Buffer<float> whole = embed(count);
  EXPECT_EQ(static_cast<int64_t>(count), rullama_engine_info(engine())->width);
  EXPECT_NEAR(cut[1] / cut[0], whole[1] / whole[0], 1e-4);
}

TEST_F(CApi, ErrorsHaveTheirParts) {
  const std::vector<int32_t> many(600, 5);
  rullama_request request = Prompt(nullptr);
  request.ids = many.data();
  request.id_count = many.size();
  rullama_generation* generation = nullptr;
  rullama_error* error = nullptr;
  EXPECT_EQ(rullama_engine_submit(engine(), &request, &generation, &error), RULLAMA_ERROR_RUNTIME);
  const ErrorPtr owner(error);
  EXPECT_EQ(rullama_error_code(error), RULLAMA_ERROR_RUNTIME);
  EXPECT_STREQ(rullama_error_id(error), "context.overflow");
  EXPECT_STREQ(rullama_error_message(error),
               "the prompt has 600 tokens, but the context holds 512");
  EXPECT_THAT(rullama_error_hint(error), StartsWith("shorten the prompt or raise"));
  EXPECT_EQ(std::string(rullama_error_text(error)), std::string(rullama_error_message(error)) +
                                                        "; " + rullama_error_hint(error) +
                                                        " [context.overflow]");
}

TEST(CApiErrors, ASemicolonInTheNameOfAFileBeginsNoHint) {
  rullama_engine_options options = Options();
  options.model = "/nowhere/isn't; here.gguf";
  rullama_engine* engine = nullptr;
  rullama_error* error = nullptr;
  EXPECT_EQ(rullama_engine_open(&options, &engine, &error), RULLAMA_ERROR_IO);
  const ErrorPtr owner(error);
  EXPECT_THAT(rullama_error_message(error), HasSubstr("isn't; here.gguf"));
}

TEST(CApiErrors, AccessorsTakeNull) {
  EXPECT_EQ(rullama_error_code(nullptr), RULLAMA_OK);
  EXPECT_STREQ(rullama_error_id(nullptr), "");
  EXPECT_STREQ(rullama_error_message(nullptr), "");
  EXPECT_STREQ(rullama_error_hint(nullptr), "");
  EXPECT_STREQ(rullama_error_text(nullptr), "");
  rullama_error_free(nullptr);
  rullama_generation_free(nullptr);
  rullama_generation_cancel(nullptr);
  rullama_engine_free(nullptr);
  rullama_free(nullptr);
}

}  // namespace
}  // namespace rullama
