// The public interface on a tiny trained model: the answer to a request, alone and together with
// others.
#include "engine/api/engine.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "engine/engine_access.h"
#include "engine/loading/engine_config.h"
#include "samplers/settings.h"
#include "tests/engine/no_notices_test_util.h"
#include "tests/fakes/adapter_folder.h"
#include "tests/gpu_backends.h"

namespace {
std::atomic<bool> no_snapshots = false;  // there is no memory for any
}  // namespace

// The allocation of snapshots, which alone asks in this way.
void* operator new[](size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  if (no_snapshots) return nullptr;
  try {
    return ::operator new[](bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

namespace rullama {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kE2b = RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf";
constexpr const char* kDiffusion = RULLAMA_SOURCE_DIR "/tests/data/tiny-diffusion-Q4_K_M.gguf";
constexpr const char* kPlugins = RULLAMA_BINARY_DIR "/lib/rullama";

std::shared_ptr<Engine> Open(const std::string& backend, int slots = 1,
                             std::vector<Setting> settings = {}, const char* model = kE2b) {
  settings.push_back({"context.slots", std::to_string(slots)});
  settings.push_back({"context.capacity", "512"});
  settings.push_back({"backend.device", "0"});  // also one in software
  return Must(Engine::Open(
      {.model = model, .backend = backend, .settings = settings, .plugin_paths = {kPlugins}}));
}

Completion Answer(Engine& engine, const Request& request) {
  auto generation = Must(engine.Submit(request));
  return Must(generation.Wait());
}

std::string ErrorId(const Result<Generation>& result) {
  return result ? "none" : result.error().id;
}

// Requests of different lengths, settings and seeds.
std::vector<Request> MixedRequests(int count) {
  const std::string text =
      "Well, Prince, so Genoa and Lucca are now just family estates of the Buonapartes. But I warn "
      "you, if you don't tell me that this means war, if you still try to defend the infamies";
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request{.prompt = text.substr(0, 20 + static_cast<size_t>(i) * 9), .max_tokens = 24};
    request.sampling.seed = 100 + i;
    switch (i % 4) {
      case 0:
        request.sampling.temperature = 0;
        break;
      case 1:
        request.sampling.temperature = 0.8;
        request.sampling.top_k = 20;
        break;
      case 2:
        request.sampling.repeat_penalty = 1.3;
        request.sampling.top_k = 0;
        break;
      default:
        request.sampling.logit_bias = {{300, 2.0F}, {301, -1.0F}};
        request.top_logprobs = 2;
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

class EachBackend : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, EachBackend, ::testing::ValuesIn(BackendNames()), kBackendName);

// Tokens of an answer: few on the GPU backends, whose drivers in software take long for a step.
int64_t AnswerTokens(std::string_view backend, int64_t on_cpu, int64_t on_gpu) {
  return backend == "cpu" ? on_cpu : on_gpu;
}

TEST_P(EachBackend, SixteenAtOnceGiveTheBytesOfEachAlone) {
  constexpr int kRequests = 16;
  std::vector<Request> requests = MixedRequests(kRequests);
  for (size_t i = 1; i < requests.size(); i += 2) requests[i].top_logprobs = 20;
  // A GPU backend computes all sixteen rows of a plan in each step, also for one request.
  for (Request& request : requests) request.max_tokens = AnswerTokens(GetParam(), 24, 4);
  const auto engine = Open(GetParam(), kRequests, {{"context.prefill_chunk", "32"}});
  std::vector<Completion> alone;
  alone.reserve(requests.size());
  for (const Request& request : requests) alone.push_back(Answer(*engine, request));

  std::vector<Generation> running;
  running.reserve(requests.size());
  for (const Request& request : requests) running.push_back(Must(engine->Submit(request)));
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    const Completion together = Must(running[i].Wait());
    EXPECT_THAT(together.ids, ElementsAreArray(alone[i].ids));
    EXPECT_EQ(together.text, alone[i].text);
    EXPECT_EQ(together.reason, alone[i].reason);
    EXPECT_EQ(together.logprobs, alone[i].logprobs);  // of logits to the last bit
    EXPECT_FALSE(together.ids.empty());
  }
}

TEST(EngineTest, TheNextTurnReusesThePromptUpToTheLastTurnBorder) {
  const std::string text(300, 'a');
  const std::string first = R"([{"role": "user", "content": ")" + text + R"("})";
  const auto engine = Open("cpu", 1, {{"context.prefill_chunk", "384"}});
  const Completion before = Answer(*engine, {.messages = first + "]", .max_tokens = 4});
  Request request{.messages = first + R"(, {"role": "assistant", "content": "Yes."},)"
                                      R"( {"role": "user", "content": "Why?"}])",
                  .max_tokens = 8};
  request.sampling.seed = 7;
  auto generation = Must(engine->Submit(request));
  int64_t progressed = 0;
  const Completion reused = Must(generation.Wait([&](const Event& event) {
    if (event.kind == Event::Kind::kProgress) progressed = event.reused;
    return true;
  }));
  EXPECT_GE(reused.cached_tokens, 64);
  EXPECT_LT(reused.cached_tokens, before.prompt_tokens);
  EXPECT_EQ(progressed, reused.cached_tokens);
  request.reuse_prefix = false;
  const Completion fresh = Answer(*engine, request);
  EXPECT_EQ(fresh.cached_tokens, 0);
  EXPECT_THAT(reused.ids, ElementsAreArray(fresh.ids));
}

// Retrieval and summaries: turns have the same document and then another question.
TEST(EngineTest, AnotherQuestionAboutADocumentReusesItsWholeChunks) {
  constexpr int64_t kChunk = 128;
  const auto engine = Open("cpu", 1, {{"context.prefill_chunk", std::to_string(kChunk)}});
  std::string document;
  int64_t tokens = 0;
  // The border after the question has to be far enough from the last whole chunk to be a cut.
  while (tokens < 2 * kChunk || tokens % kChunk < 80) {
    document += "Prince Andrew rode on. ";
    tokens = std::ssize(Must(engine->Tokenize(document, true, true)));
  }
  const auto ask = [&document](const std::string& question) {
    return Request{.messages = R"([{"role": "user", "content": ")" + document + question + R"("}])",
                   .max_tokens = 4};
  };
  Answer(*engine, ask("Who?"));
  Request request = ask("Why?");
  request.sampling.seed = 7;
  const Completion reused = Answer(*engine, request);
  EXPECT_EQ(reused.cached_tokens, tokens / kChunk * kChunk);
  request.reuse_prefix = false;
  EXPECT_THAT(reused.ids, ElementsAreArray(Answer(*engine, request).ids));
}

// A conversation that continues after an answer reads only the new turn, if it asks for that.
TEST(EngineTest, TheNextTurnReusesAnAnswerIfAsked) {
  const auto engine = Open("cpu");
  Request request{.ids = Must(engine->Tokenize("The prince", true, true)),
                  .max_tokens = 6,
                  .reuse_answers = true,
                  .ignore_end = true};
  request.sampling.temperature = 0;
  const Completion before = Answer(*engine, request);
  request.ids.insert(request.ids.end(), before.ids.begin(), before.ids.end());
  const int64_t written = std::ssize(request.ids) - 1;  // the last token has no row
  request.ids.push_back(300);
  Request fresh = request;
  EXPECT_EQ(Answer(*engine, request).cached_tokens, written);
  fresh.reuse_answers = false;
  EXPECT_EQ(Answer(*engine, fresh).cached_tokens, 0);
  request.stop = {"no such text"};
  EXPECT_EQ(Answer(*engine, request).cached_tokens, 0);
}

// More requests than slots, from several threads.
TEST(EngineTest, ThreadsShareSlots) {
  constexpr int kThreads = 6;
  const std::vector<Request> requests = MixedRequests(kThreads);
  const auto engine = Open("cpu", 2);
  std::vector<Completion> alone;
  for (const Request& request : requests) alone.push_back(Answer(*engine, request));
  std::vector<std::string> texts(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      texts[static_cast<size_t>(i)] = Answer(*engine, requests[static_cast<size_t>(i)]).text;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], alone[i].text) << i;
}

TEST_P(EachBackend, GreedyTextIsTheGolden) {
  std::ifstream file(RULLAMA_SOURCE_DIR "/tests/data/golden/tiny-e2b-Q4_K_M.json");
  const auto golden = nlohmann::json::parse(file);
  const auto engine = Open(GetParam());
  ASSERT_FALSE(golden["greedy"].empty());
  for (const auto& one : golden["greedy"]) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const auto expected = one["greedy"].get<std::vector<int32_t>>();
    Request request{.ids = one["prompt"].get<std::vector<int32_t>>(),
                    .max_tokens = std::ssize(expected)};
    request.sampling.temperature = 0;
    EXPECT_THAT(Answer(*engine, request).ids, ElementsAreArray(expected));
  }
}

TEST(EngineTest, EventsJoinedAreTheCompletion) {
  const auto engine = Open("cpu");
  auto generation = Must(engine->Submit({.prompt = "The prince", .max_tokens = 12}));
  std::string text;
  int64_t read = 0;
  for (;;) {
    const std::optional<Event> event = Must(generation.Next());
    if (!event) break;
    if (event->kind == Event::Kind::kText) text += event->text;
    if (event->kind == Event::Kind::kProgress) read = event->done;
  }
  const Completion& completion = generation.completion();
  EXPECT_EQ(text, completion.text);
  EXPECT_EQ(completion.ids.size(), 12U);
  EXPECT_EQ(completion.reason, StopReason::kMaxTokens);
  EXPECT_EQ(read, completion.prompt_tokens);
  EXPECT_GE(completion.prompt_seconds, 0);
}

TEST(EngineTest, AStopTextEndsTheAnswerInFrontOfIt) {
  const auto engine = Open("cpu");
  Request request{.prompt = "The prince", .max_tokens = 40};
  request.sampling.temperature = 0;
  const std::string whole = Answer(*engine, request).text;
  ASSERT_GT(whole.size(), 10U);
  const std::string stop = whole.substr(6, 3);
  request.stop = {"no such text", stop};
  const Completion cut = Answer(*engine, request);
  EXPECT_EQ(cut.text, whole.substr(0, whole.find(stop)));
  EXPECT_EQ(cut.reason, StopReason::kStopped);
  EXPECT_EQ(cut.stop_text, stop);
}

TEST(EngineTest, CancelledRequestsLeaveTheirSlotToOthers) {
  const auto engine = Open("cpu");
  for (int i = 0; i < 20; ++i) {
    auto generation = Must(engine->Submit({.prompt = "The prince"}));
    Must(generation.Next());
    if (i % 2 == 0) {
      generation.Cancel();
      EXPECT_EQ(Must(generation.Wait()).reason, StopReason::kCancelled);
    }
  }
  EXPECT_EQ(Answer(*engine, {.prompt = "The prince", .max_tokens = 3}).ids.size(), 3U);
}

// A conversation continues after the rows that its slot holds of it, and the answer is the one that
// a slot without it gives: below the window of the tiny model (64 tokens) and far above it, and
// also when another conversation was held in between.
TEST_P(EachBackend, ReusedPrefixesChangeNothing) {
  const auto engine = Open(GetParam(), 2, {{"context.prefill_chunk", "16"}});
  std::vector<int32_t> prompt = {2};
  for (const size_t length : {24, 60, 200, 290}) {
    SCOPED_TRACE(length);
    while (prompt.size() < length) {
      prompt.push_back(300 + static_cast<int32_t>(prompt.size() * prompt.size() % 1700));
    }
    Request request{.ids = prompt, .max_tokens = AnswerTokens(GetParam(), 20, 6)};
    request.sampling.seed = 5;
    const Completion reused = Answer(*engine, request);
    request.reuse_prefix = false;
    const Completion fresh = Answer(*engine, request);
    EXPECT_THAT(reused.ids, ElementsAreArray(fresh.ids));
    EXPECT_EQ(fresh.cached_tokens, 0);
    EXPECT_GE(reused.cached_tokens, length > 24 ? 16 : 0) << "nothing was reused";
    request.reuse_prefix = true;
    const Completion again = Answer(*engine, request);
    EXPECT_THAT(again.ids, ElementsAreArray(fresh.ids));
    EXPECT_EQ(again.cached_tokens, (std::ssize(prompt) - 1) / 16 * 16);
    Answer(*engine,
           {.prompt = "Another conversation, which takes the other slot.", .max_tokens = 4});
  }
}

// Requests whose prompt another slot holds, busy or not, copy its rows and give the same answer.
TEST(EngineTest, PromptsAreCopiedBetweenSlots) {
  const auto engine =
      Open("cpu", 3, {{"context.prefill_chunk", "16"}, {"backend.options.threads", "1"}});
  std::vector<int32_t> start(160);
  std::iota(start.begin(), start.end(), 300);
  Answer(*engine, {.ids = start, .max_tokens = 1});
  std::vector<Request> requests;
  for (int i = 0; i < 3; ++i) {
    Request request{.ids = start, .max_tokens = 12};
    request.ids.insert(request.ids.end(), {400 + i, 500 + i, 600 + i});
    request.sampling.seed = i;
    requests.push_back(std::move(request));
  }
  std::vector<Generation> running;
  running.reserve(requests.size());
  for (const Request& request : requests) running.push_back(Must(engine->Submit(request)));
  for (size_t i = 0; i < running.size(); ++i) {
    const Completion copied = Must(running[i].Wait());
    EXPECT_EQ(copied.cached_tokens, 160);
    requests[i].reuse_prefix = false;
    EXPECT_THAT(copied.ids, ElementsAreArray(Answer(*engine, requests[i]).ids));
  }
}

TEST(EngineTest, PromptsAreReadWhereThereIsNoMemoryToCopyThem) {
  const auto engine =
      Open("cpu", 3, {{"context.prefill_chunk", "16"}, {"backend.options.threads", "1"}});
  std::vector<int32_t> start(160);
  std::iota(start.begin(), start.end(), 300);
  Answer(*engine, {.ids = start, .max_tokens = 1});
  Request request{.ids = start, .max_tokens = 12};
  request.ids.push_back(400);
  request.sampling.seed = 1;
  no_snapshots = true;
  std::vector<Generation> copies;
  copies.reserve(3);
  for (int i = 0; i < 3; ++i) copies.push_back(Must(engine->Submit(request)));
  std::vector<Completion> answers;
  answers.reserve(6);
  for (Generation& copy : copies) answers.push_back(Must(copy.Wait()));
  request.reuse_prefix = false;
  std::vector<Generation> choices = Must(engine->SubmitChoices(request, 3));
  for (Generation& choice : choices) answers.push_back(Must(choice.Wait()));
  no_snapshots = false;
  EXPECT_EQ(answers[0].cached_tokens, 160) << "in its slot";
  EXPECT_EQ(answers[1].cached_tokens, 0);
  const Completion alone = Answer(*engine, request);
  for (size_t i = 0; i < 4; ++i) EXPECT_THAT(answers[i].ids, ElementsAreArray(alone.ids)) << i;
  for (const uint32_t choice : {1U, 2U}) {
    request.choice = choice;
    EXPECT_THAT(answers[3 + choice].ids, ElementsAreArray(Answer(*engine, request).ids)) << choice;
  }
}

TEST(EngineTest, SnapshotsLargerThanTheCacheAreNotKept) {
  const auto engine = Must(Engine::Open({.model = kE2b,
                                         .backend = "cpu",
                                         .settings = {{"context.capacity", "2048"},
                                                      {"context.kv_dtype", "f32"},
                                                      {"context.prefill_chunk", "64"},
                                                      {"server.prefix_cache_mib", "1"}},
                                         .plugin_paths = {kPlugins}}));
  std::vector<int32_t> prompt(1600);
  std::iota(prompt.begin(), prompt.end(), 300);
  Answer(*engine, {.ids = prompt, .max_tokens = 1});
  EXPECT_EQ(engine->stats().prefix_oversized, 0U) << "the rings alone are small";
  Answer(*engine, {.prompt = "Another prompt", .max_tokens = 1});
  EXPECT_EQ(engine->stats().prefix_oversized, 1U);
  EXPECT_GT(Answer(*engine, {.ids = prompt, .max_tokens = 1}).cached_tokens, 0)
      << "a shorter snapshot is kept";
}

// A slot's prompt is kept in host memory while others use the slot, as long as there is room.
TEST(EngineTest, PromptsOutliveTheirSlot) {
  const auto cached_after = [](const char* mib, int others) {
    const auto engine = Open("cpu", 1,
                             {{"context.prefill_chunk", "64"},
                              {"server.prefix_cache_mib", mib},
                              {"backend.options.threads", "1"}});
    const auto prompt = [](int first) {
      std::vector<int32_t> ids(130);
      std::iota(ids.begin(), ids.end(), first);
      return ids;
    };
    Answer(*engine, {.ids = prompt(300), .max_tokens = 1});
    for (int i = 1; i <= others; ++i) Answer(*engine, {.ids = prompt(300 + i), .max_tokens = 1});
    const int64_t cached = Answer(*engine, {.ids = prompt(300), .max_tokens = 1}).cached_tokens;
    EXPECT_LE(engine->stats().prefix_bytes, engine->info().prefix_cache_bytes);
    EXPECT_EQ(engine->stats().prefix_evictions > 0, others > 4);
    return cached;
  };
  EXPECT_EQ(cached_after("64", 3), 128);
  EXPECT_EQ(cached_after("0", 3), 0);
  EXPECT_EQ(cached_after("1", 12), 0);
}

// The prompts of several lengths go through a file into another engine, which has the same answers.
TEST_P(EachBackend, StoredPromptsChangeNothing) {
  const std::string path =
      ::testing::TempDir() + "stored_prompt_" + std::to_string(::getpid()) + ".gguf";
  const std::vector<Setting> settings = {{"context.prefill_chunk", "16"}};
  const auto writer = Open(GetParam(), 2, settings);
  const auto reader = Open(GetParam(), 2, settings);
  std::vector<int32_t> prompt = {2};
  for (const size_t length : {17, 60, 200}) {
    SCOPED_TRACE(length);
    while (prompt.size() < length) {
      prompt.push_back(300 + static_cast<int32_t>(prompt.size() * prompt.size() % 1700));
    }
    Request request{.ids = prompt, .max_tokens = AnswerTokens(GetParam(), 12, 6)};
    request.sampling.seed = 5;
    const int64_t whole = std::ssize(prompt) / 16 * 16;
    EXPECT_EQ(Must(writer->SavePrompt(request, path)), whole);
    EXPECT_EQ(Must(reader->LoadPrompt(path)), whole);
    const Completion loaded = Answer(*reader, request);
    EXPECT_EQ(loaded.cached_tokens, (std::ssize(prompt) - 1) / 16 * 16);
    request.reuse_prefix = false;
    EXPECT_THAT(loaded.ids, ElementsAreArray(Answer(*writer, request).ids));
  }
  std::filesystem::remove(path);
}

// What a slot holds goes through a file into another engine, which has the same answers as one that
// reads all of the prompt.
TEST_P(EachBackend, SavedSlotsChangeNothing) {
  const SlotFile file{.path = ::testing::TempDir() + "slot_" + std::to_string(::getpid()),
                      .owner = "ann"};
  const std::vector<Setting> settings = {{"context.prefill_chunk", "16"}};
  const auto writer = Open(GetParam(), 2, settings);
  const auto reader = Open(GetParam(), 2, settings);
  std::vector<int32_t> prompt = {2};
  for (const size_t length : {17, 60, 200}) {
    SCOPED_TRACE(length);
    while (prompt.size() < length) {
      prompt.push_back(300 + static_cast<int32_t>(prompt.size() * prompt.size() % 1700));
    }
    Request request{.ids = prompt, .max_tokens = AnswerTokens(GetParam(), 12, 6), .slot = 1};
    request.sampling.seed = 5;
    const Completion first = Answer(*writer, request);
    EXPECT_GE(writer->slots()[1].tokens, std::ssize(prompt) + std::ssize(first.ids) - 1);
    const SlotTransfer saved = Must(writer->SaveSlot(1, 0, file));
    EXPECT_EQ(saved.tokens, writer->slots()[1].tokens);
    EXPECT_EQ(saved.bytes, std::filesystem::file_size(file.path));
    EXPECT_EQ(Must(reader->RestoreSlot(0, 0, file)).tokens, saved.tokens);
    EXPECT_EQ(reader->slots()[0].tokens, saved.tokens);
    request.slot = 0;
    const Completion restored = Answer(*reader, request);
    EXPECT_EQ(restored.cached_tokens, (std::ssize(prompt) - 1) / 16 * 16);
    request.reuse_prefix = false;
    EXPECT_THAT(restored.ids, ElementsAreArray(Answer(*writer, request).ids));
  }
  std::filesystem::remove(file.path);
}

TEST(EngineTest, RefusesSlotsOfOthersAndKeepsWhatItHas) {
  const SlotFile file{.path = ::testing::TempDir() + "others_slot_" + std::to_string(::getpid()),
                      .owner = "ann"};
  const auto engine = Open("cpu", 1, {{"context.prefill_chunk", "16"}});
  const Request request{.ids = std::vector<int32_t>(40, 300), .max_tokens = 1, .client = 7};
  EXPECT_EQ(engine->SaveSlot(0, 7, file).error().id, "slot.empty");
  Answer(*engine, request);
  EXPECT_EQ(engine->SaveSlot(0, 8, file).error().id, "slot.empty");
  EXPECT_EQ(engine->SaveSlot(1, 7, file).error().id, "usage.request");
  SlotFile small = file;
  small.room = [] { return uint64_t{100}; };
  EXPECT_EQ(engine->SaveSlot(0, 7, small).error().id, "slot.limit");
  EXPECT_FALSE(std::filesystem::exists(file.path));
  ASSERT_TRUE(engine->SaveSlot(0, 7, file));
  const auto other = Open("cpu", 1, {{"context.prefill_chunk", "8"}});
  const auto mismatch = other->RestoreSlot(0, 7, file);
  ASSERT_FALSE(mismatch);
  EXPECT_EQ(mismatch.error().id, "slot.mismatch");
  EXPECT_THAT(mismatch.error().message, HasSubstr("length of a chunk"));
  SlotFile of_bob = file;
  of_bob.owner = "bob";
  EXPECT_EQ(engine->RestoreSlot(0, 8, of_bob).error().id, "slot.not_found");
  const auto replaced = engine->SaveSlot(0, 7, of_bob);
  ASSERT_FALSE(replaced);
  EXPECT_EQ(replaced.error().id, "slot.not_found");
  EXPECT_TRUE(engine->SaveSlot(0, 7, file)) << "its owner may replace it";
  std::fstream(file.path, std::ios::in | std::ios::out).seekp(-6, std::ios::end).write("damage", 6);
  EXPECT_EQ(engine->RestoreSlot(0, 8, of_bob).error().id, "slot.not_found") << "rows are not read";
  EXPECT_EQ(engine->RestoreSlot(0, 7, file).error().id, "slot.corrupt");
  std::filesystem::resize_file(file.path, 1000);
  EXPECT_EQ(engine->RestoreSlot(0, 7, file).error().id, "slot.corrupt");
  EXPECT_EQ(Answer(*engine, request).cached_tokens, 32);
  EXPECT_EQ(Must(engine->EraseSlot(0, 8)), 0);
  EXPECT_EQ(Must(engine->EraseSlot(0, 7)), 40);
  EXPECT_EQ(Answer(*engine, request).cached_tokens, 0);
  std::filesystem::remove(file.path);
}

TEST(EngineTest, RefusesStoredPromptsOfOthers) {
  const std::string path =
      ::testing::TempDir() + "others_prompt_" + std::to_string(::getpid()) + ".gguf";
  const auto engine = Open("cpu", 1, {{"context.prefill_chunk", "16"}});
  const Request request{.ids = std::vector<int32_t>(32, 300)};
  ASSERT_TRUE(engine->SavePrompt(request, path));
  const auto id = [](const Result<int64_t>& result) { return result ? "none" : result.error().id; };
  EXPECT_EQ(id(Open("cpu", 1, {{"context.prefill_chunk", "8"}})->LoadPrompt(path)),
            "snapshot.mismatch");
  EXPECT_EQ(id(Open("cpu", 1, {{"context.prefill_chunk", "16"}},
                    RULLAMA_SOURCE_DIR "/tests/data/tiny-moe-Q4_K_M.gguf")
                   ->LoadPrompt(path)),
            "snapshot.mismatch");
  const std::string adapter = path + ".adapter";
  WriteAdapterFolder(adapter, 512);
  const auto adapted = Must(Engine::Open({.model = kE2b,
                                          .backend = "cpu",
                                          .settings = {{"context.prefill_chunk", "16"}},
                                          .adapters = {adapter},
                                          .plugin_paths = {kPlugins}}));
  EXPECT_EQ(id(adapted->LoadPrompt(path)), "snapshot.mismatch");
  std::filesystem::remove_all(adapter);
  EXPECT_EQ(id(Open("cpu", 1, {}, kDiffusion)->LoadPrompt(path)), "model.canvas");
  EXPECT_EQ(id(engine->LoadPrompt(kE2b)), "snapshot.file");
  EXPECT_EQ(id(engine->LoadPrompt(path + ".missing")), "io.open");
  EXPECT_EQ(id(engine->SavePrompt({.ids = {2, 3}}, path)), "usage.request");
  EXPECT_EQ(id(engine->SavePrompt(request, "/missing/folder/file")), "io.open");
  std::filesystem::remove(path);
}

// A reader that takes nothing holds up its own request only.
TEST(EngineTest, ASlowReaderHoldsUpNobodyElse) {
  const auto engine = Open("cpu", 2, {{"sampler.logit_bias.1", "-100"}});
  auto slow = Must(engine->Submit({.prompt = "The prince"}));
  EXPECT_EQ(Answer(*engine, {.prompt = "It was", .max_tokens = 300}).reason,
            StopReason::kMaxTokens);
  const Completion late = Must(slow.Wait());
  EXPECT_FALSE(late.text.empty());
}

TEST(EngineTest, TheEndOfAnEngineEndsItsRequests) {
  auto engine = Open("cpu", 1);
  auto generation = Must(engine->Submit({.prompt = "The prince"}));
  engine.reset();  // the generation keeps it
  EXPECT_FALSE(Must(generation.Wait()).text.empty());
}

TEST(EngineTest, ChatsWithTheTemplate) {
  const auto engine = Open("cpu");
  const std::string messages = R"([{"role": "user", "content": "Who is Anna Pavlovna?"}])";
  const auto ids = Must(engine->ChatTokens(messages));
  const Completion answer = Answer(*engine, {.messages = messages, .max_tokens = 8});
  EXPECT_EQ(answer.prompt_tokens, std::ssize(ids));
  EXPECT_THAT(Must(engine->Detokenize(ids, /*show_control=*/true)), HasSubstr("<|turn>user"));
}

TEST(EngineTest, TheAssistantsLastMessageIsContinued) {
  const auto engine = Open("cpu");
  const std::string question = R"({"role": "user", "content": "Begin."})";
  const std::string begin = "It was in July,";
  Request request{
      .messages = "[" + question + R"(, {"role": "assistant", "content": ")" + begin + R"("}])",
      .continue_last = true,
      .max_tokens = 8};
  request.sampling.temperature = 0;
  const auto prompt =
      Must(engine->Detokenize(Must(engine->ChatTokens("[" + question + "]")), true));
  Request text{.prompt = prompt + begin, .max_tokens = 8};
  text.sampling.temperature = 0;
  EXPECT_EQ(Answer(*engine, request).ids, Answer(*engine, text).ids);
  request.messages = "[" + question + "]";
  EXPECT_EQ(ErrorId(engine->Submit(request)), "chat.continue");
}

TEST(EngineTest, AThoughtEndsWithItsTokens) {
  const auto engine = Open("cpu");
  const auto ids = [&](int64_t most) {
    // After the result of a tool the prompt opens the thought.
    Request request{.messages =
                        R"([{"role": "user", "content": "Who?"},
                {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f"}}]},
                {"role": "tool", "tool_call_id": "a", "content": "Anna"}])",
                    .thinking = true,
                    .max_thought_tokens = most,
                    .max_tokens = 24};
    request.sampling.seed = 1;
    request.ignore_end = true;
    return Answer(*engine, request);
  };
  const Completion free = ids(-1);
  EXPECT_EQ(free.thought_tokens, 24);
  for (const int64_t most : {0, 1, 7}) {
    const Completion held = ids(most);
    EXPECT_EQ(held.thought_tokens, most);
    ASSERT_GT(std::ssize(held.ids), most);
    const size_t end = static_cast<size_t>(most);
    EXPECT_EQ(Must(engine->TokenBytes(held.ids[end])), "<channel|>");
    EXPECT_TRUE(std::equal(held.ids.begin(), held.ids.begin() + most, free.ids.begin()));
  }
}

TEST(EngineTest, ThoseOfThePromptAreThoseOfTheLogits) {
  const auto engine = Open("cpu");
  const auto prompt = Must(engine->Tokenize("The prince said that he", true, true));
  Request request{.ids = prompt, .max_tokens = 4, .prompt_logprobs = 3};
  request.sampling.temperature = 0;
  request.sampling.repeat_penalty = 1.5;
  const Completion answer = Answer(*engine, request);
  ASSERT_EQ(answer.prompt_logprobs.size(), prompt.size() - 1);
  EXPECT_EQ(answer.cached_tokens, 0);
  const auto vocabulary = static_cast<size_t>(engine->info().vocabulary);
  const Status status = engine->Logits(prompt, [&](int64_t first, std::span<const float> logits) {
    for (size_t row = 0; row * vocabulary < logits.size(); ++row) {
      const size_t at = static_cast<size_t>(first) + row;
      if (at + 1 == prompt.size()) continue;
      const auto one = logits.subspan(row * vocabulary, vocabulary);
      const auto value = [&](int32_t token) { return one[static_cast<size_t>(token)]; };
      double sum = 0;
      for (const float x : one) sum += std::exp(static_cast<double>(x));
      const PromptLogprob& score = answer.prompt_logprobs[at];
      EXPECT_EQ(score.own.token, prompt[at + 1]);
      EXPECT_NEAR(score.own.logprob, value(score.own.token) - std::log(sum), 1e-4);
      const auto above =
          std::ranges::count_if(one, [&](float x) { return x > value(score.own.token); });
      EXPECT_GE(score.rank, above + 1);
      EXPECT_EQ(score.top.size(), 3U);
      EXPECT_EQ(value(score.top.front().token), std::ranges::max(one));
    }
    return true;
  });
  ASSERT_TRUE(status) << status.error().ToString();
  // Penalties see the prompt as they do without the scores.
  request.prompt_logprobs = -1;
  EXPECT_EQ(Answer(*engine, request).ids, answer.ids);
}

TEST(EngineTest, AnswersToOnePromptShareItsLogprobs) {
  const auto engine = Open("cpu", 2);
  Request request{.prompt = "The prince said that he", .max_tokens = 3, .prompt_logprobs = 1};
  request.sampling.seed = 1;
  auto answers = Must(engine->SubmitChoices(request, 2));
  const Completion first = Must(answers[0].Wait());
  const Completion second = Must(answers[1].Wait());
  EXPECT_FALSE(first.prompt_logprobs.empty());
  EXPECT_EQ(first.prompt_logprobs, second.prompt_logprobs);
  request.max_tokens = 0;
  const Completion read = Answer(*engine, request);
  EXPECT_TRUE(read.ids.empty());
  EXPECT_EQ(read.reason, StopReason::kMaxTokens);
  EXPECT_EQ(read.prompt_logprobs, first.prompt_logprobs);
}

TEST(EngineTest, LogprobsAreThoseOfTheLogits) {
  const auto engine = Open("cpu");
  const auto prompt = Must(engine->Tokenize("The prince", true, true));
  const Completion answer = Answer(*engine, {.ids = prompt, .max_tokens = 1, .top_logprobs = 3});
  ASSERT_EQ(answer.logprobs.size(), 1U);
  std::vector<float> last;
  const Status status =
      engine->Logits(prompt, [&](int64_t /*first*/, std::span<const float> logits) {
        last.assign(logits.end() - engine->info().vocabulary, logits.end());
        return true;
      });
  ASSERT_TRUE(status) << status.error().ToString();
  double sum = 0;
  for (const float x : last) sum += std::exp(static_cast<double>(x));
  const auto logprob = [&](int32_t token) {
    return last[static_cast<size_t>(token)] - std::log(sum);
  };
  const LogprobStep& step = answer.logprobs.front();
  // f16 activations of a step of another size.
  constexpr double kTolerance = 2e-2;
  EXPECT_NEAR(step.drawn.logprob, logprob(step.drawn.token), kTolerance);
  ASSERT_EQ(step.top.size(), 3U);
  for (const TokenLogprob& top : step.top) {
    EXPECT_NEAR(top.logprob, logprob(top.token), kTolerance);
  }
  EXPECT_EQ(step.top.front().token, std::max_element(last.begin(), last.end()) - last.begin());
}

TEST(EngineTest, EmbeddingsAreUnitVectorsThatDependOnTheText) {
  const auto engine = Open("cpu", 2, {{"context.prefill_chunk", "16"}});
  const auto dot = [](const std::vector<float>& a, const std::vector<float>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  const std::string prince =
      "Prince Vasili always spoke languidly, like an actor repeating a stale part.";
  const auto first = Must(engine->Embed(prince));
  const auto again = Must(engine->Embed(prince));
  const auto other = Must(engine->Embed("1 2 3 4"));
  EXPECT_EQ(std::ssize(first), engine->info().width);
  EXPECT_NEAR(dot(first, first), 1, 1e-5);
  EXPECT_EQ(first, again);
  EXPECT_LT(dot(first, other), 0.999);
}

TEST(EngineTest, TextEventsCarryTheLogprobsOfTheirTokens) {
  const auto engine = Open("cpu");
  const Request request{
      .messages = R"([{"role": "user", "content": "Hello"}])", .max_tokens = 40, .top_logprobs = 1};
  std::vector<LogprobStep> steps;
  std::string bytes;
  auto generation = Must(engine->Submit(request));
  const Completion answer = Must(generation.Wait([&](const Event& event) {
    for (const LogprobStep& step : event.logprobs) {
      steps.push_back(step);
      bytes += Must(engine->TokenBytes(step.drawn.token));
    }
    return true;
  }));
  ASSERT_EQ(answer.thought_tokens, 0);
  EXPECT_EQ(steps, answer.logprobs);
  EXPECT_EQ(bytes.substr(0, answer.text.size()), answer.text);
}

TEST(EngineTest, LogprobsEndWithTheTextInFrontOfAStopText) {
  const auto engine = Open("cpu");
  Request request{.prompt = "The prince", .max_tokens = 24, .top_logprobs = 0};
  request.sampling.temperature = 0;
  const std::string stop = Answer(*engine, request).text.substr(12, 5);
  request.stop = {stop};
  std::string bytes;
  auto generation = Must(engine->Submit(request));
  const Completion answer = Must(generation.Wait([&](const Event& event) {
    for (const LogprobStep& step : event.logprobs) {
      bytes += Must(engine->TokenBytes(step.drawn.token));
    }
    return true;
  }));
  EXPECT_THAT(bytes, ::testing::StartsWith(answer.text));
  EXPECT_LT(bytes.size(), answer.text.size() + 10);  // the last token may reach into the stop text
}

TEST(EngineTest, AnswersWithoutAnEndFillTheirLimit) {
  const auto engine = Open("cpu");
  Request request{.messages = R"([{"role": "user", "content": "Hello"}])", .max_context = 100};
  request.sampling.seed = 1;
  request.sampling.logit_bias = {{Must(engine->Tokenize("<turn|>")).front(), 20.0F}};
  EXPECT_EQ(Answer(*engine, request).reason, StopReason::kEndOfGeneration);
  request.ignore_end = true;
  // There is room for the end tokens in addition to as many biases as a request may have.
  for (int32_t token = 300; std::ssize(request.sampling.logit_bias) < kMaxLogitBiases; ++token) {
    request.sampling.logit_bias[token] = -1;
  }
  const Completion answer = Answer(*engine, request);
  EXPECT_EQ(answer.reason, StopReason::kContextFull);
  // The last token that is drawn is not read.
  EXPECT_EQ(answer.prompt_tokens + std::ssize(answer.ids), 101);
}

TEST(EngineTest, ChoicesHaveRandomNumbersOfTheirOwn) {
  const auto engine = Open("cpu");
  Request request{.prompt = "The prince", .max_tokens = 24};
  request.sampling.temperature = 1.5;
  request.sampling.seed = 7;
  const Completion first = Answer(*engine, request);
  request.choice = 1;
  EXPECT_NE(Answer(*engine, request).ids, first.ids);
  request.choice = 0;
  EXPECT_EQ(Answer(*engine, request).ids, first.ids);
}

TEST(EngineTest, ChoicesShareTheReadingOfTheirPrompt) {
  const auto engine =
      Open("cpu", 4, {{"context.prefill_chunk", "64"}, {"backend.options.threads", "1"}});
  Request request{.prompt = "The prince", .max_tokens = 12, .top_logprobs = 0};
  request.sampling.temperature = 1.5;
  request.sampling.seed = 7;
  std::vector<Generation> together = Must(engine->SubmitChoices(request, 4));
  together[2].Cancel();
  for (const size_t i : {0, 1, 3}) {
    const Completion choice = Must(together[i].Wait());
    request.choice = static_cast<uint32_t>(i);
    const Completion alone = Answer(*engine, request);
    EXPECT_THAT(choice.ids, ElementsAreArray(alone.ids)) << i;
    EXPECT_EQ(choice.logprobs, alone.logprobs) << i;
  }
  EXPECT_EQ(Must(together[2].Wait()).reason, StopReason::kCancelled);
  const Histogram chunks = engine->stats().prompt.rows;
  EXPECT_EQ(std::accumulate(chunks.counts.begin(), chunks.counts.end(), uint64_t{0}), 4U)
      << "one for all choices together, and three for the others";
  // The last chunk has one row.
  request.ids = std::vector<int32_t>(65, 300);
  request.prompt.clear();
  request.choice = 0;
  std::vector<Generation> few = Must(engine->SubmitChoices(request, 3));
  for (uint32_t i = 0; i < 3; ++i) {
    request.choice = i;
    const Completion choice = Must(few[i].Wait());
    EXPECT_THAT(choice.ids, ElementsAreArray(Answer(*engine, request).ids)) << i;
  }
  EXPECT_FALSE(engine->SubmitChoices(request, 5));
  EXPECT_FALSE(engine->SubmitChoices(request, 0));
}

// A prompt may have fewer tokens than choices.
TEST(EngineTest, ChoicesOfShortPromptsAreThoseOfEachAlone) {
  const auto engine = Open("cpu", 4);
  Request request{.max_tokens = 3};
  request.sampling.temperature = 1.5;
  request.sampling.seed = 7;
  for (const size_t tokens : {1, 2, 3, 5}) {
    request.ids = std::vector<int32_t>(tokens, 300);
    for (const uint32_t choices : {2, 3, 4}) {
      request.choice = 0;
      std::vector<Generation> together = Must(engine->SubmitChoices(request, choices));
      for (uint32_t i = 0; i < choices; ++i) {
        request.choice = i;
        EXPECT_THAT(Must(together[i].Wait()).ids, ElementsAreArray(Answer(*engine, request).ids))
            << tokens << " tokens, choice " << i << " of " << choices;
      }
    }
  }
}

TEST(EngineTest, TellsWhatItDoes) {
  const auto engine = Open("cpu", 2);
  const Request request{.prompt = "The prince", .max_tokens = 5, .ignore_end = true};
  EXPECT_EQ(Must(engine->CountPrompt(request)), Answer(*engine, request).prompt_tokens);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.slots, 2);
  const auto sum = [](const Histogram& histogram) {
    return std::accumulate(histogram.counts.begin(), histogram.counts.end(), uint64_t{0});
  };
  EXPECT_EQ(sum(stats.decode.rows), 4U);  // the first token comes with the prompt
  EXPECT_EQ(sum(stats.prompt.rows), 1U);
  const auto metadata = nlohmann::json::parse(engine->Metadata(16));
  EXPECT_EQ(metadata["general.architecture"], "gemma4");
  EXPECT_TRUE(metadata["tokenizer.ggml.tokens"].is_null());
  EXPECT_EQ(engine->info().quantization, "Q4_K_M");
  EXPECT_EQ(engine->info().digest.size(), 64U);
  EXPECT_GT(engine->info().load_seconds, 0);
}

TEST(EngineTest, NothingIsCompiledOrAllocatedAfterThePrompt) {
  const auto engine = Open("cpu");
  const Completion answer = Answer(*engine, {.prompt = "The prince", .max_tokens = 5});
  EXPECT_GT(answer.after_prompt.compilations, 0U);
  EXPECT_EQ(answer.at_end.compilations, answer.after_prompt.compilations);
  EXPECT_EQ(answer.at_end.allocations, answer.after_prompt.allocations);
  EXPECT_EQ(answer.at_end.steps, answer.after_prompt.steps + answer.ids.size() - 1);
  EXPECT_GT(answer.at_end.state_bytes, 0U);
}

// As `rullama run` opens a model, which gives no flag of its own for the warm-up.
TEST(EngineTest, AWarmUpEndsWithItsProcess) {
  NoNotices notices;
  EngineSetup setup{.plugin_paths = {kPlugins}, .warm_up = WarmUp::kAll};
  setup.hooks.cancelled = std::make_shared<const std::atomic<bool>>(true);
  const EngineOptions options{.model = kE2b, .backend = "cpu", .plugin_paths = {kPlugins}};
  LoadedModel model = Must(LoadModel(Must(ConfigOf(options)), {}, notices));
  const auto opened = EngineAccess::Open(std::move(model), setup, notices);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().id, "run.cancelled");
}

