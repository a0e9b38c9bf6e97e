// A restored slot continues with the same bytes as the slot that was saved, on every backend:
// tokens and logits of eight steps, with prompts shorter than the window of the sliding layers,
// equal to it and far longer. The sampler counts tokens, so that its history must be restored, too.
#include <gtest/gtest.h>

#include <cstring>

#include "core/runtime/output_names.h"
#include "core/runtime/sequence_feeder.h"
#include "samplers/row_chain.h"
#include "tests/golden/session_support.h"

namespace rullama {
namespace {

using golden::Backend;
using golden::Loaded;

constexpr int64_t kSlotCount = 3;
constexpr int64_t kCapacity = 320;
constexpr int64_t kChunk = 32;
constexpr int32_t kWindow = 64;  // of the tiny model
constexpr int32_t kSteps = 8;    // past the window after the shortest prompt

struct Setup {
  Backend backend;
  CacheTypes types;
};

std::unique_ptr<Loaded> OpenTiny(const Setup& setup) {
  auto loaded = golden::Open(setup.backend, RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf");
  EXPECT_EQ(loaded->config.sliding_window, kWindow);
  const BuildOptions build{.slots = kSlotCount, .capacity = kCapacity, .kv_dtype = setup.types};
  auto graph = Must(BuildModel(loaded->config, loaded->tensors, build));
  loaded->AddConstants(std::move(graph.constants));
  const SamplerInputs inputs{.tokens = graph.tokens,
                             .wanted = graph.rows,
                             .rows = graph.attention_rows,
                             .slots = kSlotCount,
                             .capacity = build.capacity};
  const RowSampling row{.temperature = 0, .repeat_penalty = 1.3, .repeat_last_n = kWindow};
  const int64_t vocabulary = graph.builder.graph().type(graph.logits).last().constant;
  const RowChainKind kind = KindFor(row, vocabulary);
  AppendRowChain(graph.builder, graph.logits, inputs, {.kind = kind});
  AddLogitsOutput(graph.builder, graph.logits, RowDemand::kWanted);
  loaded->session = Must(Session::Create(Must(std::move(graph.builder).Finish()), *loaded->weights,
                                         loaded->Options(kChunk)));
  RowInputs row_inputs(vocabulary);
  EXPECT_TRUE(row_inputs.Set(kind, {&row, 1}));
  for (const auto& [name, bytes] : row_inputs.inputs()) {
    EXPECT_TRUE(loaded->session->SetInput(name, bytes));
  }
  return loaded;
}

// The tokens and logits of a slot after its prompt.
struct Continuation {
  std::vector<int32_t> tokens;
  std::vector<float> logits;  // of all steps

  // Bit for bit.
  friend bool operator==(const Continuation& a, const Continuation& b) {
    return a.tokens == b.tokens && a.logits.size() == b.logits.size() &&
           std::memcmp(a.logits.data(), b.logits.data(), a.logits.size() * sizeof(float)) == 0;
  }
};

class SnapshotBackendsTest : public ::testing::TestWithParam<Setup> {
 protected:
  void SetUp() override { loaded_ = OpenTiny(GetParam()); }
  [[nodiscard]] Session& session() const { return *loaded_->session; }

  // Feeds a prompt of `count` tokens in chunks.
  void Feed(int32_t slot, int32_t count, int32_t seed) const {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < count; ++i)
      tokens.push_back(500 + (i * i * 7 + i * 13 + seed * 31) % 1500);
    const Status fed = SequenceFeeder(session(), {.slot = slot})
                           .Feed(tokens, DemandMode::kStateOnly, DemandMode::kStateOnly, {});
    ASSERT_TRUE(fed) << fed.error().ToString();
  }

  [[nodiscard]] Continuation Generate(int32_t slot, int32_t steps = kSteps) const {
    Continuation result;
    int32_t token = 1234;
    std::vector<float> logits(static_cast<size_t>(loaded_->config.vocabulary));
    for (int32_t i = 0; i < steps; ++i) {
      const auto rows = StepRows::Consecutive(std::span(&token, 1), session().past(slot), slot,
                                              DemandMode::kPerOutput);
      Status status = session().Run(rows);
      if (status) status = session().ReadOutput(kTokenOutput, Bytes(std::span(&token, 1)));
      if (status) status = session().ReadOutput(output_names::kLogits, Bytes(std::span(logits)));
      EXPECT_TRUE(status) << status.error().ToString();
      if (!status) break;
      result.tokens.push_back(token);
      result.logits.insert(result.logits.end(), logits.begin(), logits.end());
    }
    return result;
  }

  // Writes all rows of the rings of every slot, and as many of the other caches.
  void WriteAllSlots() const {
    for (int32_t slot = 0; slot < kSlotCount; ++slot) {
      session().ForgetSlot(slot);
      Feed(slot, kWindow + 8, /*seed=*/slot + 1);
      EXPECT_EQ(Generate(slot, /*steps=*/2).tokens.size(), 2u);
    }
  }

  void Restore(int32_t slot, const Snapshot& snapshot) const {
    const Status restored = session().Restore(slot, snapshot);
    ASSERT_TRUE(restored) << restored.error().ToString();
    ASSERT_EQ(session().past(slot), snapshot.position());
  }

  std::unique_ptr<Loaded> loaded_;

 private:
  template <typename T>
  static std::span<std::byte> Bytes(std::span<T> values) {
    return std::as_writable_bytes(values);
  }
};

TEST_P(SnapshotBackendsTest, RestoredSlotsGoOnWithTheSameBytes) {
  for (const int32_t p : {kWindow - 4, kWindow, 2 * kWindow + 8}) {
    SCOPED_TRACE(p);
    session().ForgetSlot(0);
    Feed(0, p, 0);
    const Snapshot all = Must(session().Save(0, p));
    const Snapshot rings = Must(session().Save(0, p, SnapshotContent::kRings));
    EXPECT_LT(rings.bytes(), all.bytes());
    const Continuation expected = Generate(0);

    Restore(0, rings);
    EXPECT_TRUE(Generate(0) == expected) << "rings";
    WriteAllSlots();
    EXPECT_FALSE(Generate(0) == expected) << "a test that compares nothing";
    Restore(0, all);
    EXPECT_TRUE(Generate(0) == expected) << "the same slot";
    Restore(2, all);
    WriteAllSlots();
    Restore(2, all);
    EXPECT_TRUE(Generate(2) == expected) << "another slot";
  }
}

TEST_P(SnapshotBackendsTest, ForkedSlotsGoOnWithTheSameBytes) {
  for (const int32_t p : {kWindow - 4, kWindow + 36}) {
    SCOPED_TRACE(p);
    WriteAllSlots();
    session().ForgetSlot(1);
    Feed(1, p, 0);
    for (const int32_t slot : {0, 2}) {
      const Status forked = session().Fork(1, slot);
      ASSERT_TRUE(forked) << forked.error().ToString();
    }
    const Continuation expected = Generate(1);
    EXPECT_TRUE(Generate(2) == expected);
    EXPECT_TRUE(Generate(0) == expected);
  }
}

TEST_P(SnapshotBackendsTest, GoingBackRepeatsTheSameBytes) {
  Feed(0, kWindow - kSteps, 0);
  const Continuation within = Generate(0);
  ASSERT_TRUE(session().SetPast(0, kWindow - kSteps));
  EXPECT_TRUE(Generate(0) == within) << "any amount until the ring wraps";

  Feed(0, 100, 0);
  const int32_t end = session().past(0);
  ASSERT_FALSE(session().SetPast(0, end - 2));
  const Snapshot at_end = Must(session().Save(0, end - 1));
  ASSERT_TRUE(session().SetPast(0, end - 1));
  const Continuation beyond = Generate(0);
  Restore(1, at_end);
  EXPECT_TRUE(Generate(1) == beyond) << "one row afterwards";
}

TEST_P(SnapshotBackendsTest, ASessionThatHasNotRunGoesOnWithTheSameBytes) {
  Feed(1, 100, 0);
  const Snapshot snapshot = Must(session().Save(1, 100));
  const Continuation expected = Generate(1);
  loaded_ = OpenTiny(GetParam());
  Restore(0, snapshot);
  EXPECT_TRUE(Generate(0) == expected);
}

std::vector<Setup> Setups() {
  std::vector<Setup> setups = {{{"cpu", ""}, DType::kF16},
                               {{"cpu", ""}, DType::kQ8_0},
                               {{"cpu", ""}, {DType::kQ8_0, DType::kQ4_0}}};
  for (const Backend& backend : golden::Gpus()) {
    setups.push_back({backend, DType::kF16});
    setups.push_back({backend, {DType::kQ8_0, DType::kQ4_0}});
  }
  return setups;
}

// "cpu", "cpu_q8_0", "cpu_q8_0_q4_0"
std::string NameOfSetup(const ::testing::TestParamInfo<Setup>& info) {
  const auto& [backend, types] = info.param;
  std::string name = backend.name;
  if (types == DType::kF16) return name;
  name.append("_").append(NameOf(types.keys));
  return types.keys == types.values ? name : name.append("_").append(NameOf(types.values));
}

INSTANTIATE_TEST_SUITE_P(Backends, SnapshotBackendsTest, ::testing::ValuesIn(Setups()),
                         NameOfSetup);

}  // namespace
}  // namespace rullama
