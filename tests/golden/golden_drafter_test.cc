// Drafters against goldens of an independent float64 implementation: what each step of a draft
// computes, every draft, and how many of its tokens the model accepts. Needs ../shared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/gguf/gguf.h"
#include "core/gguf/gguf_writer.h"
#include "core/ir/draft_names.h"
#include "engine/drafts/assistant_drafter.h"
#include "engine/model_program.h"
#include "engine/scheduling/batch_session.h"
#include "engine/scheduling/scheduler_options.h"
#include "engine/scheduling/token_decoder.h"
#include "models/gemma4/drafter/drafter_graph.h"
#include "models/registry.h"
#include "tests/golden/golden_support.h"
#include "tests/golden/session_support.h"

namespace rullama {
namespace {

using golden::Backend;
using golden::Loaded;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

const std::string kShared = RULLAMA_SOURCE_DIR "/../shared/";
constexpr int32_t kSlot = 1;  // of two
constexpr int64_t kSlots = 2;
constexpr int64_t kDraft = 4;
constexpr int64_t kChunk = 64;

std::string DrafterOf(const std::string& pair) {
  return kShared + "models/mtp/tiny-" + pair + "-mtp-f16.gguf";
}

// Writes a drafter without the tensors of its ordered head, as llama.cpp's converter does.
void WriteWithDenseHead(const std::string& from, const std::string& to) {
  const GgufFile file = Must(GgufFile::Open(from));
  GgufWriter writer;
  for (const GgufEntry& entry : file.metadata()) {
    ASSERT_TRUE(writer.SetRaw(std::string(entry.key), entry.value));
  }
  std::vector<const TensorInfo*> kept;
  for (const TensorInfo& tensor : file.tensors()) {
    if (tensor.name.starts_with("masked_embd_")) continue;
    ASSERT_TRUE(writer.AddTensor(std::string(tensor.name), tensor.dtype,
                                 std::span(tensor.dims).first(tensor.rank)));
    kept.push_back(&tensor);
  }
  GgufOutput output = Must(writer.Begin(to));
  for (const TensorInfo* tensor : kept) ASSERT_TRUE(output.Append(file.data(*tensor)));
  ASSERT_TRUE(output.Finish());
}

RowRequest Greedy(int32_t token) {
  return {.slot = kSlot, .token = token, .sampling = {.temperature = 0}};
}

// A model and its drafter on a backend. The graph of a whole draft has what its steps compute as
// outputs.
class Pair {
 public:
  Pair(const Backend& backend, const std::string& name, const std::string& drafter)
      : loaded_(golden::Open(backend, kShared + "models/tiny-" + name + "-f16.gguf")),
        drafter_file_(Must(GgufFile::Open(drafter))),
        model_(Must(OpenModel(loaded_->file))),
        assistant_(Must(model_->ReadAssistant(drafter_file_, AssistantOrigin::kNamed))) {
    ModelProgramOptions options{.outputs = GraphOutputs::kBatch,
                                .slots = kSlots,
                                .capacity = 256,
                                .kv_dtype = Loaded::KvDtypeOf(backend),
                                .limits = BatchLimits(DecodeRows(kSlots, kDraft), kChunk),
                                .spare_rows = 16,
                                .assistant = assistant_.get(),
                                .max_draft = kDraft};
    ModelProgram program = Must(BuildModelProgram(*model_, options));
    graphs_ = program.handles;
    AddOutputs(program.graphs[graphs_.drafts->Of(kDraft).graph.index].graph);
    loaded_->AddConstants(std::move(program.constants));
    loaded_->weights->AddFile(std::string(assistant_->tensor_prefix()), drafter_file_);
    std::vector<SyntheticConstant> constants = Must(assistant_->MakeConstants(drafter_file_));
    for (const SyntheticConstant& constant : constants) {
      if (constant.name != gemma4::kClusteredTokens) continue;
      ordering_.resize(constant.bytes.size() / sizeof(int32_t));
      std::memcpy(ordering_.data(), constant.bytes.data(), constant.bytes.size());
    }
    loaded_->AddConstants(std::move(constants));
    SessionOptions session = loaded_->Options(kChunk);
    session.limits = options.limits;
    loaded_->session =
        Must(Session::Create(std::move(program.graphs), *loaded_->weights, std::move(session)));
  }

  [[nodiscard]] Session& session() const { return *loaded_->session; }
  [[nodiscard]] const ProgramGraphs& graphs() const { return graphs_; }
  [[nodiscard]] const Model& model() const { return *model_; }
  [[nodiscard]] const AssistantFacts& facts() const { return assistant_->facts(); }
  // The tokens, cluster by cluster; empty for a head that computes all.
  [[nodiscard]] const std::vector<int32_t>& ordering() const { return ordering_; }