TEST(EngineTest, AWarmModelHasThePlansOfAllSizes) {
  const auto plans_of_two = [](const char* warm_up) {
    const auto engine = Open("cpu", 2, {{"backend.warm_up", warm_up}});
    const Completion first = Answer(*engine, {.prompt = "The prince", .max_tokens = 2});
    const std::string text(400, 'a');
    const Completion second = Answer(*engine, {.prompt = text, .max_tokens = 2});
    return std::pair(first.after_prompt.plans, second.at_end.plans);
  };
  const auto [cold, cold_end] = plans_of_two("off");
  EXPECT_LT(cold, cold_end);
  const auto [warm, warm_end] = plans_of_two("dispatch");
  EXPECT_GT(warm, cold_end);
  EXPECT_EQ(warm, warm_end);
}

TEST(EngineTest, TheConfiguredSystemPromptCanBeLeftOut) {
  const auto engine = Open("cpu", 1, {{"generation.system", "Be brief."}});
  Request request{.messages = R"([{"role": "user", "content": "Why?"}])"};
  const int64_t with = Must(engine->CountPrompt(request));
  request.default_system = false;
  EXPECT_LT(Must(engine->CountPrompt(request)), with);
}

TEST(EngineTest, PerplexityIsThatOfTheLogits) {
  const auto engine = Open("cpu");
  const auto ids = Must(engine->Tokenize("It was in July, 1805, and the speaker was", true, true));
  const double nll = Must(engine->NegativeLogLikelihood(ids));
  EXPECT_GT(nll, 0);
  EXPECT_LT(nll / static_cast<double>(ids.size() - 1), std::log(engine->info().vocabulary));
}

