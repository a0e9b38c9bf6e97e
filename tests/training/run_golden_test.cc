// Training on a backend against an independent implementation: gradients of a step, twenty steps
// of AdamW, and what must not change a byte. RULLAMA_TRAINING_DEVICES, for example
// "vulkan:0,opencl:1", adds all models on these devices, by backend and index.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "core/config/device_name.h"
#include "core/plugin/registry.h"
#include "core/reference/reference_backend.h"
#include "engine/training/trainer.h"
#include "tests/gpu_backends.h"
#include "tests/training/golden_case.h"

namespace rullama::training {
namespace {

// The largest errors of a step: of the mean loss, and relative L2 norms of gradients.
struct StepTolerance {
  double loss;
  double gradient;  // all tensors together
  double worst;     // of one tensor
};
// The bounds for f32 arithmetic; torch in float32 is off by a tenth of them (spec of the goldens).
constexpr StepTolerance kF32 = {4e-5, 1e-4, 1e-3};
// Where products with block weights round activations to 16 bits, each is off by up to 3e-5
// (docs/numerics.md), and layers add up to ten times as much.
constexpr StepTolerance k16Bits = {1e-3, 1e-3, 3e-3};
// Where matrix units round activations to f16: on an H200 the mean loss of the case's 43 tokens is
// off by 1.1e-4 or 6.5e-4, by how products are divided, the gradient by up to 2.4e-3, its worst
// tensor by up to 3.5e-3.
constexpr StepTolerance kHalfActivations = {1.5e-3, 6e-3, 1e-2};
// Where they round decoded weights as well: on an H100 the mean loss is off by up to 3.4e-3, and by
// 2e-6 without matrix units.
constexpr StepTolerance kHalves = {5e-3, 1e-2, 3e-2};
// After twenty steps. Adam divides the noise of small gradients by its own size.
constexpr double kRunLossTolerance = 3e-4;
constexpr double kAdapterTolerance = 2.4e-3;
constexpr double kRate = 1e-3;  // of AdamW, in the goldens

struct OpenDevice {
  std::shared_ptr<PluginHost> host = std::make_shared<PluginHost>(HostOptions{});
  std::unique_ptr<Registry> registry =
      std::make_unique<Registry>(RegistryOptions::FromProcess(), host);
  std::unique_ptr<Device> device;