  // An output of the last draft, of a slot.
  template <typename T = float>
  [[nodiscard]] std::vector<T> Read(const std::string& name, size_t count) const {
    std::vector<T> values(count);
    const Status read = session().ReadOutput(name, std::as_writable_bytes(std::span(values)));
    EXPECT_TRUE(read) << name << ": " << read.error().ToString();
    return values;
  }
  // What the model's last norm gave for the row at a position.
  [[nodiscard]] std::vector<float> Hidden(int32_t position) const {
    const auto width = static_cast<size_t>(facts().target_width);
    std::vector<float> all(session().StateBytes(draft_names::kHidden) / sizeof(float));
    EXPECT_TRUE(session().ReadState(draft_names::kHidden, std::as_writable_bytes(std::span(all))));
    const auto place = static_cast<size_t>(DraftGraphs::PlaceOf(kSlot, position));
    const auto row = std::span(all).subspan(place * width, width);
    return {row.begin(), row.end()};
  }

 private:
  void AddOutputs(Graph& graph) const {
    const auto add = [&](const std::string& name) {
      ASSERT_NE(graph.Find(name), kNoValue) << name;
      graph.outputs.push_back({name, graph.Find(name), RowDemand::kAll});
    };
    for (int64_t step = 0; step < kDraft; ++step) {
      const std::string prefix = "draft." + std::to_string(step) + ".";
      add(prefix + "draft.input");
      for (int64_t i = 0; i < facts().layers; ++i) {
        add(prefix + "blk." + std::to_string(i) + ".out");
      }
      add(prefix + "output.norm");
      add(prefix + "draft.next");
      if (!facts().has_ordered_head()) {
        add(prefix + "logits");
        continue;
      }
      add(prefix + "head.chosen.indices");
      add(prefix + "head.scores");
    }
  }

  std::unique_ptr<Loaded> loaded_;
  GgufFile drafter_file_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Assistant> assistant_;
  ProgramGraphs graphs_;
  std::vector<int32_t> ordering_;
};

// What the drafter computed in one round, against its traced numbers.
class TracedRound {
 public:
  TracedRound(const Pair& pair, const std::string& files, const json& trace, size_t index,
              double bound)
      : pair_(pair), files_(files), trace_(trace), index_(index), bound_(bound) {}

  void CheckHidden(int32_t position) const {
    Expect(pair_.Hidden(position), Golden("hidden", 0, 1), "hidden");
  }
  void CheckSteps(int64_t steps) const {
    for (int64_t step = 0; step < steps; ++step) CheckStep(static_cast<size_t>(step));
  }

 private:
  // Part `part` of `parts` of the golden numbers of this round.
  [[nodiscard]] std::vector<float> Golden(const std::string& kind, size_t part,
                                          size_t parts) const {
    const std::vector<float> all = golden::ReadFloats(files_ + "." + kind + ".f32");
    const size_t rounds = trace_.at("rounds").size();
    EXPECT_EQ(all.size() % (rounds * parts), 0U);
    const size_t size = all.size() / rounds / parts;
    const auto found = std::span(all).subspan((index_ * parts + part) * size, size);
    return {found.begin(), found.end()};
  }
  void Expect(std::span<const float> found, std::span<const float> expected,
              const std::string& what) const {
    EXPECT_LE(golden::RelativeL2(found, expected), bound_) << files_ << " " << what;
  }

  void CheckStep(size_t step) const {
    const std::string prefix = "draft." + std::to_string(step) + ".";
    const AssistantFacts& facts = pair_.facts();
    const auto width = static_cast<size_t>(facts.width);
    std::vector<std::string> values = {prefix + "draft.input"};
    for (int64_t i = 0; i < facts.layers; ++i) {
      values.push_back(prefix + "blk." + std::to_string(i) + ".out");
    }
    values.push_back(prefix + "output.norm");
    const size_t parts = static_cast<size_t>(kDraft) * values.size();
    for (size_t i = 0; i < values.size(); ++i) {
      Expect(pair_.Read(values[i], width), Golden("layers", step * values.size() + i, parts),
             values[i]);
    }
    Expect(pair_.Read(prefix + "draft.next", static_cast<size_t>(facts.target_width)),
           Golden("next", step, kDraft), prefix + "next");
    const std::vector<float> logits = Golden("logits", step, kDraft);
    if (!facts.has_ordered_head()) {
      Expect(pair_.Read(prefix + "logits", logits.size()), logits, prefix + "logits");
      return;
    }
    CheckClusters(prefix, step, logits);
  }

