// Adapters that requests choose: rows of different ones in one step have the bytes of an engine
// that has only this one.
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "engine/adapters_in_force.h"
#include "engine/api/engine.h"
#include "engine/engine_access.h"
#include "engine/engine_observer.h"
#include "engine/loading/engine_config.h"
#include "engine/loading/loaded_model.h"
#include "engine/model_program.h"
#include "tests/engine/no_notices_test_util.h"
#include "tests/fakes/adapter_folder.h"
#include "tests/gpu_backends.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Scales = std::vector<AdapterScale>;

constexpr const char* kE2b = RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf";
constexpr const char* kPlugins = RULLAMA_BINARY_DIR "/lib/rullama";
constexpr int64_t kInputs = 512;

// The folders of three adapters; the last one has another rank.
const std::vector<std::string>& Folders() {
  static const std::vector<std::string> folders = [] {
    const fs::path base = fs::path(::testing::TempDir()) / "chosen_adapters";
    const AdapterFolderOptions options[] = {{1, 3}, {1, 5}, {33, 3}};
    std::vector<std::string> paths;
    for (const AdapterFolderOptions& one : options) {
      paths.push_back((base / std::to_string(paths.size())).string());
      WriteAdapterFolder(paths.back(), kInputs, one);
    }
    return paths;
  }();
  return folders;
}

Result<std::shared_ptr<Engine>> TryOpen(const std::vector<std::string>& adapters,
                                        const std::string& backend = "cpu", bool choose = true) {
  return Engine::Open({.model = kE2b,
                       .backend = backend,
                       .settings = {{"context.slots", "4"},
                                    {"context.capacity", "512"},
                                    {"context.prefill_chunk", "32"},
                                    {"backend.device", "0"}},  // also one in software
                       .adapters = adapters,
                       .choose_adapters = choose,
                       .plugin_paths = {kPlugins}});
}

std::shared_ptr<Engine> Open(const std::vector<std::string>& adapters,
                             const std::string& backend = "cpu", bool choose = true) {
  return Must(TryOpen(adapters, backend, choose));
}

Request Prompt(std::optional<Scales> adapters, int64_t tokens = 12) {
  Request request{.prompt =
                      "Well, Prince, so Genoa and Lucca are now just family estates of the "
                      "Buonapartes. But I warn you, if you don't tell me that this means war",
                  .max_tokens = tokens,
                  .top_logprobs = 3,
                  .adapters = std::move(adapters)};
  request.sampling.temperature = 0;
  return request;
}

Completion Answer(Engine& engine, const Request& request) {
  return Must(Must(engine.Submit(request)).Wait());
}

// The rows of all steps that wrote answers, and the number of these steps.
std::pair<double, uint64_t> DecodedRows(const Engine& engine) {
  const Histogram rows = engine.stats().decode.rows;
  return {rows.sum, std::accumulate(rows.counts.begin(), rows.counts.end(), uint64_t{0})};
}

// Answers requests with these adapters, whose rows share steps, and each alone: the bytes are the
// same.
void ExpectTheBytesOfEachAlone(Engine& engine, const std::vector<Scales>& asked, int64_t tokens) {
  std::vector<Generation> together;
  for (const Scales& one : asked) together.push_back(Must(engine.Submit(Prompt(one, tokens))));
  std::vector<Completion> found;
  for (Generation& one : together) found.push_back(Must(one.Wait()));
  const auto [rows, steps] = DecodedRows(engine);
  EXPECT_GT(rows, static_cast<double>(steps)) << "no step had rows of two requests";
  for (size_t i = 0; i < asked.size(); ++i) {
    Request alone = Prompt(asked[i], tokens);
    alone.reuse_prefix = false;
    EXPECT_EQ(Answer(engine, alone).logprobs, found[i].logprobs) << i;
    for (size_t j = 0; j < i; ++j) EXPECT_NE(found[i].logprobs, found[j].logprobs) << i << " " << j;
  }
}

std::string ErrorOf(Engine& engine, const Request& request) {
  const auto submitted = engine.Submit(request);
  return submitted ? "none" : submitted.error().message;
}

