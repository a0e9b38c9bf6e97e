// Drafts by the assistant of a model where its caches come from elsewhere, beside adapters, and by
// chance. Needs ../shared.
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/base/read_file_test_util.h"
#include "core/ir/draft_names.h"
#include "engine/api/engine.h"
#include "engine/engine_access.h"
#include "engine/loading/engine_config.h"
#include "engine/loading/loaded_model.h"
#include "tests/engine/assistant_pairs_test_util.h"
#include "tests/engine/no_notices_test_util.h"
#include "tests/fakes/adapter_folder.h"
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
using assistant_pairs::Goldens;
using assistant_pairs::ModelOf;
using assistant_pairs::OptionsFor;
using assistant_pairs::TryOpen;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::Gt;
using ::testing::Lt;

constexpr size_t kLongCase = 2;  // 100 tokens and 80 more, beyond the window of 64

std::vector<Setting> DraftsInChunks() {
  std::vector<Setting> settings = DraftsBy(DrafterOf("e2b"));
  settings.push_back({"context.prefill_chunk", "16"});
  return settings;
}

std::string TemporaryFile(const std::string& name) {
  return ::testing::TempDir() + name + "_" + std::to_string(::getpid());
}

class OnEach : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, OnEach, ::testing::ValuesIn(BackendNames()), kBackendName);

// A draft starts from what the last step left. Of a session that reads its caches from a file that
// is nothing, and of a slot that was used before it is another request's.
TEST_P(OnEach, StoredPromptsAndSlotsGiveTheDraftsOfAFreshRun) {
  const auto writer = Must(TryOpen(ModelOf("e2b"), DraftsInChunks(), 2, GetParam()));
  const auto reader = Must(TryOpen(ModelOf("e2b"), DraftsInChunks(), 2, GetParam()));
  const json cases = Goldens("e2b").at("cases");
  Request request = Case(cases.at(kLongCase));
  request.max_tokens = GetParam() == std::string("cpu") ? request.max_tokens : 12;
  request.slot = 0;
  const Completion fresh = Answer(*writer, request);
  EXPECT_THAT(fresh.drafts.accepted, Gt(0));
  Request other = Case(cases.at(3));
  other.max_tokens = 4;
  other.slot = 0;
  const std::string prompt = TemporaryFile("drafted_prompt");
  const SlotFile slot{.path = TemporaryFile("drafted_slot"), .owner = "ann"};
  Must(writer->SaveSlot(0, 0, slot));
  Must(writer->SavePrompt(request, prompt));

  Answer(*reader, other);
  Must(reader->LoadPrompt(prompt));
  const Completion loaded = Answer(*reader, request);
  EXPECT_EQ(loaded.cached_tokens, 96);
  ExpectSame(loaded, fresh);
  ExpectSameDrafts(loaded, fresh);

  Answer(*reader, other);
  Must(reader->RestoreSlot(0, 0, slot));
  const Completion restored = Answer(*reader, request);
  EXPECT_EQ(restored.cached_tokens, 96);
  ExpectSame(restored, fresh);
  ExpectSameDrafts(restored, fresh);
  fs::remove(prompt);
  fs::remove(slot.path);
}

// Rows of wrong guesses are in no file, and what a file gave is stored as it was.
TEST(AssistantSessions, SlotsKeepTheirBytesInFiles) {
  const auto writer = Must(TryOpen(ModelOf("e2b"), DraftsInChunks()));
  const auto reader = Must(TryOpen(ModelOf("e2b"), DraftsInChunks()));
  const SlotFile first{.path = TemporaryFile("first_slot"), .owner = "ann"};
  const SlotFile second{.path = TemporaryFile("second_slot"), .owner = "ann"};
  const Completion answer = Answer(*writer, Case(Goldens("e2b").at("cases").at(kLongCase)));
  EXPECT_THAT(answer.drafts.drafted, Gt(answer.drafts.accepted));
  Must(writer->SaveSlot(0, 0, first));
  Answer(*reader, Case(Goldens("e2b").at("cases").at(6)));
  Must(reader->RestoreSlot(0, 0, first));
  Must(reader->SaveSlot(0, 0, second));
  EXPECT_EQ(ReadWholeFile(first.path), ReadWholeFile(second.path));
  fs::remove(first.path);
  fs::remove(second.path);
}

