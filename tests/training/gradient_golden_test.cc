// The losses and gradients of whole models in the float64 reference, against those of an
// independent implementation: of adapters, of the residual stream and of shared keys and values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "core/passes/canonicalise.h"
#include "core/passes/differentiate.h"
#include "core/passes/row_demand.h"
#include "core/reference/interpreter.h"
#include "engine/training/packing.h"
#include "engine/training/training_program.h"
#include "tests/training/golden_case.h"

namespace rullama::training {
namespace {

using reference::Interpreter;
using reference::Tensor;

// The goldens were computed in float64 and stored as f32.
constexpr double kLossTolerance = 1e-9;
constexpr double kGradientTolerance = 1e-6;

// The training graph of a model, run by the reference on the examples of one step.
class ReferenceStep {
 public:
  ReferenceStep(const Golden& golden, const std::vector<Example>& examples,
                const std::vector<std::string>& observed, int64_t recomputed)
      : golden_(golden) {
    std::vector<const Example*> refs;
    int64_t rows = 0;
    for (const Example& example : examples) {
      refs.push_back(&example);
      rows += example.rows();
      counted_ += example.counted();
    }
    step_ = PackExamples(refs, rows).front();
    TrainingProgram program =
        Must(BuildTrainingProgram(*golden.model, {.pairs = golden.pairs,
                                                  .adamw = {},
                                                  .slots = std::ssize(examples),
                                                  .max_t = rows,
                                                  .max_r = rows,
                                                  .recomputed_layers = recomputed}));
    constants_ = std::move(program.constants);
    SessionGraph& train = program.graphs[training_graphs::kTrain.index];
    Graph graph = Must(ApplyRowDemand(Must(Canonicalise(train.graph)), DemandMode::kPerOutput));
    train.differentiation->observed = observed;
    graph = Must(Differentiate(graph, *train.differentiation));
    interpreter_.emplace(Must(Interpreter::Create(
        std::move(graph),
        [this](std::string_view source, int64_t first_row, const TensorType& type) {
          return Constant(source, first_row, type);
        })));
  }

  void Run(const Tensors& adapter) {
    for (const auto& [name, values] : adapter) {
      const Value& state = interpreter_->graph().value(interpreter_->graph().Find(name));
      ASSERT_TRUE(interpreter_->WriteState(
          name, Tensor::F32(reference::DimsAt(state.type, {}), {values.begin(), values.end()})));
    }
    Bind(input_names::kTokens, step_.rows.tokens);
    Bind(input_names::kPos, step_.rows.pos);
    Bind(input_names::kSlot, step_.rows.slot);
    Bind(input_names::kRows, step_.rows.wanted);
    Bind(training_names::kTargets, step_.targets);
    const Status bound = interpreter_->Bind(training_names::kLossFactor,
                                            Tensor::F32({1}, {1 / static_cast<double>(counted_)}));
    ASSERT_TRUE(bound);
    const Status run =
        interpreter_->Run({std::ssize(step_.rows.tokens), std::ssize(step_.rows.wanted)});
    ASSERT_TRUE(run) << run.error().ToString();
  }

  [[nodiscard]] const std::vector<double>& Losses() const {
    return interpreter_->GetOutput(training_names::kLoss)->f;
  }
  [[nodiscard]] double MeanLoss() const {
    double sum = 0;
    for (const double loss : Losses()) sum += loss;
    return sum / static_cast<double>(counted_);
  }
  [[nodiscard]] std::vector<double> Gradient(const std::string& parameter) const {
    return Must(interpreter_->ReadState(GradientOf(parameter))).f;
  }
  [[nodiscard]] const Tensor& ObservedGradient(const std::string& value) const {
    return *interpreter_->GetOutput(GradientOf(value));
  }
  [[nodiscard]] const PackedStep& step() const { return step_; }