class ChosenAdaptersOn : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, ChosenAdaptersOn, ::testing::ValuesIn(BackendNames()), kBackendName);

TEST_P(ChosenAdaptersOn, RowsOfOneStepHaveTheBytesOfEachAlone) {
  const int64_t tokens = GetParam() == std::string("cpu") ? 12 : 3;
  const auto all = Open(Folders(), GetParam());
  const std::vector<Scales> asked = {{{0, 1}}, {{1, -0.5}}, {{2, 2}}, {}};
  std::vector<Generation> together;
  for (const Scales& one : asked) together.push_back(Must(all->Submit(Prompt(one, tokens))));
  std::vector<Completion> found;
  for (Generation& one : together) found.push_back(Must(one.Wait()));
  EXPECT_NE(found[0].logprobs, found[1].logprobs);
  EXPECT_NE(found[0].logprobs, found[3].logprobs);
  for (size_t i = 0; i < asked.size(); ++i) {
    Request alone = Prompt(asked[i], tokens);
    alone.reuse_prefix = false;
    EXPECT_EQ(Answer(*all, alone).logprobs, found[i].logprobs) << i;
    if (asked[i].empty()) continue;
    const auto only = Open({Folders()[i]}, GetParam());
    const Completion expected = Answer(*only, Prompt(Scales{{0, asked[i].front().scale}}, tokens));
    EXPECT_EQ(found[i].ids, expected.ids) << i;
    EXPECT_EQ(found[i].logprobs, expected.logprobs) << i;
  }
}

// Adapters of attention and of late layers.
const std::vector<std::string>& FoldersOfModules() {
  static const std::vector<std::string> folders = [] {
    const fs::path base = fs::path(::testing::TempDir()) / "adapters_of_modules";
    const std::pair<const char*, int64_t> modules[] = {{"layers.5.self_attn.q_proj", 256},
                                                       {"layers.7.self_attn.o_proj", 512},
                                                       {"layers.7.mlp.down_proj", 1024}};
    std::vector<std::string> paths;
    for (const auto& [module, inputs] : modules) {
      paths.push_back((base / module).string());
      WriteAdapterFolder(paths.back(), inputs, {.module = module});
    }
    return paths;
  }();
  return folders;
}

TEST(ChosenAdapters, RowsOfOneStepMayHaveDifferentModulesAdapted) {
  ExpectTheBytesOfEachAlone(*Open(FoldersOfModules()), {{{0, 1}}, {{1, 1}}, {{2, 1}}, {}}, 12);
}

std::shared_ptr<Engine> OpenWith(const std::vector<std::string>& adapters,
                                 const std::vector<Setting>& settings) {
  return Must(Engine::Open({.model = kE2b,
                            .settings = settings,
                            .adapters = adapters,
                            .choose_adapters = true,
                            .plugin_paths = {kPlugins}}));
}

// Devices of one kind share the layers: both have adapted ones, and rows that choose.
TEST(ChosenAdapters, DevicesThatShareTheLayersGiveTheBytesOfOne) {
  std::vector<std::string> folders = FoldersOfModules();
  folders.push_back(Folders()[0]);  // of the first layer
  const auto open = [&](const char* devices) {
    return OpenWith(folders, {{"backend.devices", devices},
                              {"backend.options.threads", "1"},
                              {"context.slots", "4"},
                              {"context.capacity", "256"}});
  };
  const auto one = open("cpu"), two = open("cpu,cpu");
  const std::vector<Scales> asked = {{{0, 1}}, {{2, 1}}, {{3, -0.5}}, {{0, 1}, {3, 1}}, {}};
  std::vector<Generation> together;
  for (const Scales& scales : asked) together.push_back(Must(two->Submit(Prompt(scales, 8))));
  for (size_t i = 0; i < asked.size(); ++i) {
    EXPECT_EQ(Must(together[i].Wait()).logprobs, Answer(*one, Prompt(asked[i], 8)).logprobs) << i;
  }
}