// Found in host memory, and in a slot that has gone on since.
TEST(AssistantSessions, PromptsThatAreFoundGiveTheDraftsOfAFreshRun) {
  const auto engine = Must(TryOpen(ModelOf("e2b"), DraftsInChunks(), 2));
  const json cases = Goldens("e2b").at("cases");
  const Request request = Case(cases.at(kLongCase));
  const Completion first = Answer(*engine, request);
  for (const size_t other : {6, 5}) {
    Answer(*engine, Case(cases.at(other)));
    const Completion again = Answer(*engine, request);
    EXPECT_GT(again.cached_tokens, 0);
    ExpectSame(again, first);
    ExpectSameDrafts(again, first);
  }
  // Back to a part of the prompt, and forth again.
  Request shorter = request;
  shorter.ids.resize(70);
  Answer(*engine, shorter);
  const Completion again = Answer(*engine, request);
  ExpectSame(again, first);
  ExpectSameDrafts(again, first);
}

// The prompt continues after the answer whose rows the slot holds.
TEST(AssistantSessions, AConversationDraftsAfterAnAnswerThatItHolds) {
  const auto plain = Must(TryOpen(ModelOf("e2b"), {}));
  const auto drafting = Must(TryOpen(ModelOf("e2b"), DraftsBy(DrafterOf("e2b"))));
  Request request = Case(Goldens("e2b").at("cases").at(0));
  request.max_tokens = 40;
  request.reuse_answers = true;
  const Completion first = Answer(*drafting, request);
  ExpectSame(first, Answer(*plain, request));
  request.ids.insert(request.ids.end(), first.ids.begin(), first.ids.end());
  const int64_t written = std::ssize(request.ids) - 1;  // the last token has no row
  request.ids.push_back(300);
  const Completion found = Answer(*drafting, request);
  ExpectSame(found, Answer(*plain, request));
  EXPECT_EQ(found.cached_tokens, written);
  EXPECT_THAT(found.drafts.accepted, Gt(0));
}

// Several answers of one prompt read it once, and each of them drafts from its first token on.
TEST(AssistantSessions, ChoicesDraftAsEachAlone) {
  constexpr size_t kChoices = 4;
  const auto plain = Must(TryOpen(ModelOf("e2b"), {}, kChoices));
  // Three tokens are the share of a slot of the rows, whether others write or not.
  const auto drafting = Must(TryOpen(ModelOf("e2b"), DraftsBy(DrafterOf("e2b"), 3), kChoices));
  Request request = Case(Goldens("e2b").at("cases").at(3));
  request.sampling = {.temperature = 0.8, .seed = 9};
  auto expected = Must(plain->SubmitChoices(request, kChoices));
  auto together = Must(drafting->SubmitChoices(request, kChoices));
  std::vector<Completion> found;
  for (Generation& choice : together) found.push_back(Must(choice.Wait()));
  int64_t accepted = 0;
  for (size_t i = 0; i < kChoices; ++i) {
    SCOPED_TRACE(i);
    ExpectSame(found[i], Must(expected[i].Wait()));
    request.choice = static_cast<uint32_t>(i);
    ExpectSameDrafts(found[i], Answer(*drafting, request));
    accepted += found[i].drafts.accepted;
  }
  EXPECT_THAT(accepted, Gt(0));
}

// The assistant has no adapter: it reads caches and hidden rows of the adapted model.
TEST_P(OnEach, RowsWithAdaptersDraftBesideOthers) {
  const fs::path folder = TemporaryFile(std::string("drafted_adapter_") + GetParam());
  WriteAdapterFolder(folder, 512, {.alpha = 0.5});
  const auto open = [&](std::vector<Setting> settings) {
    EngineOptions options = OptionsFor(ModelOf("e2b"), std::move(settings), 3, GetParam());
    options.adapters = {folder.string()};
    options.choose_adapters = true;
    return Must(Engine::Open(options));
  };
  const auto drafting = open(DraftsBy(DrafterOf("e2b")));
  Request request = Case(Goldens("e2b").at("cases").at(0));
  if (GetParam() != std::string("cpu")) request.max_tokens = 12;
  std::vector<Request> requests(3, request);
  requests[0].adapters = std::vector<AdapterScale>{{0, 1}};
  requests[1].adapters = std::vector<AdapterScale>{{0, -0.5}};
  requests[2].adapters.emplace();
  std::vector<Generation> running;
  for (const Request& one : requests) running.push_back(Must(drafting->Submit(one)));
  std::vector<Completion> found;
  for (Generation& one : running) found.push_back(Must(one.Wait()));
  EXPECT_NE(found[0].ids, found[2].ids) << "the adapter changes nothing";
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_THAT(found[i].drafts.drafted, Gt(0));
    Request plain = requests[i];
    plain.drafts = false;
    plain.reuse_prefix = false;
    EXPECT_THAT(found[i].ids, ElementsAreArray(Answer(*drafting, plain).ids));
  }
  EXPECT_THAT(found[2].drafts.accepted, Gt(found[2].drafts.drafted / 3));
  fs::remove_all(folder);
}

