// Drafts change the speed of an answer, not its bytes.
#include <gmock/gmock.h>

#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/base/read_file_test_util.h"
#include "engine/api/engine.h"
#include "tests/gpu_backends.h"

namespace rullama {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Lt;

constexpr const char* kE2b = RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf";
constexpr const char* kMoe = RULLAMA_SOURCE_DIR "/tests/data/tiny-moe-Q4_K_M.gguf";
constexpr const char* kDiffusion = RULLAMA_SOURCE_DIR "/tests/data/tiny-diffusion-Q4_K_M.gguf";
constexpr const char* kPlugins = RULLAMA_BINARY_DIR "/lib/rullama";
// The window of sliding layers is 64 tokens: prompts and answers here are longer.
constexpr const char* kText =
    "Well, Prince, so Genoa and Lucca are now just family estates of the Buonapartes. But I warn "
    "you, if you don't tell me that this means war: Genoa and Lucca are now just family estates "
    "of the Buonapartes. But I warn you";

Result<std::shared_ptr<Engine>> TryOpen(const std::string& backend, const char* model,
                                        std::vector<Setting> settings, int slots) {
  settings.push_back({"context.slots", std::to_string(slots)});
  settings.push_back({"context.capacity", "224"});
  settings.push_back({"backend.device", "0"});  // also one in software
  return Engine::Open(
      {.model = model, .backend = backend, .settings = settings, .plugin_paths = {kPlugins}});
}

std::shared_ptr<Engine> Open(const std::string& backend, const char* model,
                             std::vector<Setting> settings = {}, int slots = 2) {
  return Must(TryOpen(backend, model, std::move(settings), slots));
}

std::vector<Setting> DraftsBy(const char* model) { return {{"drafts.model", model}}; }
std::vector<Setting> DraftsByLookup() { return {{"drafts.lookup", "true"}}; }

Completion Answer(Engine& engine, const Request& request) {
  auto generation = Must(engine.Submit(request));
  return Must(generation.Wait());
}

// Greedy, drawn, with penalties, and with log-probabilities of a token that repeats itself.
std::vector<Request> Requests(int64_t tokens) {
  std::vector<Request> requests(4, {.prompt = kText, .max_tokens = tokens});
  requests[0].sampling.temperature = 0;
  requests[1].sampling = {.temperature = 0.7, .top_k = 20, .seed = 11};
  requests[2].sampling = {.temperature = 0.3, .top_k = 0, .repeat_penalty = 1.1, .seed = 12};
  requests[3].sampling = {.temperature = 0, .logit_bias = {{300, 100.0F}}};
  requests[3].top_logprobs = 2;
  return requests;
}

void ExpectSame(const Completion& found, const Completion& expected) {
  EXPECT_THAT(found.ids, ElementsAreArray(expected.ids));
  EXPECT_EQ(found.text, expected.text);
  EXPECT_EQ(found.reason, expected.reason);
  EXPECT_EQ(found.logprobs, expected.logprobs);  // of logits to the last bit
}

// The kernels of some backends promise the tokens, not the last bits (docs/drafts.md).
bool DraftsKeepBits(std::string_view backend) {
  return std::ranges::none_of(GpuBackends(), [&](const GpuBackend& gpu) {
    return gpu.name == backend && !gpu.drafts_keep_bits;
  });
}

class Drafts : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, Drafts, ::testing::ValuesIn(BackendNames()), kBackendName);

// By a lookup, and by another model where it finds nothing.
TEST_P(Drafts, ChangeNoByteBesideOthers) {
  std::vector<Setting> settings = DraftsBy(kE2b);
  settings.push_back({"drafts.lookup", "true"});
  const auto engine = Open(GetParam(), kMoe, settings);
  const std::vector<Request> requests = Requests(6);
  std::vector<Generation> running;
  running.reserve(requests.size());
  for (const Request& request : requests) running.push_back(Must(engine->Submit(request)));
  std::vector<Completion> found;
  found.reserve(requests.size());
  for (Generation& generation : running) found.push_back(Must(generation.Wait()));
  EXPECT_THAT(found[3].drafts.accepted, Gt(0));  // a token that repeats itself
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    Request plain = requests[i];
    plain.drafts = false;
    Completion expected = Answer(*engine, plain);
    EXPECT_EQ(expected.drafts.drafted, 0);
    if (!DraftsKeepBits(GetParam())) expected.logprobs = found[i].logprobs;
    ExpectSame(found[i], expected);
  }
}