// Rows of a draft have the adapters of their request.
TEST(ChosenAdapters, DraftsChangeNoByte) {
  const auto engine = OpenWith(Folders(), {{"backend.name", "cpu"},
                                           {"context.slots", "4"},
                                           {"context.capacity", "256"},
                                           {"drafts.lookup", "true"}});
  const std::vector<Scales> asked = {{{0, 1}}, {{1, -0.5}}, {{0, 1}, {1, 1}}, {}};
  std::vector<Request> requests;
  std::vector<Generation> together;
  for (const Scales& scales : asked) {
    Request request = Prompt(scales, 24);
    request.prompt += request.prompt;
    request.sampling.logit_bias = {{300, 100.0F}};  // a token that repeats itself
    requests.push_back(request);
    together.push_back(Must(engine->Submit(request)));
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    const Completion found = Must(together[i].Wait());
    EXPECT_GT(found.drafts.accepted, 0) << i;
    requests[i].drafts = false;
    requests[i].reuse_prefix = false;
    EXPECT_EQ(found.logprobs, Answer(*engine, requests[i]).logprobs) << i;
  }
}

// One more than may be in force together.
const std::vector<std::string>& TooMany() {
  static const std::vector<std::string> folders(kMaxAdaptersInForce + 1, Folders()[0]);
  return folders;
}

TEST(ChosenAdapters, SixtyFourAreInForceTogether) {
  const auto refused = TryOpen(TooMany());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().id, "adapter.limit");
  EXPECT_THAT(refused.error().message, HasSubstr("65 adapters"));
  EXPECT_THAT(refused.error().message, HasSubstr("at most 64"));
  EXPECT_THAT(refused.error().message, HasSubstr("--lora-init-without-apply"));
  EXPECT_TRUE(TryOpen(TooMany(), "cpu", /*choose=*/false)) << "they are joined";

  std::vector<std::string> one_is_off = TooMany();
  one_is_off.back() += ":0";
  const auto engine = Open(one_is_off);
  EXPECT_EQ(Answer(*engine, Prompt(std::nullopt, 2)).ids.size(), 2U);
  Scales all;
  for (int32_t id = 0; id <= kMaxAdaptersInForce; ++id) all.push_back({id, 1});
  EXPECT_THAT(ErrorOf(*engine, Prompt(all)), HasSubstr("at most 64 adapters"));
  EXPECT_FALSE(engine->SetAdapterScales(all));
  const AdapterTable unchecked(std::vector<AdapterFacts>(TooMany().size()), /*can_choose=*/true,
                               /*apply=*/true);
  EXPECT_FALSE(unchecked.InForce(std::nullopt));
}

TEST(ChosenAdapters, SixtyFourAddUp) {
  std::vector<std::string> off = TooMany();
  for (std::string& one : off) one += ":0";
  const auto engine = Open(off);
  Scales all;
  for (int32_t id = 1; id <= kMaxAdaptersInForce; ++id) {
    all.push_back({id, 1.0 / kMaxAdaptersInForce});
  }
  const Completion found = Answer(*engine, Prompt(all, 1));
  const Completion expected = Answer(*engine, Prompt(Scales{{0, 1}}, 1));
  ASSERT_EQ(found.ids, expected.ids);
  EXPECT_NE(found.ids, Answer(*engine, Prompt(Scales{}, 1)).ids);
  EXPECT_NEAR(found.logprobs[0].drawn.logprob, expected.logprobs[0].drawn.logprob, 1e-3);
}

TEST(ChosenAdapters, OneOfManyHasTheBytesOfOneAlone) {
  std::vector<std::string> many;
  for (int i = 0; i < kMaxAdaptersInForce; ++i) {
    many.push_back(Folders()[static_cast<size_t>(i) % Folders().size()] + ":0");
  }
  const auto engine = Open(many);
  for (const int32_t id : {0, 40, 62}) {  // of each folder
    const auto only = Open({Folders()[static_cast<size_t>(id) % Folders().size()]});
    EXPECT_EQ(Answer(*engine, Prompt(Scales{{id, 0.5}})).logprobs,
              Answer(*only, Prompt(Scales{{0, 0.5}})).logprobs)
        << id;
  }
}