// An engine of a model with this configuration, and whether its session keeps rows for drafts.
struct Opened {
  std::shared_ptr<Engine> engine;
  bool keeps_rows = false;
  size_t graphs = 0;

  explicit Opened(const EngineOptions& options) {
    NoNotices notices;
    engine = Must(EngineAccess::Open(Must(LoadModel(Must(ConfigOf(options)), {}, notices)),
                                     {.plugin_paths = options.plugin_paths}, notices));
    const Session& session = EngineAccess::SessionOf(*engine).session();
    graphs = session.graphs().size();
    for (const SessionGraph& of : session.graphs()) {
      keeps_rows |= of.graph.Find(draft_names::kHidden) != kNoValue;
    }
  }
};

TEST(AssistantSessions, WithoutDraftsNothingIsKeptForThem) {
  const fs::path folder = TemporaryFile("no_drafts");
  fs::create_directories(folder);
  fs::copy_file(ModelOf("e2b"), folder / "model.gguf");
  const std::string model = (folder / "model.gguf").string();
  const Opened alone(OptionsFor(model, {}));
  fs::copy_file(DrafterOf("e2b"), folder / "mtp-tiny.gguf");
  const Opened off(OptionsFor(model, {{"drafts.mtp", "false"}}));
  const Opened on(OptionsFor(model, {}));
  EXPECT_FALSE(alone.keeps_rows);
  EXPECT_FALSE(off.keeps_rows);
  EXPECT_TRUE(on.keeps_rows);
  EXPECT_EQ(off.graphs, alone.graphs);
  EXPECT_LT(off.graphs, on.graphs);
  EXPECT_EQ(off.engine->info().slot_bytes, alone.engine->info().slot_bytes);
  EXPECT_LT(off.engine->info().slot_bytes, on.engine->info().slot_bytes);
  fs::remove_all(folder);
}

constexpr int32_t kChosen = 3;  // tokens that sampling leaves (top_k)

// The probabilities of the tokens that a model draws next at temperature 1: of the best.
std::map<int32_t, double> SharesAfter(Engine& engine, const Request& prompt,
                                      const std::vector<int32_t>& drawn) {
  Request request = prompt;
  request.ids.insert(request.ids.end(), drawn.begin(), drawn.end());
  request.max_tokens = 1;
  request.top_logprobs = kChosen;
  const Completion answer = Answer(engine, request);
  std::map<int32_t, double> shares;
  double sum = 0;
  for (const TokenLogprob& one : answer.logprobs.at(0).top) {
    shares[one.token] = std::exp(static_cast<double>(one.logprob));
    sum += shares[one.token];
  }
  for (auto& [token, share] : shares) share /= sum;
  return shares;
}

// The shares of the answers of three tokens.
std::map<std::vector<int32_t>, double> SharesOfAnswers(Engine& engine, const Request& prompt) {
  std::map<std::vector<int32_t>, double> answers = {{{}, 1.0}};
  for (int place = 0; place < 3; ++place) {
    std::map<std::vector<int32_t>, double> longer;
    for (const auto& [drawn, share] : answers) {
      for (const auto& [token, of_token] : SharesAfter(engine, prompt, drawn)) {
        std::vector<int32_t> ids = drawn;
        ids.push_back(token);
        longer[ids] = share * of_token;
      }
    }
    answers = std::move(longer);
  }
  return answers;
}

// Pearson's statistic of counts; those that are expected less than five times count together.
double ChiSquare(const std::map<std::vector<int32_t>, int64_t>& counts,
                 const std::map<std::vector<int32_t>, double>& shares, int64_t draws) {
  double sum = 0;
  double rare_expected = 0;
  double rare = 0;
  for (const auto& [ids, share] : shares) {
    const double expected = share * static_cast<double>(draws);
    const auto found = counts.find(ids);
    const double count = found == counts.end() ? 0 : static_cast<double>(found->second);
    if (expected < 5) {
      rare_expected += expected;
      rare += count;
      continue;
    }
    sum += (count - expected) * (count - expected) / expected;
  }
  if (rare_expected > 0) sum += (rare - rare_expected) * (rare - rare_expected) / rare_expected;
  return sum;
}