TEST(EngineTest, RefusesBadRequests) {
  const auto engine = Open("cpu");
  EXPECT_EQ(ErrorId(engine->Submit({})), "usage.request");
  EXPECT_EQ(ErrorId(engine->Submit({.prompt = "a", .ids = {1}})), "usage.request");
  EXPECT_EQ(ErrorId(engine->Submit({.prompt = "a", .tools = "[]"})), "usage.request");
  EXPECT_EQ(ErrorId(engine->Submit({.prompt = "a", .stop = {""}})), "usage.request");
  EXPECT_EQ(ErrorId(engine->Submit({.prompt = "a", .top_logprobs = 21})), "usage.request");
  EXPECT_EQ(ErrorId(engine->Submit({.messages = "{"})), "chat.json");
  EXPECT_EQ(ErrorId(engine->Submit({.messages = std::string(1000, '[')})), "chat.json");
  EXPECT_EQ(ErrorId(engine->Submit({.messages = R"({"role": "user"})"})), "chat.messages");
  const auto quoted = engine->Submit({.messages = R"([{"role":"user","content":"a "b""}])"});
  EXPECT_THAT(quoted.error().message, HasSubstr("is not valid JSON (byte 31)"));
  EXPECT_EQ(ErrorId(engine->Submit({.prompt = "\xff"})), "text.utf8");
  EXPECT_EQ(ErrorId(engine->Submit({.ids = {1 << 20}})), "tokenizer.id");
  EXPECT_EQ(ErrorId(engine->Submit({.ids = std::vector<int32_t>(513, 5)})), "context.overflow");
  Request hot{.prompt = "a"};
  hot.sampling.temperature = 1000;
  EXPECT_EQ(ErrorId(engine->Submit(hot)), "sampler.range");
  // The engine continues.
  EXPECT_EQ(Answer(*engine, {.prompt = "The prince", .max_tokens = 2}).ids.size(), 2U);
}