struct CompiledPlans final : EngineObserver {
  void OnSpan(const StepSpan& span) override {
    if (span.kind == StepSpan::Kind::kCompile) ++count;
  }
  void OnRequest(const RequestSpan& /*span*/) override {}
  std::atomic<int> count = 0;
};

TEST(ChosenAdapters, StepsWithSeveralAreWarmedUp) {
  CompiledPlans plans;
  NoNotices notices;
  const LayeredConfig config =
      Must(ConfigOf({.model = kE2b,
                     .backend = "cpu",
                     .settings = {{"context.capacity", "64"}, {"context.prefill_chunk", "32"}},
                     .adapters = {Folders()[0], Folders()[1]}}));
  EngineSetup setup{.plugin_paths = {kPlugins}, .warm_up = WarmUp::kDispatch};
  setup.hooks.observer = &plans;
  const auto engine = Must(
      EngineAccess::Open(Must(LoadModel(config, {}, notices, AdapterUse::kByRow)), setup, notices));
  const int before = plans.count;
  EXPECT_GT(before, 0);
  for (const std::optional<Scales>& one : {std::optional<Scales>(), {{{0, 1}}}}) {
    Answer(*engine, {.prompt = "The sky is", .max_tokens = 3, .adapters = one});
  }
  EXPECT_EQ(plans.count, before);
}

TEST(ChosenAdapters, AFactorThatMakesThemInfiniteIsAnError) {
  const auto folder = (fs::path(::testing::TempDir()) / "infinite_adapter").string();
  WriteAdapterFolder(folder, kInputs, {.alpha = 1e39});
  const auto refused = TryOpen({folder});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().id, "adapter.value");
}

TEST(AdapterTable, PartsOfTheModelAreListedAsTheyAre) {
  const AdapterTable table({{.path = "a", .scale = 0.5}}, /*can_choose=*/false, /*apply=*/false);
  EXPECT_EQ(table.List()[0].scale, 0.5);
  const AdapterTable chosen({{.path = "a", .scale = 0.5}}, /*can_choose=*/true, /*apply=*/false);
  EXPECT_EQ(chosen.List()[0].scale, 0);
}

TEST(PromptSpace, ListsOfOneHashAreComparedEntryByEntry) {
  const auto space_of = [](std::vector<AdapterScale> scales) {
    return PromptSpace{.client = 1,
                       .adapters = std::make_shared<const AdaptersInForce>(
                           AdaptersInForce{.scales = std::move(scales), .key = 7})};
  };
  const PromptSpace space = space_of({{0, 0.5}, {2, 1}});
  EXPECT_EQ(space, space_of({{0, 0.5}, {2, 1}}));
  EXPECT_NE(space, space_of({{0, 0.5}, {2, 0.75}}));
  EXPECT_NE(space, space_of({{0, 0.5}, {1, 1}}));
  EXPECT_NE(space, space_of({{0, 0.5}}));
  EXPECT_NE(space, PromptSpace{.client = 1});
}

TEST(AdapterTable, TwoOfOneContentAreRestored) {
  const AdapterTable table(
      {{.path = "a", .scale = 0.5, .content = 7}, {.path = "b", .scale = 2, .content = 7}},
      /*can_choose=*/true, /*apply=*/true);
  const auto stored = table.Stored(Must(table.InForce(std::nullopt)));
  const auto restored = table.Restored(stored);
  ASSERT_TRUE(restored);
  EXPECT_EQ((*restored)->key, Must(table.InForce(std::nullopt))->key);
  const AdapterTable one({{.path = "a", .content = 7}}, /*can_choose=*/true, /*apply=*/true);
  EXPECT_FALSE(one.Restored(stored)) << "there are two";
}