// Compares answers with and without drafts by a lookup, with the same other settings.
void ExpectLookupChangesNoByte(const char* model, const std::vector<Setting>& settings = {}) {
  std::vector<Setting> drafts = DraftsByLookup();
  drafts.insert(drafts.end(), settings.begin(), settings.end());
  const auto plain = Open("cpu", model, settings);
  const auto drafting = Open("cpu", model, drafts);
  for (const Request& request : Requests(32)) {
    const Completion answer = Answer(*drafting, request);
    ExpectSame(answer, Answer(*plain, request));
    const bool repeats = request.top_logprobs >= 0;
    EXPECT_THAT(answer.drafts.accepted, Gt(repeats ? 20 : -1));
  }
}

TEST(DraftsOnCpu, ALookupChangesNoByte) {
  for (const char* model : {kE2b, kMoe}) ExpectLookupChangesNoByte(model);
}

TEST(DraftsOnCpu, ALookupChangesNoByteOfCachesInBlocks) {
  ExpectLookupChangesNoByte(kE2b, {{"context.kv_dtype", "q8_0"}, {"context.v_dtype", "q4_0"}});
}

TEST(DraftsOnCpu, OneSlotGivesTheSameBytes) {
  const auto plain = Open("cpu", kE2b, {}, 1);
  const auto drafting = Open("cpu", kE2b, {{"drafts.lookup", "true"}, {"drafts.max", "16"}}, 1);
  for (const Request& request : Requests(16)) {
    ExpectSame(Answer(*drafting, request), Answer(*plain, request));
  }
}

// Steps that check drafts of one slot have up to 17 rows, and kernels for one row are not for them.
class DraftsOnGpus : public ::testing::TestWithParam<GpuBackend> {};
INSTANTIATE_TEST_SUITE_P(, DraftsOnGpus, ::testing::ValuesIn(GpuBackends()),
                         [](const auto& backend) { return std::string(backend.param.name); });

TEST_P(DraftsOnGpus, OneSlotGivesTheSameTokens) {
  for (const auto& [option, value] : GetParam().Forms()) {
    SCOPED_TRACE(option + " " + value);
    std::vector<Setting> settings = DraftsBy(kE2b);
    settings.push_back({"drafts.max", "16"});
    settings.push_back({"backend.options." + option, value});
    const auto engine = Open(GetParam().name, kE2b, settings, 1);
    Request request{.prompt = "The prince", .max_tokens = 24};
    request.sampling.temperature = 0;
    const Completion found = Answer(*engine, request);
    EXPECT_THAT(found.drafts.drafted, Gt(16));
    EXPECT_EQ(found.drafts.accepted, found.drafts.drafted);
    request.drafts = false;
    EXPECT_THAT(found.ids, ElementsAreArray(Answer(*engine, request).ids));
  }
}

TEST(DraftsOnCpu, TheModelItselfDraftsWhatItWouldDraw) {
  const auto drafting = Open("cpu", kE2b, DraftsBy(kE2b));
  for (const Request& request : Requests(9)) {
    const Completion answer = Answer(*drafting, request);
    EXPECT_THAT(answer.drafts.drafted, Gt(0));
    EXPECT_EQ(answer.drafts.accepted, answer.drafts.drafted);
  }
}

