// Drafts by the assistant of a model change the speed of an answer, not its bytes. Needs ../shared.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/gguf/gguf.h"
#include "core/gguf/gguf_writer.h"
#include "engine/api/engine.h"
#include "tests/engine/assistant_pairs_test_util.h"
#include "tests/gpu_backends.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;
using assistant_pairs::Answer;
using assistant_pairs::Case;
using assistant_pairs::DrafterOf;
using assistant_pairs::DraftsBy;
using assistant_pairs::ExpectSame;
using assistant_pairs::ExpectSameDrafts;
using assistant_pairs::GoldenAnswer;
using assistant_pairs::Goldens;
using assistant_pairs::ModelOf;
using assistant_pairs::TryOpen;
using assistant_pairs::WholeCase;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::Gt;
using ::testing::Lt;

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
  EXPECT_THAT(sum.accepted, Gt(sum.drafted / 2));
}

// After a prompt that is longer than the window of 64 tokens, for each length of drafts: rings wrap
// inside of drafts.
TEST_P(Pairs, ChangeNoByteWhateverTheLength) {
  const json item = Goldens(GetParam()).at("cases").at(2);
  const auto plain = Must(TryOpen(ModelOf(GetParam()), {}));
  std::vector<Request> requests(3, Case(item));
  for (Request& request : requests) request.max_tokens = 32;
  requests[1].sampling = {.temperature = 1, .seed = 5};
  requests[2].sampling = {.temperature = 0.3, .repeat_penalty = 1.1, .seed = 6};
  requests[2].top_logprobs = 2;
  requests[2].ignore_end = false;
  std::vector<Completion> expected;
  for (const Request& request : requests) expected.push_back(Answer(*plain, request));
  for (int64_t most = 1; most <= 16; ++most) {
    SCOPED_TRACE(most);
    const auto drafting = Must(TryOpen(ModelOf(GetParam()), DraftsBy(DrafterOf(GetParam()), most)));
    for (size_t i = 0; i < requests.size(); ++i) {
      const Completion answer = Answer(*drafting, requests[i]);
      ExpectSame(answer, expected[i]);
      EXPECT_THAT(answer.drafts.drafted, Gt(0));
    }
  }
}

TEST_P(Pairs, ChangeNoByteBesideOthers) {
  const json cases = Goldens(GetParam()).at("cases");
  for (const int slots : {2, 3, 4, 8}) {
    SCOPED_TRACE(slots);
    const auto plain = Must(TryOpen(ModelOf(GetParam()), {}, slots));
    const auto drafting =
        Must(TryOpen(ModelOf(GetParam()), DraftsBy(DrafterOf(GetParam())), slots));
    std::vector<Generation> running;
    for (const json& item : cases) running.push_back(Must(drafting->Submit(Case(item))));
    for (size_t i = 0; i < running.size(); ++i) {
      ExpectSame(Must(running[i].Wait()), Answer(*plain, Case(cases.at(i))));
    }
    const EngineStats stats = drafting->stats();
    EXPECT_THAT(stats.drafts_accepted, AllOf(Gt(stats.drafted / 3), Lt(stats.drafted)));
    EXPECT_EQ(std::reduce(stats.drafted_at.begin(), stats.drafted_at.end()), stats.drafted);
    EXPECT_EQ(std::reduce(stats.accepted_at.begin(), stats.accepted_at.end()),
              stats.drafts_accepted);
    EXPECT_GT(stats.accepted_at[0], stats.accepted_at[3]);
  }
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

// Where a row of a draft may have other bytes than alone, a drafter that nobody asked for would let
// answers depend on its lengths.
TEST_P(OnGpus, ADrafterThatLiesThereIsUsedIfAskedFor) {
  const fs::path folder =
      fs::path(::testing::TempDir()) / (std::string("assistant_drafts_") + GetParam());
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::copy_file(ModelOf("e2b"), folder / "model.gguf");
  fs::copy_file(DrafterOf("e2b"), folder / "mtp-tiny.gguf");
  const std::string model = (folder / "model.gguf").string();
  Request request = Case(Goldens("e2b").at("cases").at(0));
  request.max_tokens = 12;
  const auto automatic = Must(TryOpen(model, {}, 1, GetParam()));
  EXPECT_EQ(Answer(*automatic, request).drafts.drafted, 0);
  EXPECT_EQ(automatic->stats().drafted, 0U);
  // The length of a draft follows from the answer alone, so it is the same again.
  const auto named = Must(TryOpen(model, {{"drafts.model", DrafterOf("e2b")}}, 1, GetParam()));
  const Completion first = Answer(*named, request);
  EXPECT_GT(first.drafts.drafted, 0);
  for (int again = 0; again < 3; ++again) ExpectSameDrafts(Answer(*named, request), first);
  fs::remove_all(folder);
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
  const Request called{
      .messages = R"([{"role": "user", "content": "How is the weather in Rome?"}])",
      .tools = R"([{"type": "function", "function": {"name": "weather", "parameters": {
          "type": "object", "properties": {"city": {"type": "string", "maxLength": 9}},
          "required": ["city"]}}}])",
      .tool_choice = ToolChoice::kRequired,
      .max_tokens = 40,
      .sampling = {.temperature = 0.4, .seed = 4}};
  const Completion call = Answer(*drafting, called);
  ExpectSame(call, Answer(*plain, called));
  EXPECT_GT(call.drafts.drafted, 0);
}