// The second token is checked with a guess that follows it, so that the third one is drawn by the
// row of a guess or by a step after a wrong one. Which of them decides nothing about its shares.
TEST(AssistantSessions, DrawnTokensHaveTheDistributionOfTheModel) {
  constexpr int64_t kDraws = 800;
  constexpr int kSlots = 4;
  const auto plain = Must(TryOpen(ModelOf("e2b"), {}));
  const auto drafting = Must(TryOpen(ModelOf("e2b"), DraftsBy(DrafterOf("e2b")), kSlots));
  Request request = Case(Goldens("e2b").at("cases").at(3));
  const auto shares = SharesOfAnswers(*plain, request);
  request.max_tokens = 3;
  DraftCounts drafts;
  std::map<std::vector<int32_t>, int64_t> counts;
  for (int64_t draw = 0; draw < kDraws; draw += kSlots) {
    std::vector<Generation> running;
    for (int64_t seed = draw; seed < draw + kSlots; ++seed) {
      request.sampling = {.temperature = 1, .top_k = kChosen, .top_p = 1, .min_p = 0, .seed = seed};
      running.push_back(Must(drafting->Submit(request)));
    }
    for (Generation& one : running) {
      const Completion answer = Must(one.Wait());
      ++counts[answer.ids];
      drafts.drafted += answer.drafts.drafted;
      drafts.accepted += answer.drafts.accepted;
    }
  }
  for (const auto& [ids, count] : counts) EXPECT_TRUE(shares.contains(ids)) << count;
  EXPECT_THAT(drafts.accepted, AllOf(Gt(drafts.drafted / 10), Lt(drafts.drafted * 9 / 10)));
  // With 26 degrees of freedom, one value in 10,000 is above 61.7.
  EXPECT_LT(ChiSquare(counts, shares, kDraws), 61.7);
}

// The same tokens as without drafts for each seed, whatever is cut away.
TEST(AssistantSessions, DrawnTokensAreThoseOfTheSeed) {
  constexpr int64_t kSeeds = 40;
  const auto plain = Must(TryOpen(ModelOf("e2b"), {}));
  const auto drafting = Must(TryOpen(ModelOf("e2b"), DraftsBy(DrafterOf("e2b"))));
  Request request = Case(Goldens("e2b").at("cases").at(3));
  request.max_tokens = 12;
  int64_t accepted = 0;
  for (int64_t seed = 0; seed < kSeeds; ++seed) {
    request.sampling = {.temperature = 1, .top_k = seed % 2 == 0 ? 0 : 40, .seed = seed};
    const Completion answer = Answer(*drafting, request);
    EXPECT_THAT(answer.ids, ElementsAreArray(Answer(*plain, request).ids)) << seed;
    accepted += answer.drafts.accepted;
  }
  EXPECT_GT(accepted, kSeeds);
}

// Texts that neither the models nor their drafters learnt by heart.
TEST(AssistantSessions, OtherTextsAreGuessedInPartToo) {
  const std::array<std::string, 6> texts = {
      "The old general rode slowly through the village, and nobody",
      "She opened the window and",
      "In the evening the guests",
      "\"I do not know,\" said Pierre, \"whether",
      "Moscow, the ancient capital, lay before the army of",
      "Natasha laughed and ran to"};
  for (const std::string pair : {"e2b", "dense"}) {
    SCOPED_TRACE(pair);
    const auto plain = Must(TryOpen(ModelOf(pair), {}));
    const auto drafting = Must(TryOpen(ModelOf(pair), DraftsBy(DrafterOf(pair), 1)));
    DraftCounts sum;
    for (const std::string& text : texts) {
      for (const double temperature : {0.0, 1.0}) {
        Request request{.prompt = text, .max_tokens = 50, .ignore_end = true};
        request.sampling = {.temperature = temperature, .seed = 8};
        const Completion answer = Answer(*drafting, request);
        ExpectSame(answer, Answer(*plain, request));
        if (temperature > 0) continue;
        sum.drafted += answer.drafts.drafted;
        sum.accepted += answer.drafts.accepted;
      }
    }
    // About a third of the first guesses is right; by chance it is one in twenty.
    EXPECT_THAT(sum.accepted, AllOf(Gt(sum.drafted / 5), Lt(sum.drafted / 2)));
  }
}

}  // namespace
}  // namespace rullama