TEST(DraftsOnCpu, ChoicesOfManySeedsAreThoseWithoutDrafts) {
  // A token that a draft has is accepted if the model draws it from its own distribution with the
  // random number of its position. So for each seed the answer is the one without drafts, and its
  // distribution over seeds is that of the model.
  constexpr int kChoices = 8;
  const auto plain = Open("cpu", kE2b, {}, kChoices);
  const auto drafting = Open("cpu", kE2b, DraftsBy(kMoe), kChoices);
  for (int64_t seed = 0; seed < 5; ++seed) {
    Request request{.prompt = std::string(kText).substr(0, 30), .max_tokens = 6};
    request.sampling = {.temperature = 1, .seed = seed};
    auto expected = Must(plain->SubmitChoices(request, kChoices));
    auto found = Must(drafting->SubmitChoices(request, kChoices));
    for (size_t i = 0; i < kChoices; ++i) {
      ExpectSame(Must(found[i].Wait()), Must(expected[i].Wait()));
    }
  }
  const EngineStats stats = drafting->stats();
  EXPECT_THAT(stats.drafts_accepted, AllOf(Gt(0U), Lt(stats.drafted)));
}

TEST(DraftsOnCpu, StopTextsAndSchemasHold) {
  const auto plain = Open("cpu", kE2b);
  const auto drafting = Open("cpu", kE2b, DraftsByLookup());
  Request request{.prompt = kText, .max_tokens = 30, .sampling = {.temperature = 0}};
  const std::string text = Answer(*plain, request).text;
  request.stop = {text.substr(text.size() / 2, 4)};
  const Completion stopped = Answer(*drafting, request);
  EXPECT_EQ(stopped.text, Answer(*plain, request).text);
  EXPECT_EQ(stopped.reason, StopReason::kStopped);
  const Request held{
      .messages = R"([{"role": "user", "content": "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"}])",
      .json_schema = R"({"type": "array", "items": {"type": "integer"}, "minItems": 12})",
      .max_tokens = 40,
      .sampling = {.temperature = 0.2, .seed = 3}};
  ExpectSame(Answer(*drafting, held), Answer(*plain, held));
}

TEST(DraftsOnCpu, TheContextAndTheRequestLimitDrafts) {
  const auto plain = Open("cpu", kE2b);
  const auto drafting = Open("cpu", kE2b, DraftsByLookup());
  Request request{.prompt = std::string(kText).substr(0, 60), .max_context = 90};
  request.sampling.temperature = 0;
  request.ignore_end = true;
  const Completion whole = Answer(*drafting, request);
  ExpectSame(whole, Answer(*plain, request));
  EXPECT_EQ(whole.reason, StopReason::kContextFull);
  request.drafts = false;
  EXPECT_EQ(Answer(*drafting, request).drafts.drafted, 0);
}

TEST(DraftsOnCpu, AConversationContinuesAfterADraftedAnswer) {
  const std::string user = R"([{"role": "user", "content": ")" + std::string(kText) + R"("})";
  const auto plain = Open("cpu", kE2b);
  const auto drafting = Open("cpu", kE2b, DraftsByLookup());
  std::vector<Completion> answers;
  for (Engine* engine : {plain.get(), drafting.get()}) {
    Request request{.messages = user + "]", .max_tokens = 20, .sampling = {.temperature = 0}};
    request.reuse_answers = true;
    Answer(*engine, request);
    request.messages = user + R"(, {"role": "assistant", "content": "Yes."},)"
                              R"( {"role": "user", "content": "Why?"}])";
    answers.push_back(Answer(*engine, request));
  }
  ExpectSame(answers[1], answers[0]);
}

TEST(DraftsOnCpu, ADraftModelThatDenoisesIsRefused) {
  const auto other = TryOpen("cpu", kE2b, DraftsBy(kDiffusion), 1);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().id, "model.canvas");
}

TEST(DraftsOnCpu, ADraftModelOfOtherTokensIsRefused) {
  std::string bytes = ReadWholeFile(kE2b);
  const size_t token = bytes.find("<mask>");
  ASSERT_NE(token, std::string::npos);
  bytes.replace(token, 6, "<musk>");
  const std::string path = ::testing::TempDir() + "/other_tokens.gguf";
  std::ofstream(path, std::ios::binary) << bytes;
  const auto other = TryOpen("cpu", kE2b, DraftsBy(path.c_str()), 1);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().id, "draft.vocabulary");
  EXPECT_THAT(other.error().message, HasSubstr("differ from token 4 on"));
}

}  // namespace
}  // namespace rullama