// Slots of one step have drafts of different lengths.
TEST(AssistantDrafts, RequestsLimitTheirLength) {
  const std::vector<int64_t> limits = {0, 1, 3, -1};
  const auto slots = static_cast<int>(limits.size());
  const auto plain = Must(TryOpen(ModelOf("dense"), {}, slots));
  const auto drafting = Must(TryOpen(ModelOf("dense"), DraftsBy(DrafterOf("dense")), slots));
  std::vector<Request> requests(limits.size(), Case(Goldens("dense").at("cases").at(2)));
  std::vector<Generation> running;
  for (size_t i = 0; i < limits.size(); ++i) {
    requests[i].max_draft = limits[i];
    running.push_back(Must(drafting->Submit(requests[i])));
  }
  for (size_t i = 0; i < limits.size(); ++i) {
    const Completion answer = Must(running[i].Wait());
    ExpectSame(answer, Answer(*plain, requests[i]));
    EXPECT_EQ(answer.drafts.drafted > 0, limits[i] != 0);
    const Completion alone = Answer(*drafting, requests[i]);
    const int64_t steps = std::ssize(alone.ids) - alone.drafts.accepted;
    EXPECT_LE(alone.drafts.drafted, (limits[i] < 0 ? 4 : limits[i]) * steps);
  }
}

// Of tokens that the drafter is surer of, more are right.
TEST_P(Pairs, EndBeforeUnlikelyTokens) {
  const auto engine = Must(TryOpen(ModelOf(GetParam()), DraftsBy(DrafterOf(GetParam()))));
  const json golden = Goldens(GetParam());
  std::vector<DraftCounts> counts;
  for (const double least : {0.0, 0.3, 0.8}) {
    DraftCounts& sum = counts.emplace_back();
    for (const json& item : golden.at("cases")) {
      Request request = WholeCase(item);
      request.min_draft_probability = least;
      const Completion answer = Answer(*engine, request);
      EXPECT_THAT(answer.ids, ElementsAreArray(GoldenAnswer(golden, item)));
      sum.drafted += answer.drafts.drafted;
      sum.accepted += answer.drafts.accepted;
    }
  }
  const auto share = [](const DraftCounts& sum) {
    return static_cast<double>(sum.accepted) / static_cast<double>(sum.drafted);
  };
  EXPECT_LT(share(counts[0]), share(counts[1]));
  EXPECT_LT(share(counts[1]), share(counts[2]));
  EXPECT_GT(share(counts[2]), 0.85);
  EXPECT_GT(counts[2].drafted, 0);
  EXPECT_LT(counts[2].drafted, counts[1].drafted);
}