  // The scores of the clusters that were chosen are those logits that the golden has for them.
  void CheckClusters(const std::string& prefix, size_t step,
                     const std::vector<float>& logits) const {
    const auto chosen = static_cast<size_t>(pair_.facts().chosen_clusters);
    const size_t size = pair_.ordering().size() / static_cast<size_t>(pair_.facts().clusters);
    std::vector<int32_t> clusters = pair_.Read<int32_t>(prefix + "head.chosen.indices", chosen);
    std::vector<float> expected;
    for (const int32_t cluster : clusters) {
      for (size_t i = 0; i < size; ++i) {
        const int32_t token = pair_.ordering()[static_cast<size_t>(cluster) * size + i];
        expected.push_back(logits[static_cast<size_t>(token)]);
      }
    }
    Expect(pair_.Read(prefix + "head.scores", expected.size()), expected, prefix + "scores");
    std::ranges::sort(clusters);
    EXPECT_THAT(
        clusters,
        ElementsAreArray(trace_.at("centroids").at(index_).at(step).get<std::vector<int32_t>>()))
        << files_ << " " << prefix;
  }

  const Pair& pair_;
  const std::string& files_;
  const json& trace_;
  size_t index_;
  double bound_;
};

struct Case {
  Backend backend;
  std::string pair;
};

std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  return info.param.backend.name + info.param.backend.isa + "_" + info.param.pair;
}

std::vector<Case> CasesOf(const std::vector<Backend>& backends) {
  std::vector<Case> cases;
  for (const Backend& backend : backends) {
    for (const char* pair : {"e2b", "dense"}) cases.push_back({backend, pair});
  }
  return cases;
}

class GoldenDrafter : public ::testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] bool is_exact() const { return GetParam().backend.name == "reference"; }
  // Keys and values in f16 cost 6e-4 at worst.
  [[nodiscard]] double bound() const { return is_exact() ? 2e-5 : 2e-3; }
  [[nodiscard]] double least_margin() const { return is_exact() ? 1e-3 : 0.05; }

  // Whether the model's tokens after `rows` rows are far enough from the next best ones.
  [[nodiscard]] bool IsClear(const json& item, const json& round, size_t rows) const {
    const auto margins = item.at("margins").get<std::vector<double>>();
    const size_t first = round.at("n").get<size_t>() - item.at("prompt").size();
    const size_t end = std::min(first + rows, margins.size());
    return std::all_of(margins.begin() + static_cast<ptrdiff_t>(first),
                       margins.begin() + static_cast<ptrdiff_t>(end),
                       [this](double margin) { return margin > least_margin(); });
  }
  // Whether the golden's tokens are far enough from the next best ones to be the same everywhere.
  [[nodiscard]] bool IsJudged(const json& round) const {
    for (const char* margins : {"draft_margins", "centroid_margin"}) {
      if (!round.contains(margins)) continue;
      for (const double margin : round.at(margins).get<std::vector<double>>()) {
        if (margin < least_margin()) return false;
      }
    }
    return true;
  }

  // Reads a prompt. Returns the token after it.
  static int32_t Begin(Pair& pair, BatchSession& batch, std::span<const int32_t> prompt) {
    pair.session().ForgetSlot(kSlot);
    const size_t first = prompt.size() > kChunk ? kChunk : 0;
    if (first > 0) Must(batch.Read(kSlot, prompt.first(first), {}));
    const RowRequest draw = Greedy(0);
    return Must(Must(batch.Read(kSlot, prompt.subspan(first), std::span(&draw, 1))).front().token);
  }

  // Drafts, checks the golden's own draft, and goes back to what was accepted.
  void PlayRound(Pair& pair, BatchSession& batch, const json& item, const json& round,
                 const std::vector<int32_t>& sequence, const TracedRound* traced) {
    const auto expected = round.at("drafted").get<std::vector<int32_t>>();
    AssistantDrafter drafter(pair.session(), *pair.graphs().drafts, {});
    DraftRequest request{.slot = kSlot, .tokens = sequence, .most = std::ssize(expected)};
    if (traced != nullptr) traced->CheckHidden(pair.session().past(kSlot) - 1);
    ASSERT_TRUE(drafter.Draft(std::span(&request, 1)));
    if (IsJudged(round)) {
      EXPECT_THAT(request.draft, ElementsAreArray(expected)) << round;
      if (traced != nullptr) traced->CheckSteps(std::ssize(expected));
      ++judged_;
    }
    std::vector<RowRequest> rows = {Greedy(sequence.back())};
    // Golden drafts run past the end of an answer; what is checked does not.
    const auto end = std::ranges::find_if(
        expected, [this](int32_t token) { return std::ranges::count(ends_, token) > 0; });
    for (const int32_t token : std::span(expected.begin(), end)) rows.push_back(Greedy(token));
    const int32_t past = pair.session().past(kSlot);
    const auto results = batch.Decode(rows);
    ASSERT_TRUE(results) << results.error().ToString();
    const auto accepted = round.at("accepted").get<int32_t>();
    if (IsClear(item, round, rows.size())) {
      EXPECT_EQ(CheckDraft(rows, 0, *results).accepted, accepted) << round;
      EXPECT_EQ(*(*results)[static_cast<size_t>(accepted)].token, round.at("bonus").get<int32_t>());
    }
    ASSERT_TRUE(pair.session().SetPast(kSlot, past + accepted + 1));
  }

  void Play(Pair& pair, BatchSession& batch, const json& golden, const json& item) {
    const std::string files =
        kShared + "goldens/mtp-" + GetParam().pair + "/" + item.at("name").get<std::string>();
    const auto prompt = item.at("prompt").get<std::vector<int32_t>>();
    ASSERT_EQ(Begin(pair, batch, prompt), item.at("greedy").at(0));
    const json& run = item.at(pair.facts().has_ordered_head() ? "ordered" : "dense");
    const auto traced = item.at("trace").at("rounds").get<std::vector<size_t>>();
    std::vector<int32_t> sequence = prompt;
    for (size_t i = 0; i < run.at("rounds").size(); ++i) {
      const json& round = run.at("rounds").at(i);
      sequence.resize(round.at("n").get<size_t>() - 1);
      sequence.push_back(round.at("token"));
      const auto found = std::ranges::find(traced, i);
      const TracedRound trace(pair, files, item.at("trace"),
                              static_cast<size_t>(found - traced.begin()), bound());
      ASSERT_NO_FATAL_FAILURE(
          PlayRound(pair, batch, item, round, sequence, found == traced.end() ? nullptr : &trace));
      for (const auto& token : round.at("drafted")) sequence.push_back(token);
    }
    ASSERT_EQ(golden.at("n_draft"), kDraft);
  }

  std::vector<int32_t> ends_;  // tokens that end an answer
  int64_t judged_ = 0;         // rounds
};