 private:
  Result<Tensor> Constant(std::string_view source, int64_t first_row, const TensorType& type) {
    Tensor tensor{
        .dtype = type.dtype, .dims = reference::DimsAt(type, {}), .f = {}, .i = {}, .packed = {}};
    for (const SyntheticConstant& constant : constants_) {
      if (constant.name != source) continue;
      tensor.packed = constant.bytes;
      return tensor;
    }
    const TensorInfo* info = golden_.file.FindTensor(source);
    if (info == nullptr) {
      return MakeError(ErrorKind::kModelFile, "model.missing_tensor", "no tensor '{}'", source);
    }
    const uint64_t row_bytes = info->rank == 1 ? info->bytes : RowBytes(info->dtype, info->dims[0]);
    tensor.packed = golden_.file.data(*info).subspan(static_cast<uint64_t>(first_row) * row_bytes,
                                                     type.BytesAt({}));
    return tensor;
  }

  void Bind(std::string_view name, const std::vector<int32_t>& values) {
    EXPECT_TRUE(interpreter_->Bind(name, Tensor::I32({std::ssize(values)}, values))) << name;
  }

  const Golden& golden_;
  int64_t counted_ = 0;
  PackedStep step_;
  std::vector<SyntheticConstant> constants_;
  std::optional<Interpreter> interpreter_;
};

class GradientGolden : public testing::TestWithParam<GoldenCase> {};
class AdapterGradientGolden : public testing::TestWithParam<GoldenCase> {};

TEST_P(AdapterGradientGolden, LossesAndGradients) {
  const Golden golden(GetParam());
  const nlohmann::json& cases = golden.json.at("cases");
  const nlohmann::json& expected = cases.at(golden.chat);
  const Example example = ExampleOf(cases.at("chat"), golden.model->facts().vocabulary);
  ReferenceStep step(golden, {example}, {}, /*recomputed=*/0);
  step.Run(golden.Read("lora.init.safetensors"));
  EXPECT_NEAR(step.MeanLoss(), expected.at("loss_mean"), kLossTolerance);
  for (size_t i = 0; i < step.Losses().size(); ++i) {
    const auto row = static_cast<size_t>(step.step().rows.wanted[i]);
    EXPECT_NEAR(step.Losses()[i], expected.at("loss").at(row), kLossTolerance) << "row " << row;
  }
  for (const auto& [name, norm] : expected.at("grad_norms").items()) {
    double squares = 0;
    for (const double value : step.Gradient(name)) squares += value * value;
    EXPECT_NEAR(std::sqrt(squares), norm.get<double>(),
                kGradientTolerance * std::max(norm.get<double>(), 1e-3))
        << name;
  }
  RelativeError whole;
  double worst = 0;
  for (const auto& [name, gradient] : golden.Read(golden.chat + ".grad.safetensors")) {
    worst = std::max(worst, whole.Add(step.Gradient(name), gradient));
  }
  std::printf("%s: gradient %.2g, worst tensor %.2g\n", GetParam().model, whole.value(), worst);
  EXPECT_LT(whole.value(), kGradientTolerance);
  EXPECT_LT(worst, kGradientTolerance);
}

// Compares a gradient of all rows or of the wanted rows with an expected one of all rows.
double ErrorOfRows(const Tensor& found, std::span<const float> expected,
                   const std::vector<int32_t>& wanted) {
  const auto width = static_cast<size_t>(found.row_elements());
  std::vector<double> all(expected.size(), 0);
  if (found.f.size() == all.size()) {
    all = found.f;
  } else {
    for (size_t i = 0; i < wanted.size(); ++i) {
      std::copy_n(found.f.begin() + static_cast<ptrdiff_t>(i * width), width,
                  all.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(wanted[i]) * width));
    }
  }
  RelativeError error;
  return error.Add(all, std::vector<float>(expected.begin(), expected.end()));
}

TEST_P(GradientGolden, ResidualStreamAndSharedKeysAndValues) {
  const Golden golden(GetParam());
  const nlohmann::json& chat = golden.json.at("cases").at("chat");
  const Example example = ExampleOf(chat, golden.model->facts().vocabulary);
  const int64_t layers = golden.model->facts().layers;
  std::vector<std::string> hidden = {"embd"};
  for (int64_t i = 0; i < layers; ++i) hidden.push_back("blk." + std::to_string(i) + ".out");
  const Tensors kv = golden.Read("chat.kv_grad.safetensors");
  std::vector<std::string> observed = hidden;
  for (const auto& [name, values] : kv) {
    if (!name.ends_with(".own_layer_only")) observed.push_back(name);
  }
  ReferenceStep step(golden, {example}, observed, /*recomputed=*/0);
  step.Run(golden.Read("lora.init.safetensors"));
  for (const auto& [name, values] : kv) {
    if (name.ends_with(".own_layer_only")) continue;
    const double error = ErrorOfRows(step.ObservedGradient(name), values, step.step().rows.wanted);
    EXPECT_LT(error, kGradientTolerance) << name;
  }
  // An .npy file: a header, then f32 [layers + 1, rows, width].
  std::ifstream file(golden.folder + "/chat.hidden_grad.npy", std::ios::binary | std::ios::ate);
  const size_t each =
      static_cast<size_t>(example.rows()) * static_cast<size_t>(golden.model->facts().width);
  std::vector<float> expected(each * hidden.size());
  file.seekg(-static_cast<std::streamoff>(expected.size() * sizeof(float)), std::ios::end);
  file.read(reinterpret_cast<char*>(expected.data()),
            static_cast<std::streamsize>(expected.size() * sizeof(float)));
  ASSERT_TRUE(file) << golden.folder;
  for (size_t i = 0; i < hidden.size(); ++i) {
    const double error =
        ErrorOfRows(step.ObservedGradient(hidden[i]), std::span(expected).subspan(i * each, each),
                    step.step().rows.wanted);
    EXPECT_LT(error, kGradientTolerance) << hidden[i];
  }
}

// Two sequences side by side do not see each other, and their loss is the mean over all tokens.
TEST_P(GradientGolden, TwoSequencesOfAStepComputedAgain) {
  const Golden golden(GetParam());
  const nlohmann::json& two = golden.json.at("cases").at("two");
  const Example both = ExampleOf(two, golden.model->facts().vocabulary);
  const auto slots = two.at("slot").get<std::vector<int>>();
  const auto second = std::ranges::find(slots, 1) - slots.begin();
  std::vector<Example> examples(2);
  examples[0].ids.assign(both.ids.begin(), both.ids.begin() + second);
  examples[0].targets.assign(both.targets.begin(), both.targets.begin() + second);
  examples[1].ids.assign(both.ids.begin() + second, both.ids.end());
  examples[1].targets.assign(both.targets.begin() + second, both.targets.end());
  ReferenceStep step(golden, examples, {}, /*recomputed=*/golden.model->facts().layers);
  step.Run(golden.Read("lora.init.safetensors"));
  EXPECT_NEAR(step.MeanLoss(), two.at("loss_mean"), kLossTolerance);
  EXPECT_GT(std::abs(two.at("mean_of_means").at("loss").get<double>() - step.MeanLoss()), 0.1);
  for (const auto& [name, norm] : two.at("grad_norms").items()) {
    double squares = 0;
    for (const double value : step.Gradient(name)) squares += value * value;
    EXPECT_NEAR(std::sqrt(squares), norm.get<double>(),
                kGradientTolerance * std::max(norm.get<double>(), 1e-3))
        << name;
  }
}

const auto kName = [](const testing::TestParamInfo<GoldenCase>& test) {
  return std::string(test.param.model) + "_" + test.param.type;
};
// The weights of a quantised model are decoded exactly, whatever the model.
INSTANTIATE_TEST_SUITE_P(All, AdapterGradientGolden,
                         testing::Values(GoldenCase{"e2b", "f16"}, GoldenCase{"dense", "f16"},
                                         GoldenCase{"moe", "f16"}, GoldenCase{"e2b", "Q4_K_M"}),
                         kName);
INSTANTIATE_TEST_SUITE_P(Plain, GradientGolden,
                         testing::Values(GoldenCase{"e2b", "f16"}, GoldenCase{"dense", "f16"},
                                         GoldenCase{"moe", "f16"}),
                         kName);

}  // namespace
}  // namespace rullama::training