TEST(AdapterTable, GraphsOfSeveralAdaptersHaveNamesOfTheirOwn) {
  ProgramGraphs several;
  several.read = {1};
  several.hidden = {{2}, ""};
  several.logits = {{3}, ""};
  ProgramGraphs graphs;
  graphs.read = {10};
  graphs.hidden = {{11}, ""};
  graphs.logits = {{12}, ""};
  for (auto& of_kind : graphs.draw) of_kind = {GraphHandle{13}, GraphHandle{14}};
  graphs.adapters = AdapterGraphs{.several = std::make_shared<const ProgramGraphs>(several)};
  EXPECT_EQ(graphs.UseOf({1}), "prompts with several adapters");
  EXPECT_EQ(graphs.UseOf({3}), "logits of prompts with several adapters");
  EXPECT_EQ(graphs.UseOf({10}), "prompts");
}

// The last bits differ, as the sums have another order.
TEST(ChosenAdapters, TheyAddWhatAdaptersOfAllRequestsAdd) {
  const auto chosen = Open(Folders());
  const auto fixed = Open({Folders()[0] + ":0.5", Folders()[1] + ":0", Folders()[2] + ":-1"}, "cpu",
                          /*choose=*/false);
  const Completion found = Answer(*chosen, Prompt(Scales{{2, -1}, {0, 0.5}}, 1));
  const Completion expected = Answer(*fixed, Prompt(std::nullopt, 1));
  ASSERT_EQ(found.ids, expected.ids);
  EXPECT_NEAR(found.logprobs[0].drawn.logprob, expected.logprobs[0].drawn.logprob, 0.02);
}

TEST(ChosenAdapters, OrderAndZerosDoNotMatter) {
  const auto engine = Open(Folders());
  const Completion reference = Answer(*engine, Prompt(Scales{{0, 0.5}, {1, 1}}));
  for (const Scales& same : {Scales{{1, 1}, {0, 0.5}}, Scales{{2, 0}, {0, 0.5}, {1, 1}}}) {
    const Completion again = Answer(*engine, Prompt(same));
    EXPECT_EQ(again.logprobs, reference.logprobs);
    EXPECT_GT(again.cached_tokens, 0) << "the same adapters are in force";
  }
  EXPECT_EQ(Answer(*engine, Prompt(Scales{{0, 0}})).logprobs,
            Answer(*engine, Prompt(Scales{})).logprobs);
}

// One request has several adapters in force, others have one: their steps are apart.
TEST(ChosenAdapters, NeighboursOfSeveralAdaptersKeepTheirBytes) {
  const auto engine = Open(Folders());
  const std::vector<Scales> asked = {{{0, 1}, {1, 1}}, {{1, 1}}, {{0, 1}, {1, 1}, {2, 1}}, {}};
  std::vector<Completion> alone;
  for (const Scales& one : asked) alone.push_back(Answer(*engine, Prompt(one)));
  std::vector<Generation> together;
  for (const Scales& one : asked) {
    Request request = Prompt(one);
    request.reuse_prefix = false;
    together.push_back(Must(engine->Submit(request)));
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    EXPECT_EQ(Must(together[i].Wait()).logprobs, alone[i].logprobs) << i;
  }
}

TEST(ChosenAdapters, PromptsAreReusedWithTheSameAdaptersOnly) {
  const auto engine = Open(Folders());
  const auto cached = [&engine](const Scales& scales) {
    return Answer(*engine, Prompt(scales, 1)).cached_tokens;
  };
  EXPECT_EQ(cached({{0, 1}}), 0);
  for (const Scales& other : {Scales{}, Scales{{0, 0.5}}, Scales{{1, 1}}, Scales{{0, 1}, {1, 1}}}) {
    EXPECT_EQ(cached(other), 0);
  }
  EXPECT_GT(cached({{0, 1}}), 0);
}