// With drafts.mtp: auto; a drafter whose guesses are cut to nothing is not asked before each step.
TEST(AssistantDrafts, ThatAreCutToNothingAreNotMadeForEachToken) {
  const auto engine = Must(TryOpen(ModelOf("e2b"), {{"drafts.model", DrafterOf("e2b")}}));
  Request request = Case(Goldens("e2b").at("cases").at(0));
  request.max_tokens = 60;
  request.min_draft_probability = 1;
  const Completion answer = Answer(*engine, request);
  EXPECT_LT(answer.drafts.drafted, 5);
  const uint64_t steps = answer.at_end.steps - answer.after_prompt.steps;
  const auto tokens = answer.ids.size();
  EXPECT_THAT(steps, AllOf(Gt(tokens - 1), Lt(tokens + tokens / 3)));
}

TEST(AssistantDrafts, ThatEndBeforeUnlikelyTokensAreWarmToo) {
  const auto compiled_later = [](const char* least) {
    std::vector<Setting> settings = DraftsBy(DrafterOf("e2b"));
    settings.push_back({"drafts.min_probability", least});
    settings.push_back({"backend.warm_up", "dispatch"});
    const auto engine = Must(TryOpen(ModelOf("e2b"), settings));
    const Completion answer = Answer(*engine, Case(Goldens("e2b").at("cases").at(0)));
    EXPECT_GT(answer.drafts.drafted, 0);
    return answer.at_end.plans - answer.after_prompt.plans;
  };
  EXPECT_EQ(compiled_later("0.000001"), compiled_later("0"));
}

enum class Weights : uint8_t { kKept, kShuffled, kNotNumbers };

// How another converter writes a drafter.
struct Dialect {
  std::string architecture;
  std::string width_key;
  std::map<std::string, std::string> tensors;  // new names of those that have others
  bool inverse_ordering = false;               // which cluster a token is in
  Weights weights = Weights::kKept;
  bool own_clusters = false;  // each token is the only one of a cluster
};

std::vector<Dialect> Dialects() {
  return {{.architecture = "gemma4_assistant",
           .width_key = "n_embd_backbone",
           .tensors = {{"nextn.pre_projection.weight", "mtp.pre_projection.weight"},
                       {"nextn.post_projection.weight", "mtp.post_projection.weight"},
                       {"masked_embd_centroids.weight", "mtp.centroids.weight"},
                       {"masked_embd_ordering", "mtp.token_ordering.weight"}}},
          {.architecture = "gemma4_mtp",
           .width_key = "backbone_embedding_length",
           .tensors = {{"nextn.pre_projection.weight", "mtp_pre_proj.weight"},
                       {"nextn.post_projection.weight", "mtp_post_proj.weight"},
                       {"masked_embd_centroids.weight", "mtp_centroids.weight"},
                       {"masked_embd_ordering", "mtp_token_ordering.weight"},
                       {"rope_freqs.weight", ""}},
           .inverse_ordering = true}};
}

std::vector<std::byte> Converted(const TensorInfo& tensor, std::span<const std::byte> data,
                                 const Dialect& dialect) {
  std::vector<std::byte> bytes(data.begin(), data.end());
  if (tensor.rank > 1 && dialect.weights != Weights::kKept) {
    std::vector<uint16_t> numbers(bytes.size() / sizeof(uint16_t));  // f16
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    std::ranges::reverse(numbers);
    if (dialect.weights == Weights::kNotNumbers) std::ranges::fill(numbers, uint16_t{0x7E00});
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
  }
  if (tensor.name != "masked_embd_ordering") return bytes;
  if (dialect.own_clusters) {
    std::vector<int32_t> tokens(bytes.size() / sizeof(int32_t));
    std::iota(tokens.begin(), tokens.end(), 0);
    std::memcpy(bytes.data(), tokens.data(), bytes.size());
  }
  if (!dialect.inverse_ordering) return bytes;
  constexpr size_t kCluster = 32;  // tokens
  std::vector<int32_t> tokens(bytes.size() / sizeof(int32_t));
  std::memcpy(tokens.data(), bytes.data(), bytes.size());
  std::vector<int32_t> clusters(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    clusters[static_cast<size_t>(tokens[i])] = static_cast<int32_t>(i / kCluster);
  }
  std::memcpy(bytes.data(), clusters.data(), bytes.size());
  return bytes;
}