TEST_P(GoldenDrafter, DraftsAndAcceptedTokens) {
  const json golden = golden::ReadJson(kShared + "goldens/mtp-" + GetParam().pair + "/golden.json");
  ends_ = golden.at("ends").get<std::vector<int32_t>>();
  Pair pair(GetParam().backend, GetParam().pair, DrafterOf(GetParam().pair));
  BatchSession batch(pair.session(), pair.graphs(), pair.model().facts().vocabulary);
  for (const json& item : golden.at("cases")) {
    ASSERT_NO_FATAL_FAILURE(Play(pair, batch, golden, item));
  }
  EXPECT_GT(judged_, 20);
}

// Answers whose drafts have four tokens, or as many as the answer may still have before its last.
class WholeAnswers : public GoldenDrafter {
 protected:
  [[nodiscard]] bool IsEnd(int32_t token) const { return std::ranges::count(ends_, token) > 0; }

  // Adds the tokens of one step to a sequence of at most `limit`.
  void Step(Pair& pair, BatchSession& batch, size_t limit, std::vector<int32_t>& sequence) {
    AssistantDrafter drafter(pair.session(), *pair.graphs().drafts, ends_);
    const auto left = static_cast<int64_t>(limit - sequence.size());
    DraftRequest request{.slot = kSlot, .tokens = sequence, .most = std::min(kDraft, left - 1)};
    Must(drafter.Draft(std::span(&request, 1)));
    std::vector<RowRequest> rows = {Greedy(sequence.back())};
    for (const int32_t token : request.draft) rows.push_back(Greedy(token));
    const int32_t past = pair.session().past(kSlot);
    const auto results = Must(batch.Decode(rows));
    const CheckedDraft checked = CheckDraft(rows, 0, results);
    const auto accepted = static_cast<int32_t>(checked.accepted);
    sequence.insert(sequence.end(), request.draft.begin(), request.draft.begin() + accepted);
    sequence.push_back(Must(results[static_cast<size_t>(accepted)].token));
    ASSERT_TRUE(pair.session().SetPast(kSlot, past + accepted + 1));
    drafted_ += checked.drafted;
    accepted_ += checked.accepted;
  }