  OpenDevice(const std::string& backend, uint32_t index) {
    registry->RegisterBuiltIn("reference", ReferencePluginQuery);
    const auto plugin = Must(registry->Find(backend));
    using Options = std::vector<std::pair<std::string, std::string>>;
    device = Must(plugin->Open(index, backend == "cpu" ? Options{{"threads", "1"}} : Options{}));
  }
};

std::unique_ptr<Trainer> MakeTrainer(const Golden& golden, Device& device, int64_t recomputed = 0) {
  auto trainer = Must(Trainer::Create(*golden.model, golden.file,
                                      {.devices = {&device},
                                       .policy = {},
                                       .pairs = golden.pairs,
                                       .adamw = {},
                                       .max_grad_norm = 1,
                                       .slots = 2,
                                       .max_t = 160,
                                       .max_r = 160,
                                       .recomputed_layers = recomputed}));
  EXPECT_TRUE(trainer->Start());
  return trainer;
}

void Fill(Trainer& trainer, const Tensors& adapter, bool zero_b) {
  for (const auto& [name, values] : adapter) {
    const bool is_b = name.ends_with(".lora_b");
    const std::vector<float> zeros(values.size(), 0);
    ASSERT_TRUE(trainer.Write(name, is_b && zero_b ? zeros : values)) << name;
  }
}

Tensors ReadAll(Trainer& trainer, const std::function<std::string(const std::string&)>& state_of) {
  Tensors values;
  for (const std::string& name : trainer.parameters()) {
    values[name] = Must(trainer.Read(state_of(name)));
  }
  return values;
}

std::string Itself(const std::string& name) { return name; }

struct RunCase {
  GoldenCase golden;
  std::string backend;
  uint32_t device = 0;
};
void PrintTo(const RunCase& test, std::ostream* out) {
  PrintTo(test.golden, out);
  *out << " on " << test.backend;
}

class StepGolden : public testing::TestWithParam<RunCase> {};
class RunGolden : public testing::TestWithParam<RunCase> {};

// The states that a checkpoint keeps, by their own names.
Tensors Saved(Trainer& trainer) {
  Tensors values;
  for (const std::string& name : trainer.parameters()) {
    for (const std::string& state : {name, FirstMomentOf(name), SecondMomentOf(name)}) {
      values[state] = Must(trainer.Read(state));
    }
  }
  return values;
}

bool IsPlain(const RunCase& test) { return std::string(test.golden.type) == "f16"; }

StepTolerance ToleranceOf(const RunCase& test, const Device& device) {
  const rl_device_type type = device.description().type;
  if (type == RL_DEVICE_GPU || type == RL_DEVICE_INTEGRATED_GPU) {
    return IsPlain(test) ? kHalfActivations : kHalves;
  }
  return IsPlain(test) ? kF32 : k16Bits;
}

// Gradients of quantised models are stored for one of them, the norms of all tensors for each.
bool HasGradients(const RunCase& test) {
  return IsPlain(test) || std::string(test.golden.model) == "e2b";
}

void ExpectNorms(const Tensors& gradients, const nlohmann::json& expected, double tolerance) {
  for (const auto& [name, norm] : expected.items()) {
    double squares = 0;
    for (const double value : gradients.at(name)) squares += value * value;
    EXPECT_NEAR(std::sqrt(squares), norm.get<double>(), tolerance * norm.get<double>()) << name;
  }
}

void ExpectGradients(const RunCase& test, const Tensors& found, const Tensors& expected,
                     const StepTolerance& tolerance) {
  RelativeError whole;
  double worst = 0;
  for (const auto& [name, values] : expected) {
    worst = std::max(worst, whole.Add(found.at(name), values));
  }
  std::printf("%s %s on %s: gradient off by %.2g, worst tensor %.2g\n", test.golden.model,
              test.golden.type, test.backend.c_str(), whole.value(), worst);
  EXPECT_LT(whole.value(), tolerance.gradient);
  EXPECT_LT(worst, tolerance.worst);
}

// Gradients of a step, and the same bytes where activations are computed again, and where a trainer
// continues from the state of another one after a step.
TEST_P(StepGolden, Gradients) {
  const Golden golden(GetParam().golden);
  const nlohmann::json& cases = golden.json.at("cases");
  const nlohmann::json& chat = cases.at(golden.chat);
  const Example example = ExampleOf(cases.at("chat"), golden.model->facts().vocabulary);
  const Example* examples[] = {&example};
  OpenDevice opened(GetParam().backend, GetParam().device);
  const StepTolerance tolerance = ToleranceOf(GetParam(), *opened.device);
  const Tensors init = golden.Read("lora.init.safetensors");

  const auto kept = MakeTrainer(golden, *opened.device);
  Fill(*kept, init, /*zero_b=*/false);
  EXPECT_NEAR(Must(kept->Evaluate(examples)).mean(), chat.at("loss_mean"), tolerance.loss);
  EXPECT_NEAR(Must(kept->AddGradients(examples)).mean(), chat.at("loss_mean"), tolerance.loss);
  const Tensors gradients = ReadAll(*kept, GradientOf);
  ExpectNorms(gradients, chat.at("grad_norms"), tolerance.worst);
  if (HasGradients(GetParam())) {
    ExpectGradients(GetParam(), gradients, golden.Read(golden.chat + ".grad.safetensors"),
                    tolerance);
  }
  Must(kept->Step(examples, 0, kRate));
  const Tensors saved = Saved(*kept);
  Must(kept->Step(examples, 1, kRate));

  const auto again = MakeTrainer(golden, *opened.device, golden.model->facts().layers - 1);
  Fill(*again, init, /*zero_b=*/false);
  Must(again->AddGradients(examples));
  EXPECT_EQ(ReadAll(*again, GradientOf), gradients);
  for (const auto& [name, values] : gradients) {
    ASSERT_TRUE(again->Write(GradientOf(name), std::vector<float>(values.size(), 0)));
  }
  Fill(*again, saved, /*zero_b=*/false);
  Must(again->Step(examples, 1, kRate));
  EXPECT_EQ(Saved(*again), Saved(*kept));
}

TEST_P(RunGolden, TwentyStepsOfAdamW) {
  const Golden golden(GetParam().golden);
  const nlohmann::json& run = golden.json.at("run");
  std::vector<Example> sequences;
  for (const auto& sequence : run.at("sequences")) {
    sequences.push_back(ExampleOf(sequence, golden.model->facts().vocabulary));
  }
  OpenDevice opened(GetParam().backend, GetParam().device);
  const auto trainer = MakeTrainer(golden, *opened.device);
  Fill(*trainer, golden.Read("lora.init.safetensors"), /*zero_b=*/true);
  for (size_t i = 0; i < run.at("micro_batches").size(); ++i) {
    std::vector<const Example*> examples;
    for (const size_t index : run.at("micro_batches").at(i)) {
      examples.push_back(&sequences[index]);
    }
    const StepResult step = Must(trainer->Step(examples, static_cast<int64_t>(i), kRate));
    EXPECT_NEAR(step.loss.mean(), run.at("loss").at(i), kRunLossTolerance) << "step " << i;
    EXPECT_NEAR(step.norm / run.at("grad_norm").at(i).get<double>(), 1, 1e-2) << "step " << i;
    EXPECT_EQ(step.loss.tokens, run.at("counted").at(i));
  }
  // The adapter of the goldens has PEFT's names.
  const Adapter expected = Must(golden.model->ReadAdapter(golden.folder + "/adapter"));
  const Tensors found = ReadAll(*trainer, Itself);
  RelativeError error;
  for (const AdapterWeight& weight : expected.weights) {
    error.Add(found.at(weight.tensor + ".lora_a"), weight.a);
    error.Add(found.at(weight.tensor + ".lora_b"), weight.b);
  }
  std::printf("%s on %s: adapter off by %.2g\n", GetParam().golden.model,
              GetParam().backend.c_str(), error.value());
  EXPECT_LT(error.value(), kAdapterTolerance);
}

// `cases`, and these models on the devices of RULLAMA_TRAINING_DEVICES.
std::vector<RunCase> WithDevices(std::vector<RunCase> cases,
                                 const std::vector<GoldenCase>& models) {
  const char* listed = std::getenv("RULLAMA_TRAINING_DEVICES");
  std::istringstream devices(listed == nullptr ? "" : listed);
  for (std::string device; std::getline(devices, device, ',');) {
    const DeviceName name = ParseDeviceName(device);
    const auto index = static_cast<uint32_t>(std::stoul(name.device));
    for (const GoldenCase& model : models) cases.push_back({model, name.backend, index});
  }
  return cases;
}

const auto kRunName = [](const testing::TestParamInfo<RunCase>& test) {
  const std::string name = std::string(test.param.golden.model) + "_" + test.param.golden.type;
  return name + "_" + test.param.backend + std::to_string(test.param.device) + "_" +
         std::to_string(test.index);
};
const GoldenCase kE2b{"e2b", "f16"}, kDense{"dense", "f16"}, kMoe{"moe", "f16"},
    kE2bQuantised{"e2b", "Q4_K_M"}, kDenseQuantised{"dense", "Q4_K_M"},
    kMoeQuantised{"moe", "Q4_K_M"};
// Drivers in software are slow: another model on each backend.
std::vector<RunCase> OnGpus() {
  std::vector<RunCase> cases;
  for (const char* name : EverySecond(GpuBackendNames(), 0)) cases.push_back({kMoe, name});
  for (const char* name : EverySecond(GpuBackendNames(), 1)) cases.push_back({kDense, name});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Gpus, StepGolden, testing::ValuesIn(OnGpus()), kRunName);
INSTANTIATE_TEST_SUITE_P(Plain, StepGolden,
                         testing::ValuesIn(WithDevices({{kE2b, "cpu"},
                                                        {kDense, "cpu"},
                                                        {kMoe, "cpu"},
                                                        {kE2bQuantised, "cpu"},
                                                        {kDenseQuantised, "cpu"},
                                                        {kMoeQuantised, "cpu"}},
                                                       {kE2b, kDense, kMoe, kE2bQuantised,
                                                        kDenseQuantised, kMoeQuantised})),
                         kRunName);
INSTANTIATE_TEST_SUITE_P(
    Plain, RunGolden,
    testing::ValuesIn(WithDevices({{kE2b, "cpu"}, {kDense, "cpu"}, {kMoe, "cpu"}},
                                  {kE2b, kDense, kMoe})),
    kRunName);

}  // namespace
}  // namespace rullama::training
