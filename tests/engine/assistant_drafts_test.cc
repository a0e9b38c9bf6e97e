// Drafts by the assistant of a model change the speed of an answer, not its bytes. Needs ../shared.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "engine/api/engine.h"
#include "tests/gpu_backends.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::Gt;
using ::testing::Lt;

const std::string kShared = RULLAMA_SOURCE_DIR "/../shared/";
constexpr const char* kPlugins = RULLAMA_BINARY_DIR "/lib/rullama";

std::string ModelOf(const std::string& pair) {
  return kShared + "models/tiny-" + pair + "-f16.gguf";
}
std::string DrafterOf(const std::string& pair) {
  return kShared + "models/mtp/tiny-" + pair + "-mtp-f16.gguf";
}

Result<std::shared_ptr<Engine>> TryOpen(const std::string& model, std::vector<Setting> settings,
                                        int slots = 1, const std::string& backend = "cpu") {
  settings.push_back({"context.slots", std::to_string(slots)});
  settings.push_back({"context.capacity", "256"});
  settings.push_back({"backend.device", "0"});  // also one in software
  return Engine::Open(
      {.model = model, .backend = backend, .settings = settings, .plugin_paths = {kPlugins}});
}

// Drafts of up to `most` tokens, whether they pay or not.
std::vector<Setting> DraftsBy(const std::string& drafter, int64_t most = 4) {
  return {{"drafts.model", drafter}, {"drafts.mtp", "true"}, {"drafts.max", std::to_string(most)}};
}

Completion Answer(Engine& engine, const Request& request) {
  auto generation = Must(engine.Submit(request));
  return Must(generation.Wait());
}

json Goldens(const std::string& pair) {
  std::ifstream file(kShared + "goldens/mtp-" + pair + "/golden.json");
  return json::parse(file);
}

// The prompt of a golden case and as many tokens as its answer has.
Request Case(const json& item) {
  return {.ids = item.at("prompt").get<std::vector<int32_t>>(),
          .max_tokens = std::ssize(item.at("greedy")),
          .sampling = {.temperature = 0},
          .ignore_end = true};
}

// The same up to the end of the answer, and the tokens that it then has.
Request WholeCase(const json& item) {
  Request request = Case(item);
  request.ignore_end = false;
  return request;
}
std::vector<int32_t> GoldenAnswer(const json& golden, const json& item) {
  auto ids = item.at("greedy").get<std::vector<int32_t>>();
  const auto ends = golden.at("ends").get<std::vector<int32_t>>();
  ids.erase(std::ranges::find_first_of(ids, ends), ids.end());
  return ids;
}

void ExpectSame(const Completion& found, const Completion& expected) {
  EXPECT_THAT(found.ids, ElementsAreArray(expected.ids));
  EXPECT_EQ(found.text, expected.text);
  EXPECT_EQ(found.reason, expected.reason);
  EXPECT_EQ(found.logprobs, expected.logprobs);  // of logits to the last bit
}

class Pairs : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, Pairs, ::testing::Values("e2b", "dense"),
                         [](const auto& pair) { return std::string(pair.param); });

TEST_P(Pairs, GiveTheGoldenTexts) {
  const auto engine = Must(TryOpen(ModelOf(GetParam()), DraftsBy(DrafterOf(GetParam()))));
  const json golden = Goldens(GetParam());
  DraftCounts sum;
  for (const json& item : golden.at("cases")) {
    const Completion answer = Answer(*engine, WholeCase(item));
    EXPECT_THAT(answer.ids, ElementsAreArray(GoldenAnswer(golden, item)));
    sum.drafted += answer.drafts.drafted;
    sum.accepted += answer.drafts.accepted;
  }
  EXPECT_THAT(sum.accepted, Gt(sum.drafted / 3));
}

// Longer than the window of 64 tokens, for each length of drafts: rings wrap inside of drafts.
TEST_P(Pairs, ChangeNoByteWhateverTheLength) {
  const json item = Goldens(GetParam()).at("cases").at(2);
  const auto plain = Must(TryOpen(ModelOf(GetParam()), {}));
  std::vector<Request> requests(3, Case(item));
  requests[1].sampling = {.temperature = 1, .seed = 5};
  requests[2].sampling = {.temperature = 0.3, .repeat_penalty = 1.1, .seed = 6};
  requests[2].top_logprobs = 2;
  requests[2].ignore_end = false;
  for (const int64_t most : {1, 2, 5, 16}) {
    SCOPED_TRACE(most);
    const auto drafting = Must(TryOpen(ModelOf(GetParam()), DraftsBy(DrafterOf(GetParam()), most)));
    for (const Request& request : requests) {
      const Completion answer = Answer(*drafting, request);
      ExpectSame(answer, Answer(*plain, request));
      EXPECT_THAT(answer.drafts.drafted, Gt(0));
    }
  }
}