void WriteIn(const Dialect& dialect, const std::string& from, const fs::path& to) {
  const GgufFile file = Must(GgufFile::Open(from));
  const std::string own = "gemma4-assistant";
  GgufWriter writer;
  for (const GgufEntry& entry : file.metadata()) {
    std::string key(entry.key);
    if (key == own + ".embedding_length_out") key = own + "." + dialect.width_key;
    if (key.starts_with(own)) key.replace(0, own.size(), dialect.architecture);
    ASSERT_TRUE(writer.SetRaw(key, entry.value)) << key;
  }
  ASSERT_TRUE(writer.Set("general.architecture", dialect.architecture));
  std::vector<const TensorInfo*> written;
  const TensorInfo* tokens = file.FindTensor("token_embd.weight");
  ASSERT_NE(tokens, nullptr);
  for (const TensorInfo& tensor : file.tensors()) {
    const auto other = dialect.tensors.find(std::string(tensor.name));
    const std::string name =
        other == dialect.tensors.end() ? std::string(tensor.name) : other->second;
    if (name.empty()) continue;
    const bool is_centroids = tensor.name == "masked_embd_centroids.weight";
    const TensorInfo* source = dialect.own_clusters && is_centroids ? tokens : &tensor;
    ASSERT_TRUE(writer.AddTensor(name, source->dtype, std::span(source->dims).first(source->rank)));
    written.push_back(source);
  }
  GgufOutput output = Must(writer.Begin(to));
  for (const TensorInfo* tensor : written) {
    ASSERT_TRUE(output.Append(Converted(*tensor, file.data(*tensor), dialect)));
  }
  ASSERT_TRUE(output.Finish());
}

TEST(AssistantDrafts, AreTheSameInAllDialects) {
  const json cases = Goldens("e2b").at("cases");
  const auto counts = [&cases](const std::string& drafter) {
    const auto engine = Must(TryOpen(ModelOf("e2b"), DraftsBy(drafter)));
    std::vector<std::pair<int64_t, int64_t>> found;
    for (const json& item : cases) {
      const DraftCounts drafts = Answer(*engine, Case(item)).drafts;
      found.emplace_back(drafts.drafted, drafts.accepted);
    }
    return found;
  };
  const auto expected = counts(DrafterOf("e2b"));
  for (const Dialect& dialect : Dialects()) {
    const fs::path path = fs::path(::testing::TempDir()) / (dialect.architecture + ".gguf");
    ASSERT_NO_FATAL_FAILURE(WriteIn(dialect, DrafterOf("e2b"), path));
    EXPECT_THAT(counts(path.string()), ElementsAreArray(expected)) << dialect.architecture;
    fs::remove(path);
  }
}

// A drafter of a pair in the dialect of its own, with such weights.
void WriteWith(Weights weights, const std::string& pair, const fs::path& to) {
  const Dialect own{.architecture = "gemma4-assistant",
                    .width_key = "embedding_length_out",
                    .tensors = {},
                    .weights = weights};
  WriteIn(own, DrafterOf(pair), to);
}

// The drafts of all cases by a drafter with such weights, whose answers are the right ones.
DraftCounts CountsWith(Weights weights, const std::string& pair) {
  const fs::path path = fs::path(::testing::TempDir()) / (pair + "_untrained.gguf");
  WriteWith(weights, pair, path);
  const auto engine = Must(TryOpen(ModelOf(pair), DraftsBy(path.string())));
  const json golden = Goldens(pair);
  DraftCounts sum;
  for (const json& item : golden.at("cases")) {
    const Completion answer = Answer(*engine, WholeCase(item));
    EXPECT_THAT(answer.ids, ElementsAreArray(GoldenAnswer(golden, item)));
    sum.drafted += answer.drafts.drafted;
    sum.accepted += answer.drafts.accepted;
  }
  fs::remove(path);
  return sum;
}

