// Several sequences with settings of their own in one session, on a random model: a row's token is
// the one that its sequence gets alone.
#include <gmock/gmock.h>

#include <algorithm>

#include "core/runtime/output_names.h"
#include "engine/model_program.h"
#include "models/gemma4/gemma4_model.h"
#include "tests/gpu_backends.h"
#include "tests/random/random_support.h"

namespace rullama::testing {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kCapacity = 64;
constexpr int64_t kChunk = 8;
constexpr int64_t kTestSlots = 4;
constexpr int kTokens = 10;
constexpr int64_t kTestVocabulary = 300;

RandomModel ModelOfManyTokens() {
  constexpr uint64_t kModelSeed = 5;
  const RandomModelTraits traits{.shared_kv = true};
  Gemma4Config config = MakeRandomModel(kModelSeed, traits).config;
  config.vocabulary = kTestVocabulary;
  return MakeRandomModel(kModelSeed, traits, config);
}

struct Request {
  int32_t slot = 0;
  std::vector<int32_t> prompt = {};
  RowSampling settings = {};
  std::vector<int32_t> tokens = {};  // drawn so far
};

class Batch {
 public:
  Batch(const RandomModel& model, Device& device) : inputs_(model.config.vocabulary) {
    auto program = Must(BuildModelProgram(Gemma4Model(model.config, model.weights),
                                          {.outputs = GraphOutputs::kBatch,
                                           .slots = kTestSlots,
                                           .capacity = kCapacity,
                                           .kv_dtype = DType::kF32,
                                           .limits = BatchLimits(kTestSlots, kChunk)}));
    graphs_ = program.handles;
    weights_ = std::make_unique<RandomWeights>(model, std::move(program.constants));
    SessionOptions options;
    options.devices = {&device};
    options.limits = BatchLimits(kTestSlots, kChunk);
    session_ = Must(Session::Create(std::move(program.graphs), *weights_, options));
  }

  // Reads the prompt and draws the first token.
  void Read(Request& request, bool logprobs = false) {
    for (size_t done = 0; done < request.prompt.size();) {
      const size_t count = std::min<size_t>(kChunk, request.prompt.size() - done);
      const bool last = done + count == request.prompt.size();
      SetSettings({&request}, logprobs);
      rows_.SetConsecutive(std::span(request.prompt).subspan(done, count),
                           session_->past(request.slot), request.slot,
                           last ? DemandMode::kPerOutput : DemandMode::kStateOnly);
      Run({&request}, last);
      done += count;
    }
  }

  // Draws the next token of each.
  void Decode(const std::vector<Request*>& requests, bool logprobs = false) {
    SetSettings(requests, logprobs);
    rows_.demand = DemandMode::kPerOutput;
    rows_.tokens.clear();
    rows_.pos.clear();
    rows_.slot.clear();
    rows_.wanted.clear();
    for (const Request* request : requests) {
      rows_.wanted.push_back(static_cast<int32_t>(rows_.tokens.size()));
      rows_.tokens.push_back(request->tokens.back());
      rows_.pos.push_back(session_->past(request->slot));
      rows_.slot.push_back(request->slot);
    }
    Run(requests, true);
  }

  [[nodiscard]] Session& session() const { return *session_; }
  [[nodiscard]] const ProgramGraphs& graphs() const { return graphs_; }

 private:
  void SetSettings(const std::vector<Request*>& requests, bool logprobs) {
    settings_.clear();
    for (const Request* request : requests) settings_.push_back(request->settings);
    const RowChainKind kind = KindFor(settings_, kTestVocabulary);
    rows_.graph = graphs_.Draw({.kind = kind, .logprobs = logprobs});
    const Status taken = inputs_.Set(kind, settings_);
    ASSERT_TRUE(taken) << taken.error().ToString();
    const Status set = SetRowInputs(inputs_, *session_);
    ASSERT_TRUE(set) << set.error().ToString();
  }
  void Run(const std::vector<Request*>& requests, bool draws) {
    const Status run = session_->Run(rows_);
    ASSERT_TRUE(run) << run.error().ToString();
    if (!draws) return;
    std::vector<int32_t> tokens(requests.size());
    std::vector<float> sums(requests.size());
    ASSERT_TRUE(session_->ReadOutput(kTokenOutput, std::as_writable_bytes(std::span(tokens))));
    ASSERT_TRUE(
        session_->ReadOutput(output_names::kLogitsSum, std::as_writable_bytes(std::span(sums))));
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i]->tokens.push_back(tokens[i]);
      EXPECT_TRUE(std::isfinite(sums[i]));
    }
  }

  RowInputs inputs_;
  ProgramGraphs graphs_;
  std::unique_ptr<RandomWeights> weights_;
  std::unique_ptr<Session> session_;
  StepRows rows_;
  std::vector<RowSampling> settings_;
};