TEST(EngineTest, SaysWhyItCannotOpen) {
  const auto id = [](const EngineOptions& options) {
    const auto engine = Engine::Open(options);
    return engine ? std::string("none") : engine.error().id;
  };
  EXPECT_EQ(id({}), "usage.model");
  EXPECT_EQ(id({.model = "/nowhere/model.gguf"}), "io.open");
  EXPECT_EQ(id({.model = kE2b, .settings = {{"context.sluts", "2"}}}), "config.unknown_key");
  EXPECT_EQ(id({.model = kE2b, .backend = "none-such", .plugin_paths = {kPlugins}}),
            "backend.unknown");
}

TEST(EngineTest, ControlTokensAreNoText) {
  const auto engine = Open("cpu");
  const int32_t turn = Must(engine->Tokenize("<|turn>", /*parse_special=*/true)).front();
  Request request{.messages = R"([{"role":"user","content":"Hi"}])", .max_tokens = 3};
  request.sampling.logit_bias = {{turn, 100.0F}};
  request.sampling.temperature = 0;
  request.top_logprobs = 0;
  const Completion answer = Answer(*engine, request);
  EXPECT_THAT(answer.ids, ::testing::Each(turn));
  EXPECT_EQ(answer.text, "");
}

// To free it there would wait for threads that the child does not have.
TEST(EngineTest, AnAnswerThatAnotherReplacesStaysInAChildOfAFork) {
  auto engine = Open("cpu");
  const std::weak_ptr<Engine> watched = engine;
  const Request request{.prompt = "The prince", .max_tokens = 2};
  Generation answer = Must(engine->Submit(request));
  engine.reset();
  Generation other = Must(Open("cpu")->Submit(request));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // instead of hanging
    answer = std::move(other);
    ::_exit(watched.expired() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  answer = std::move(other);
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(Must(answer.Wait({})).ids.size(), 2U);
}

}  // namespace
}  // namespace rullama