TEST_P(Pairs, UntrainedDraftersChangeNoByte) {
  const DraftCounts shuffled = CountsWith(Weights::kShuffled, GetParam());
  EXPECT_GT(shuffled.drafted, 100);
  EXPECT_LT(shuffled.accepted, shuffled.drafted / 20);
  CountsWith(Weights::kNotNumbers, GetParam());
}

// A drafter of E2B has 2,048 clusters, more than a workgroup of a GPU has invocations. Here each
// token is one, so that drafts are those of a head that computes all scores.
TEST_P(OnGpus, DraftersMayHaveManyClusters) {
  constexpr int kSlots = 4;
  const fs::path path =
      fs::path(::testing::TempDir()) / (std::string("clusters_") + GetParam() + ".gguf");
  const Dialect own{.architecture = "gemma4-assistant",
                    .width_key = "embedding_length_out",
                    .tensors = {},
                    .own_clusters = true};
  ASSERT_NO_FATAL_FAILURE(WriteIn(own, DrafterOf("e2b"), path));
  const auto engine = Must(TryOpen(ModelOf("e2b"), DraftsBy(path.string()), kSlots, GetParam()));
  Request request = Case(Goldens("e2b").at("cases").at(0));
  request.max_tokens = 8;
  std::vector<Generation> running;
  for (int slot = 0; slot < kSlots; ++slot) running.push_back(Must(engine->Submit(request)));
  request.drafts = false;
  DraftCounts sum;
  std::vector<Completion> answers;
  for (Generation& generation : running) answers.push_back(Must(generation.Wait()));
  const Completion plain = Answer(*engine, request);
  for (const Completion& answer : answers) {
    EXPECT_THAT(answer.ids, ElementsAreArray(plain.ids));
    sum.drafted += answer.drafts.drafted;
    sum.accepted += answer.drafts.accepted;
  }
  EXPECT_THAT(sum.accepted, Gt(sum.drafted / 3));
  fs::remove(path);
}

// With drafts.mtp: auto; where the length of a draft may change an answer, it follows from the
// answer alone.
TEST_P(OnGpus, ThatAreWrongAreSoonGivenUp) {
  const fs::path path =
      fs::path(::testing::TempDir()) / (std::string("untrained_") + GetParam() + ".gguf");
  ASSERT_NO_FATAL_FAILURE(WriteWith(Weights::kShuffled, "e2b", path));
  const auto engine =
      Must(TryOpen(ModelOf("e2b"), {{"drafts.model", path.string()}}, 1, GetParam()));
  Request request = Case(Goldens("e2b").at("cases").at(0));
  request.max_tokens = 40;
  const Completion first = Answer(*engine, request);
  EXPECT_THAT(first.drafts.drafted, AllOf(Gt(0), Lt(8)));
  ExpectSameDrafts(Answer(*engine, request), first);
  fs::remove(path);
}

// Guesses of an untrained drafter do not pay; what a lookup finds is right.
TEST(AssistantDrafts, ThatDoNotPayLeaveTheLookupOn) {
  const fs::path path = fs::path(::testing::TempDir()) / "lookup_untrained.gguf";
  ASSERT_NO_FATAL_FAILURE(WriteWith(Weights::kShuffled, "e2b", path));
  const auto engine =
      Must(TryOpen(ModelOf("e2b"), {{"drafts.model", path.string()}, {"drafts.lookup", "true"}}));
  Request request = Case(Goldens("e2b").at("cases").at(0));
  request.max_tokens = 80;
  request.sampling.logit_bias = {{300, 100.0F}};
  EXPECT_GT(Answer(*engine, request).drafts.accepted, 50);
  fs::remove(path);
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