class BatchTest : public ::testing::TestWithParam<const char*> {
 protected:
  BatchTest() {
    for (size_t i = 0; i < mask_.size(); ++i) mask_[i] = i % 2 == 0 ? 0xF0F0F0F0U : ~0U;
  }

  // One request for each slot, with prompts of different lengths.
  std::vector<Request> Requests() {
    std::vector<RowSampling> settings(kTestSlots);
    settings[0] = {.temperature = 0};
    settings[1] = {.temperature = 1.5, .top_k = 20, .top_p = 0.9, .seed = 3};
    settings[2] = {.temperature = 2,
                   .top_k = 64,
                   .min_p = 0.01,
                   .repeat_penalty = 1.5,
                   .repeat_last_n = 12,
                   .presence_penalty = 0.5,
                   .seed = 3,
                   .mask = mask_};
    settings[2].bias = bias_;
    settings[3] = {.temperature = 1.2, .top_p = 0.8, .typical_p = 0.95, .seed = 4, .stream = 2};
    std::vector<Request> requests;
    for (int32_t slot = 0; slot < kTestSlots; ++slot) {
      requests.push_back(
          {.slot = slot,
           .prompt = RandomTokens(static_cast<uint64_t>(slot) + 1, 5 + 7 * slot, kTestVocabulary),
           .settings = settings[static_cast<size_t>(slot)]});
    }
    return requests;
  }

  Backends backends_;
  std::unique_ptr<Device> device_ = backends_.Open(GetParam());
  RandomModel model_ = ModelOfManyTokens();
  std::vector<uint32_t> mask_ =
      std::vector<uint32_t>(static_cast<size_t>(MaskWords(kTestVocabulary)));
  std::vector<TokenBias> bias_ = {{4, 1.5F}, {7, -INFINITY}};
};

TEST_P(BatchTest, ASequenceAmongOthersIsTheSequenceAlone) {
  std::vector<Request> requests = Requests();
  Batch batch(model_, *device_);
  // The others come and go: slot 3 begins late, slot 1 ends early.
  std::vector<Request*> writing;
  for (size_t i = 0; i < 3; ++i) {
    batch.Read(requests[i], /*logprobs=*/i == 1);
    writing.push_back(&requests[i]);
  }
  for (int step = 0; step < kTokens; ++step) {
    if (step == 3) {
      batch.Read(requests[3]);
      writing.push_back(&requests[3]);
    }
    if (step == 6) std::erase(writing, &requests[1]);
    batch.Decode(writing, /*logprobs=*/step % 2 == 1);
  }
  for (const Request& together : requests) {
    Request alone = Requests()[static_cast<size_t>(together.slot)];
    alone.slot = 0;
    Batch own(model_, *device_);
    own.Read(alone);
    while (alone.tokens.size() < together.tokens.size()) own.Decode({&alone});
    EXPECT_GT(together.tokens.size(), 6U);
    EXPECT_EQ(alone.tokens, together.tokens) << "slot " << together.slot;
  }
  // Masked tokens never come.
  for (const int32_t token : requests[2].tokens) {
    const auto word = mask_[static_cast<size_t>(token) / 32];
    EXPECT_NE(word >> (token % 32) & 1, 0U) << token;
    EXPECT_NE(token, 7);
  }
}

TEST_P(BatchTest, LogprobsDoNotChangeWithTheSampler) {
  std::vector<Request> requests = Requests();
  Batch batch(model_, *device_);
  batch.Read(requests[0], true);
  const auto read = [&batch] {
    std::vector<float> top(kTopLogprobs);
    EXPECT_TRUE(
        batch.session().ReadOutput(kTopLogprobsOutput, std::as_writable_bytes(std::span(top))));
    return top;
  };
  const std::vector<float> plain = read();
  float drawn = 0;
  ASSERT_TRUE(
      batch.session().ReadOutput(kLogprobOutput, std::as_writable_bytes(std::span(&drawn, 1))));
  EXPECT_NEAR(drawn, plain[0], 1e-5) << "greedy";
  EXPECT_TRUE(std::ranges::is_sorted(plain, std::greater()));
  for (const size_t settings : {2U, 3U}) {
    Request other = requests[0];
    other.slot = static_cast<int32_t>(settings);
    other.settings = requests[settings].settings;
    batch.Read(other, true);
    EXPECT_EQ(read(), plain) << "on other settings";
  }
}