TEST(ChosenAdapters, ThoseOfTheEngineAreForRequestsThatChooseNone) {
  const auto engine = Open({Folders()[0] + ":0.25", Folders()[1]});
  const std::vector<AdapterInfo> loaded = engine->adapters();
  ASSERT_EQ(loaded.size(), 2U);
  EXPECT_EQ(loaded[0].name, "0");
  EXPECT_EQ(loaded[0].scale, 0.25);
  EXPECT_EQ(loaded[0].rank, 1);
  EXPECT_EQ(loaded[0].alpha, 4);
  EXPECT_EQ(Answer(*engine, Prompt(std::nullopt)).logprobs,
            Answer(*engine, Prompt(Scales{{0, 0.25}, {1, 1}})).logprobs);
  ASSERT_TRUE(engine->SetAdapterScales(Scales{{1, 2}}));
  EXPECT_EQ(engine->adapters()[0].scale, 0);
  EXPECT_EQ(engine->adapters()[0].own_scale, 0.25);
  EXPECT_EQ(Answer(*engine, Prompt(std::nullopt)).logprobs,
            Answer(*engine, Prompt(Scales{{1, 2}})).logprobs);
  EXPECT_FALSE(engine->SetAdapterScales(Scales{{0, 1}, {2, 1}}));
  EXPECT_EQ(engine->adapters()[1].scale, 2) << "a bad list changes nothing";
}

TEST(ChosenAdapters, EmbeddingsHaveThem) {
  const auto engine = Open(Folders());
  const auto vector = [&engine](const std::optional<Scales>& scales) {
    return Must(engine->Embed("The sky", {.adapters = scales}));
  };
  EXPECT_EQ(vector(Scales{{0, 1}}), vector(Scales{{0, 1}}));
  EXPECT_NE(vector(Scales{{0, 1}}), vector(Scales{}));
}

TEST(ChosenAdapters, WrongChoicesAreErrors) {
  const auto engine = Open(Folders());
  const auto error = [&engine](const Scales& scales) { return ErrorOf(*engine, Prompt(scales)); };
  EXPECT_THAT(error({{3, 1}}), HasSubstr("adapters[0].id is 3"));
  EXPECT_THAT(error({{0, 1}, {-1, 1}}), HasSubstr("adapters[1].id is -1"));
  EXPECT_THAT(error({{0, 1}, {0, 2}}), HasSubstr("adapters[1].id is 0 once more"));
  EXPECT_THAT(error({{0, 1001}}), HasSubstr("adapters[0].scale is 1001"));
  EXPECT_THAT(error({{0, std::nan("")}}), HasSubstr("adapters[0].scale"));
  EXPECT_THAT(error({{0, std::numeric_limits<double>::infinity()}}), HasSubstr("scale"));
  const auto fixed = Open({Folders()[0]}, "cpu", /*choose=*/false);
  EXPECT_FALSE(fixed->chooses_adapters());
  EXPECT_THAT(ErrorOf(*fixed, Prompt(Scales{})), HasSubstr("for all requests"));
  EXPECT_FALSE(fixed->SetAdapterScales({}));
}

TEST(ChosenAdapters, ASlotIsRestoredWithItsAdapters) {
  const SlotFile file{.path = (fs::path(::testing::TempDir()) / "slot_of_adapter").string()};
  const auto engine = Open(Folders());
  Request request = Prompt(Scales{{1, 0.5}});
  request.slot = 2;
  const Completion first = Answer(*engine, request);
  ASSERT_TRUE(engine->SaveSlot(2, 0, file));
  // The numbers of adapters may change, their contents not.
  const auto other = Open({Folders()[2], Folders()[1]});
  ASSERT_TRUE(other->RestoreSlot(0, 0, file));
  EXPECT_EQ(Answer(*other, Prompt(Scales{{0, 0.5}})).cached_tokens, 0);
  ASSERT_TRUE(other->RestoreSlot(0, 0, file));
  const Completion again = Answer(*other, Prompt(Scales{{1, 0.5}}));
  EXPECT_GT(again.cached_tokens, 0);
  EXPECT_EQ(again.logprobs, first.logprobs);
  for (const auto& without : {Open({Folders()[0]}), Open({})}) {
    const auto refused = without->RestoreSlot(0, 0, file);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().id, "slot.mismatch");
    EXPECT_THAT(refused.error().message, HasSubstr("adapters"));
  }
}

}  // namespace
}  // namespace rullama
