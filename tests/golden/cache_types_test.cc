// Whole models with a KV cache in blocks against the reference with one in f32, on every level of
// the cpu backend, and on GPUs with precise_products: the logits of the tokens after a prompt of
// 500. Needs ../shared.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/runtime/output_names.h"
#include "core/runtime/sequence_feeder.h"
#include "tests/golden/session_support.h"

namespace rullama {
namespace {

using golden::Backend;
using golden::Loaded;

constexpr int32_t kPrompt = 500;
constexpr int32_t kDecoded = 4;
constexpr int64_t kCapacity = 512, kChunk = 128;

// The logits of the last row of the prompt and of the rows after it, one a step.
std::vector<float> DecodedLogits(const Backend& backend, const std::string& model,
                                 CacheTypes types) {
  auto loaded =
      golden::Open(backend, RULLAMA_SOURCE_DIR "/../shared/models/" + model + "-f16.gguf");
  auto graph =
      Must(BuildModel(loaded->config, loaded->tensors, {.capacity = kCapacity, .kv_dtype = types}));
  loaded->AddConstants(std::move(graph.constants));
  AddLogitsOutput(graph.builder, graph.logits, RowDemand::kWanted);
  loaded->session = Must(Session::Create(Must(std::move(graph.builder).Finish()), *loaded->weights,
                                         loaded->Options(kChunk)));
  Session& session = *loaded->session;
  const auto token = [](int32_t i) { return 500 + (i * i * 7 + i * 13) % 1500; };
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < kPrompt; ++i) prompt.push_back(token(i));
  std::vector<float> all, row(static_cast<size_t>(loaded->config.vocabulary));
  Status fed =
      SequenceFeeder(session, {}).Feed(prompt, DemandMode::kStateOnly, DemandMode::kPerOutput, {});
  if (fed) fed = session.ReadOutput(output_names::kLogits, std::as_writable_bytes(std::span(row)));
  EXPECT_TRUE(fed) << fed.error().ToString();
  all.insert(all.end(), row.begin(), row.end());
  for (int32_t i = kPrompt; i < kPrompt + kDecoded; ++i) {
    const int32_t next = token(i);
    Status status = session.Run(
        StepRows::Consecutive(std::span(&next, 1), i, /*slot=*/0, DemandMode::kPerOutput));
    if (status) {
      status = session.ReadOutput(output_names::kLogits, std::as_writable_bytes(std::span(row)));
    }
    EXPECT_TRUE(status) << status.error().ToString();
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

// Of the reference, which computes everything but the cache in float64.
const std::vector<float>& ReferenceLogits(const std::string& model, CacheTypes types) {
  static std::map<std::pair<std::string, std::string>, std::vector<float>> kept;
  auto& logits = kept[{model, ToString(types)}];
  if (logits.empty()) logits = DecodedLogits({"reference", ""}, model, types);
  return logits;
}

class CacheTypesTest : public ::testing::TestWithParam<std::tuple<Backend, std::string>> {};

// Rounding to q8_0 changes a value by 0.5 % of the root mean square of its block, to q4_0 by 9 %.
// These models have weights at random, so that nothing averages the errors out: logits are off by
// as much, and not by more. Of the rounding a backend may change what its own noise turns around.
TEST_P(CacheTypesTest, LogitsAfterALongPrompt) {
  struct Bound {
    CacheTypes types;
    double of_rounding, of_backend;  // relative L2
  };
  const Bound kBounds[] = {{DType::kQ8_0, 1e-2, 1e-4}, {DType::kQ4_0, 0.2, 1e-3}};
  const auto& [backend, model] = GetParam();
  for (const Bound& bound : kBounds) {
    const auto logits = DecodedLogits(backend, model, bound.types);
    const double rounding = golden::RelativeL2(logits, ReferenceLogits(model, DType::kF32));
    const double own = golden::RelativeL2(logits, ReferenceLogits(model, bound.types));
    std::printf("%s %s %s %s: relative L2 %.3g, of the backend %.3g\n", backend.name.c_str(),
                backend.isa.c_str(), model.c_str(), ToString(bound.types).c_str(), rounding, own);
    EXPECT_LE(rounding, bound.of_rounding) << ToString(bound.types);
    EXPECT_GE(rounding, bound.of_rounding / 10) << "a cache that is not quantised";
    EXPECT_LE(own, bound.of_backend) << ToString(bound.types);
  }
}

std::string NameOf(const ::testing::TestParamInfo<CacheTypesTest::ParamType>& info) {
  const auto& [backend, model] = info.param;
  std::string name = backend.name + backend.isa + "_" + model;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Backends, CacheTypesTest,
                         ::testing::Combine(::testing::ValuesIn(golden::Backends()),
                                            ::testing::Values("tiny-e2b", "tiny-dense")),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(Gpus, CacheTypesTest,
                         ::testing::Combine(::testing::ValuesIn(golden::Precise(golden::Gpus())),
                                            ::testing::Values("tiny-e2b", "tiny-dense")),
                         NameOf);

}  // namespace
}  // namespace rullama