// An answer per stream after one reading of the prompt.
TEST_P(BatchTest, ARowMayBeWantedOnceForEachStream) {
  Batch batch(model_, *device_);
  Session& session = batch.session();
  const Request request = Requests()[1];
  std::vector<RowSampling> settings(3, request.settings);
  for (uint32_t i = 0; i < settings.size(); ++i) {
    settings[i].temperature = 8;
    settings[i].stream = i;
  }
  RowInputs inputs(kTestVocabulary);
  ASSERT_TRUE(inputs.Set(RowChainKind::kPlain, settings));
  ASSERT_TRUE(SetRowInputs(inputs, session));
  StepRows rows = StepRows::Consecutive(std::span(request.prompt).first(3), 0, 0,
                                        DemandMode::kPerOutput, batch.graphs().Draw({}));
  rows.wanted = {2, 2, 2};
  const Status run = session.Run(rows);
  ASSERT_TRUE(run) << run.error().ToString();
  std::vector<int32_t> tokens(3);
  ASSERT_TRUE(session.ReadOutput(kTokenOutput, std::as_writable_bytes(std::span(tokens))));
  for (size_t i = 0; i < settings.size(); ++i) {
    Request alone = request;
    alone.prompt.resize(3);
    alone.settings = settings[i];
    Batch own(model_, *device_);
    own.Read(alone);
    EXPECT_THAT(alone.tokens, ElementsAre(tokens[i])) << "stream " << i;
  }
  EXPECT_FALSE(tokens[0] == tokens[1] && tokens[1] == tokens[2]);
}

TEST_P(BatchTest, NothingIsCompiledOrAllocatedAfterTheSecondStep) {
  std::vector<Request> requests = Requests();
  Batch batch(model_, *device_);
  std::vector<Request*> writing;
  for (Request& request : requests) {
    batch.Read(request);
    writing.push_back(&request);
  }
  for (int step = 0; step < 2; ++step) batch.Decode(writing);
  const SessionStats before = Must(batch.session().Stats());
  for (int step = 0; step < 4; ++step) batch.Decode(writing);
  const SessionStats after = Must(batch.session().Stats());
  EXPECT_EQ(after.plans, before.plans);
  EXPECT_EQ(after.compilations, before.compilations);
  // The reference makes its tensors anew.
  if (GetParam() != std::string("reference")) {
    EXPECT_EQ(after.allocations, before.allocations);
  }
  EXPECT_EQ(after.recordings, before.recordings);
  EXPECT_EQ(after.steps, before.steps + 4);
}

INSTANTIATE_TEST_SUITE_P(Cpu, BatchTest, ::testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(Reference, BatchTest, ::testing::Values("reference"));
INSTANTIATE_TEST_SUITE_P(Gpus, BatchTest, ::testing::ValuesIn(GpuBackendNames()), kBackendName);

// The graph of logits has fewer rows than there are slots here.
TEST(BatchProgramTest, ALargeVocabularyDoesNotLimitSlots) {
  constexpr int64_t kManySlots = 128;
  Gemma4Config config = MakeRandomModel(1, {}).config;
  config.vocabulary = 262144;
  const RandomModel model = MakeRandomModel(1, {}, config);
  const ModelProgram program = Must(BuildModelProgram(Gemma4Model(model.config, model.weights),
                                                      {.outputs = GraphOutputs::kBatch,
                                                       .slots = kManySlots,
                                                       .capacity = kCapacity,
                                                       .kv_dtype = DType::kF32,
                                                       .limits = BatchLimits(kManySlots, kChunk)}));
  const Graph& logits = program.graphs[program.handles.logits.value().graph.index].graph;
  EXPECT_LT(logits.max_t, kManySlots);
  EXPECT_LE(logits.max_r, logits.max_t);
}

}  // namespace
}  // namespace rullama::testing