TEST_P(Pairs, ChangeNoByteBesideOthers) {
  constexpr int kSlots = 4;
  const json golden = Goldens(GetParam());
  const auto plain = Must(TryOpen(ModelOf(GetParam()), {}, kSlots));
  const auto drafting = Must(TryOpen(ModelOf(GetParam()), DraftsBy(DrafterOf(GetParam())), kSlots));
  std::vector<Generation> running;
  for (const json& item : golden.at("cases")) {
    running.push_back(Must(drafting->Submit(Case(item))));
  }
  for (size_t i = 0; i < running.size(); ++i) {
    ExpectSame(Must(running[i].Wait()), Answer(*plain, Case(golden.at("cases").at(i))));
  }
  const EngineStats stats = drafting->stats();
  EXPECT_THAT(stats.drafts_accepted, AllOf(Gt(stats.drafted / 3), Lt(stats.drafted)));
}

class OnGpus : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, OnGpus, ::testing::ValuesIn(GpuBackendNames()), kBackendName);

TEST_P(OnGpus, TheTextIsThatWithoutDrafts) {
  const auto engine = Must(TryOpen(ModelOf("e2b"), DraftsBy(DrafterOf("e2b")), 2, GetParam()));
  Request request = Case(Goldens("e2b").at("cases").at(0));
  const Completion answer = Answer(*engine, request);
  EXPECT_THAT(answer.drafts.accepted, Gt(answer.drafts.drafted / 3));
  request.drafts = false;
  EXPECT_THAT(answer.ids, ElementsAreArray(Answer(*engine, request).ids));
}

// Several answers of one prompt read it once; those that got copies of its rows have to draw a
// token before they can draft.
TEST(AssistantDrafts, ChoicesAreThoseWithoutDrafts) {
  constexpr int kChoices = 3;
  const auto plain = Must(TryOpen(ModelOf("e2b"), {}, kChoices));
  const auto drafting = Must(TryOpen(ModelOf("e2b"), DraftsBy(DrafterOf("e2b")), kChoices));
  Request request = Case(Goldens("e2b").at("cases").at(3));
  request.sampling = {.temperature = 0.8, .seed = 9};
  auto expected = Must(plain->SubmitChoices(request, kChoices));
  auto found = Must(drafting->SubmitChoices(request, kChoices));
  for (size_t i = 0; i < kChoices; ++i) {
    ExpectSame(Must(found[i].Wait()), Must(expected[i].Wait()));
  }
}

TEST(AssistantDrafts, StopTextsSchemasAndLimitsHold) {
  const auto plain = Must(TryOpen(ModelOf("e2b"), {}));
  const auto drafting = Must(TryOpen(ModelOf("e2b"), DraftsBy(DrafterOf("e2b"), 7)));
  Request request = Case(Goldens("e2b").at("cases").at(0));
  const std::string text = Answer(*plain, request).text;
  request.stop = {text.substr(text.size() / 2, 4)};
  const Completion stopped = Answer(*drafting, request);
  ExpectSame(stopped, Answer(*plain, request));
  EXPECT_EQ(stopped.reason, StopReason::kStopped);
  request.stop = {};
  request.ignore_end = false;
  for (const int64_t most : {1, 2, 3, 7, 30}) {
    request.max_tokens = most;
    ExpectSame(Answer(*drafting, request), Answer(*plain, request));
  }
  const Request held{
      .messages = R"([{"role": "user", "content": "[1, 1, 1, 1, 1, 1, 1]"}])",
      .json_schema = R"({"type": "array", "items": {"type": "integer"}, "minItems": 6})",
      .max_tokens = 40,
      .sampling = {.temperature = 0.2, .seed = 3}};
  ExpectSame(Answer(*drafting, held), Answer(*plain, held));
}

TEST(AssistantDrafts, AreFoundNextToTheModelAndAsLongAsTheyPay) {
  const fs::path folder = fs::path(::testing::TempDir()) / "assistant_drafts";
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::copy_file(ModelOf("e2b"), folder / "model.gguf");
  const std::string model = (folder / "model.gguf").string();
  const auto alone = TryOpen(model, {{"drafts.mtp", "true"}});
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.error().id, "draft.not_found");
  fs::copy_file(DrafterOf("e2b"), folder / "mtp-tiny.gguf");
  const Request request = Case(Goldens("e2b").at("cases").at(0));
  const Completion drafted = Answer(*Must(TryOpen(model, {})), request);
  EXPECT_THAT(drafted.drafts.drafted, Gt(0));
  const Completion plain = Answer(*Must(TryOpen(model, {{"drafts.mtp", "false"}})), request);
  EXPECT_EQ(plain.drafts.drafted, 0);
  ExpectSame(drafted, plain);
  fs::remove_all(folder);
}

TEST(AssistantDrafts, AreNotNamedAndTurnedOff) {
  const auto both =
      TryOpen(ModelOf("e2b"), {{"drafts.model", DrafterOf("e2b")}, {"drafts.mtp", "false"}});
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().id, "config.conflict");
}

TEST(AssistantDrafts, OfOtherModelsAreRefused) {
  const auto other = TryOpen(ModelOf("e2b"), DraftsBy(DrafterOf("dense")));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().id, "draft.heads");
}

}  // namespace
}  // namespace rullama