  void Write(Pair& pair, BatchSession& batch, const json& item) {
    auto sequence = item.at("prompt").get<std::vector<int32_t>>();
    auto expected = item.at("greedy").get<std::vector<int32_t>>();
    expected.insert(expected.begin(), sequence.begin(), sequence.end());
    sequence.push_back(Begin(pair, batch, sequence));
    while (sequence.size() < expected.size() && !IsEnd(sequence.back())) {
      ASSERT_NO_FATAL_FAILURE(Step(pair, batch, expected.size(), sequence));
    }
    EXPECT_THAT(sequence, ElementsAreArray(expected));
  }

  // Golden drafts run past the end of an answer, be it a token that ends it or its limit. Those of
  // an engine do not.
  void CountGolden(const json& item, const json& run) {
    const int64_t limit = static_cast<int64_t>(item.at("prompt").size() + item.at("greedy").size());
    for (const json& round : run.at("rounds")) {
      const auto drafted = round.at("drafted").get<std::vector<int32_t>>();
      const int64_t end =
          std::ranges::find_if(drafted, [this](int32_t id) { return IsEnd(id); }) - drafted.begin();
      golden_drafted_ += std::min(end, limit - round.at("n").get<int64_t>() - 1);
      golden_accepted_ += round.at("accepted").get<int64_t>();
    }
  }

  // `head`: which runs of the golden are by the head of this drafter.
  void Compare(const std::string& drafter, const std::string& head) {
    const json golden =
        golden::ReadJson(kShared + "goldens/mtp-" + GetParam().pair + "/golden.json");
    ends_ = golden.at("ends").get<std::vector<int32_t>>();
    Pair pair(GetParam().backend, GetParam().pair, drafter);
    BatchSession batch(pair.session(), pair.graphs(), pair.model().facts().vocabulary);
    for (const json& item : golden.at("cases")) {
      ASSERT_NO_FATAL_FAILURE(Write(pair, batch, item));
      CountGolden(item, item.at(head));
    }
    if (is_exact()) {
      EXPECT_EQ(drafted_, golden_drafted_);
      EXPECT_EQ(accepted_, golden_accepted_);
    }
    const auto share = [](int64_t accepted, int64_t drafted) {
      return static_cast<double>(accepted) / static_cast<double>(drafted);
    };
    EXPECT_NEAR(share(accepted_, drafted_), share(golden_accepted_, golden_drafted_), 0.02);
  }

  // The tokens of drafts and those of them that were accepted.
  [[nodiscard]] std::vector<int64_t> Golden() const { return {golden_drafted_, golden_accepted_}; }

 private:
  int64_t drafted_ = 0;
  int64_t accepted_ = 0;
  int64_t golden_drafted_ = 0;
  int64_t golden_accepted_ = 0;
};

TEST_P(WholeAnswers, HaveTheAcceptanceOfTheGolden) {
  const bool is_e2b = GetParam().pair == "e2b";
  Compare(DrafterOf(GetParam().pair), is_e2b ? "ordered" : "dense");
  // llama.cpp of October 2026 counts the same.
  if (!is_e2b) {
    EXPECT_THAT(Golden(), ElementsAre(423, 287));
  }
}

class WholeAnswersByADenseHead : public WholeAnswers {};

TEST_P(WholeAnswersByADenseHead, HaveTheAcceptanceOfTheGolden) {
  const std::string path =
      ::testing::TempDir() + "/" + NameOf({GetParam(), 0}) + "_dense_head.gguf";
  ASSERT_NO_FATAL_FAILURE(WriteWithDenseHead(DrafterOf(GetParam().pair), path));
  Compare(path, "dense");
  // llama.cpp of October 2026 accepts as many, of 472.
  EXPECT_THAT(Golden(), ElementsAre(470, 309));
  std::filesystem::remove(path);
}

std::vector<Case> WithOrderedHeads(const std::vector<Backend>& backends) {
  std::vector<Case> cases = CasesOf(backends);
  std::erase_if(cases, [](const Case& one) { return one.pair != "e2b"; });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Backends, WholeAnswers, ::testing::ValuesIn(CasesOf(golden::Backends())),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Backends, WholeAnswersByADenseHead,
                         ::testing::ValuesIn(WithOrderedHeads(golden::Backends())), NameOf);
INSTANTIATE_TEST_SUITE_P(Backends, GoldenDrafter, ::testing::ValuesIn(CasesOf(golden::Backends())),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Gpus, GoldenDrafter,
                         ::testing::ValuesIn(CasesOf(golden::Precise(golden::Gpus()))), NameOf);

}  // namespace
}  // namespace rullama
