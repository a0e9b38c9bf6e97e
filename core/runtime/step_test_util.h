// A graph that counts: the token after i is (i + 1) modulo the vocabulary. For tests of sessions
// and generators, which need no model.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/ir/builder.h"
#include "core/plugin/device.h"
#include "core/reference/reference_backend.h"
#include "core/runtime/output_names.h"
#include "core/runtime/session.h"

namespace rullama {

inline constexpr int64_t kVocabulary = 8;
inline constexpr int64_t kSlots = 3;
inline constexpr const char* kBias = "bias";      // f32 [1], added to the logit of ...
inline constexpr const char* kBiased = "biased";  // i32 [1] ... this token

// The inputs that each step writes.
struct StepInputs {
  ValueId tokens, pos, slot, past;
};

inline StepInputs AddStepInputs(GraphBuilder& b) {
  const TensorType rows(DType::kI32, {Dim::T()});
  const StepInputs inputs{.tokens = b.Input(input_names::kTokens, rows),
                          .pos = b.Input(input_names::kPos, rows),
                          .slot = b.Input(input_names::kSlot, rows),
                          .past = b.Input(input_names::kPast, {DType::kI32, {kSlots}})};
  b.WantedRows(b.Input(input_names::kRows, {DType::kI32, {Dim::R()}}));
  return inputs;
}

// Outputs: the next token of each wanted row, the sum of its logits, and the logits of all rows.
inline Graph CountingGraph() {
  GraphBuilder b("counting");
  const ValueId tokens = AddStepInputs(b).tokens;
  const ValueId ids = b.Input(kBiased, {DType::kI32, {1}});
  const ValueId bias = b.Input(kBias, {DType::kF32, {1}});
  const ValueId table = b.Constant("table", {DType::kF32, {kVocabulary, kVocabulary}});
  const ValueId logits = b.Add(ops::GatherRows{.table = table, .ids = tokens}, "logits.plain");
  const ValueId biased = b.Add(ops::BiasAdd{.logits = logits, .ids = ids, .bias = bias}, "biased");
  b.Output(output_names::kLogits, b.Add(ops::Copy{.x = biased}, "logits"), RowDemand::kAll);
  b.Output(output_names::kToken, b.Add(ops::ArgMax{.x = biased}, "token"));
  b.Output(output_names::kLogitsSum, b.Add(ops::Reduce{.x = biased, .fn = RL_REDUCE_SUM}, "sum"));
  return *std::move(b).Finish();
}

// The one weight: row i is 1 at the token that follows i.
class CountingWeights final : public WeightSource {
 public:
  explicit CountingWeights(int64_t vocabulary = kVocabulary)
      : table_(static_cast<size_t>(vocabulary * vocabulary)) {
    for (int64_t i = 0; i < vocabulary; ++i) {
      table_[static_cast<size_t>(i * vocabulary + (i + 1) % vocabulary)] = 1;
    }
  }
  [[nodiscard]] Result<std::span<const std::byte>> Bytes(const Value& /*constant*/) const override {
    return std::as_bytes(std::span(table_));
  }

 private:
  std::vector<float> table_;
};

// The reference backend with one or two devices.
class ReferenceDevices {
 public:
  explicit ReferenceDevices(rl_plugin_query_fn query = ReferencePluginQuery) {
    plugin_ = *Plugin::FromQuery(query, "built in", std::make_shared<PluginHost>(HostOptions{}));
  }
  ~ReferenceDevices() {
    devices_.clear();
    plugin_->Shutdown();
  }
  ReferenceDevices(const ReferenceDevices&) = delete;
  ReferenceDevices& operator=(const ReferenceDevices&) = delete;

  Device* Open() {
    devices_.push_back(*plugin_->Open(0, {}));
    return devices_.back().get();
  }

 private:
  std::shared_ptr<Plugin> plugin_;
  std::vector<std::unique_ptr<Device>> devices_;
};

// A session of the counting graph. `split`: the lookup runs on a second device, from which its
// result is copied.
class CountingSession {
 public:
  explicit CountingSession(StepLimits limits, bool split = false, StepObserver* observer = nullptr,
                           size_t lanes = 0) {
    SessionOptions options{.devices = {devices_.Open()}, .policy = {}, .limits = limits};
    options.observer = observer;
    options.lanes = lanes;
    if (split) {
      options.devices.push_back(devices_.Open());
      options.policy.host_device = 1;
      options.policy.on_host = {"logits.plain"};
    }
    session_ = *Session::Create(CountingGraph(), weights_, std::move(options));
    const int32_t token = 0;
    const float bias = 0;
    EXPECT_TRUE(session_->SetInput(kBiased, std::as_bytes(std::span(&token, 1))));
    EXPECT_TRUE(session_->SetInput(kBias, std::as_bytes(std::span(&bias, 1))));
  }

  [[nodiscard]] Session& get() const { return *session_; }
  // Makes `token` follow every token.
  void SetBias(int32_t token, float bias) const {
    ASSERT_TRUE(session_->SetInput(kBiased, std::as_bytes(std::span(&token, 1))));
    ASSERT_TRUE(session_->SetInput(kBias, std::as_bytes(std::span(&bias, 1))));
  }
  // The output "token" of the last step.
  [[nodiscard]] std::vector<int32_t> Tokens(size_t count) const {
    std::vector<int32_t> tokens(count);
    const Status read =
        session_->ReadOutput(output_names::kToken, std::as_writable_bytes(std::span(tokens)));
    EXPECT_TRUE(read) << read.error().ToString();
    return tokens;
  }

 private:
  CountingWeights weights_;
  ReferenceDevices devices_;
  std::unique_ptr<Session> session_;
};

}  // namespace rullama
