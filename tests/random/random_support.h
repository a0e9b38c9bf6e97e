// Runs random models on backends: a session per model and backend, logits of every position.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/ir/canvas_names.h"
#include "core/plugin/registry.h"
#include "core/reference/reference_backend.h"
#include "core/runtime/sequence_feeder.h"
#include "core/runtime/session.h"
#include "models/gemma4/files/random_model.h"

namespace rullama::testing {

// Devices by name, opened once.
class Backends {
 public:
  Backends() : host_(std::make_shared<PluginHost>(HostOptions{})) {
    registry_ = std::make_unique<Registry>(RegistryOptions::FromProcess(), host_);
    registry_->RegisterBuiltIn("reference", ReferencePluginQuery);
  }
  std::unique_ptr<Device> Open(const std::string& name) {
    const auto plugin = Must(registry_->Find(name));
    return Must(plugin->Open(0, {}));
  }

 private:
  std::shared_ptr<PluginHost> host_;
  std::unique_ptr<Registry> registry_;
};

// Runs the next tokens of slot 0. Returns the rows of the output "logits" of all steps, or none if
// only the states are wanted.
inline std::vector<float> Feed(Session& session, const std::vector<int32_t>& tokens,
                               DemandMode demand, int64_t vocabulary, GraphHandle graph = {}) {
  std::vector<float> logits;
  const auto read_logits = [&](int64_t done, int64_t /*total*/) -> Status {
    if (demand == DemandMode::kStateOnly) return OkStatus();
    const size_t before = logits.size();
    logits.resize(static_cast<size_t>(done * vocabulary));
    return session.ReadOutput("logits", std::as_writable_bytes(std::span(logits).subspan(before)));
  };
  const Status fed =
      SequenceFeeder(session, {.graph = graph}).Feed(tokens, demand, demand, read_logits);
  EXPECT_TRUE(fed) << fed.error().ToString();
  return logits;
}

// Logits of all tokens, fed in chunks of these many rows.
inline std::vector<float> Logits(const RandomModel& model, Device& device,
                                 const std::vector<int32_t>& tokens, int64_t chunk,
                                 CacheTypes types = DType::kF32) {
  BuildOptions build;
  build.kv_dtype = types;
  build.capacity = static_cast<int64_t>(tokens.size());
  build.max_t = chunk;
  auto graph = Must(BuildModel(model.config, model.weights, build));
  AddLogitsOutput(graph.builder, graph.logits, RowDemand::kAll);
  const RandomWeights weights(model, std::move(graph.constants));
  SessionOptions options;
  options.devices = {&device};
  options.limits.max_t = chunk;
  const auto session =
      Must(Session::Create(Must(std::move(graph.builder).Finish()), weights, options));
  return Feed(*session, tokens, DemandMode::kAllRows, model.config.vocabulary);
}

// The same for a model that denoises: the prompt goes through the causal pass, then the canvas
// through two steps, the second one conditioned on the logits of the first. Logits of both.
inline std::vector<float> CanvasLogits(const RandomModel& model, Device& device,
                                       const std::vector<int32_t>& prompt,
                                       const std::vector<int32_t>& canvas, int64_t chunk,
                                       CacheTypes types = DType::kF32) {
  const int64_t length = std::ssize(canvas);
  BuildOptions build;
  build.kv_dtype = types;
  build.capacity = std::ssize(prompt) + length;
  build.max_t = chunk;
  auto encode = Must(BuildModel(model.config, model.weights, build));
  build.pass = ModelPass::kCanvas;
  build.max_t = length;
  auto denoise = Must(BuildModel(model.config, model.weights, build));
  AddLogitsOutput(denoise.builder, denoise.logits, RowDemand::kAll);
  const ValueId inverse_temperature =
      denoise.builder.Input(canvas_names::kInverseTemperature, {DType::kF32, {1}});
  AppendSelfConditioning(denoise, denoise.logits, inverse_temperature);
  const RandomWeights weights(model, std::move(encode.constants));
  std::vector<SessionGraph> graphs;
  graphs.push_back({.graph = Must(std::move(encode.builder).Finish())});
  graphs.push_back({.graph = Must(std::move(denoise.builder).Finish()),
                    .buckets = {length},
                    .extends_past = false});
  SessionOptions options;
  options.devices = {&device};
  options.limits.max_t = chunk;
  const auto session = Must(Session::Create(std::move(graphs), weights, options));
  const int64_t vocabulary = model.config.vocabulary;
  Feed(*session, prompt, DemandMode::kStateOnly, vocabulary);
  std::vector<int32_t> row(canvas.size());
  std::iota(row.begin(), row.end(), 0);
  const float inverse = 1.5F;
  EXPECT_TRUE(session->SetInput(canvas_names::kRow, std::as_bytes(std::span(row))));
  EXPECT_TRUE(
      session->SetInput(canvas_names::kInverseTemperature, std::as_bytes(std::span(&inverse, 1))));
  constexpr GraphHandle kDenoise{1};
  auto logits = Feed(*session, canvas, DemandMode::kAllRows, vocabulary, kDenoise);
  const auto second = Feed(*session, canvas, DemandMode::kAllRows, vocabulary, kDenoise);
  EXPECT_NE(logits, second) << "the condition changes nothing";
  logits.insert(logits.end(), second.begin(), second.end());
  return logits;
}

inline std::vector<int32_t> RandomTokens(uint64_t seed, int64_t count, int64_t vocabulary) {
  std::vector<int32_t> tokens;
  uint64_t state = seed;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;  // Knuth's MMIX
    tokens.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocabulary)));
  }
  return tokens;
}

inline double RelativeL2(const std::vector<float>& actual, const std::vector<float>& expected) {
  if (actual.size() != expected.size()) return INFINITY;
  double error = 0, energy = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double difference = double{actual[i]} - double{expected[i]};
    error += difference * difference;
    energy += double{expected[i]} * double{expected[i]};
  }
  return std::sqrt(error / energy);
}

}  // namespace rullama::testing
