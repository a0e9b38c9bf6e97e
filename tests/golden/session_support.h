// The parts that the golden tests on sessions share: backends by name and instruction set, and
// model files.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/plugin/registry.h"
#include "core/reference/reference_backend.h"
#include "core/runtime/session.h"
#include "models/gemma4/graph/config.h"
#include "models/gemma4/graph/model.h"
#include "models/gemma4/graph/weights.h"
#include "tests/gpu_backends.h"

namespace rullama::golden {

struct Backend {
  std::string name;
  std::string isa;  // of the cpu backend; empty: the best there is
  std::string activations = "int16";
  bool precise = false;  // of GPUs: the option precise_products
};

// The plainest instruction-set levels and the best one this processor has; conformance runs them
// all.
inline std::vector<Backend> Backends() {
  std::vector<Backend> backends = {{"reference", ""}, {"cpu", "portable"}, {"cpu", ""}};
#if defined(__aarch64__)
  backends.push_back({"cpu", "neon"});
#elif defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) backends.push_back({"cpu", "avx2"});
#endif
  return backends;
}

// The first device of each GPU backend, a driver in software where there is no GPU: slow, so tests
// choose what they run on it.
inline std::vector<Backend> Gpus() {
  std::vector<Backend> backends;
  for (const char* name : GpuBackendNames()) backends.push_back({name, ""});
  return backends;
}

// Those whose products lose as little as in f32.
inline std::vector<Backend> Precise(std::vector<Backend> backends) {
  for (Backend& backend : backends) backend.precise = true;
  return backends;
}

// The options of a device of this backend.
inline std::vector<std::pair<std::string, std::string>> OptionsOf(const Backend& backend) {
  std::vector<std::pair<std::string, std::string>> options;
  if (backend.name == "cpu") {
    options = {{"threads", "2"}, {"activations", backend.activations}};
    if (!backend.isa.empty()) options.emplace_back("isa", backend.isa);
  }
  if (backend.precise) options.emplace_back("precise_products", "on");
  return options;
}

inline double RelativeL2(std::span<const float> actual, std::span<const float> expected) {
  if (actual.size() != expected.size() || expected.empty()) return INFINITY;
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = static_cast<double>(actual[i]) - expected[i];
    difference += d * d;
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  return std::sqrt(difference / norm);
}

// A model file on a backend; the session is the test's business.
struct Loaded {
  GgufFile file;
  Gemma4Config config;
  Gemma4Weights tensors;
  std::shared_ptr<PluginHost> host;
  std::unique_ptr<Registry> registry;
  std::unique_ptr<Device> device;
  std::unique_ptr<GgufWeights> weights;
  std::unique_ptr<Session> session;

  explicit Loaded(GgufFile opened) : file(std::move(opened)) {}
  // f32 on the reference, which is to have no rounding of its own.
  [[nodiscard]] static DType KvDtypeOf(const Backend& backend) {
    return backend.name == "reference" ? DType::kF32 : DType::kF16;
  }
  [[nodiscard]] SessionOptions Options(int64_t chunk) const {
    SessionOptions options;
    options.devices = {device.get()};
    options.limits.max_t = chunk;
    return options;
  }
  void AddConstants(std::vector<SyntheticConstant> constants) {
    for (SyntheticConstant& constant : constants) {
      weights->AddConstant(constant.name, constant.type, std::move(constant.bytes));
    }
  }
};

inline std::unique_ptr<Loaded> Open(const Backend& backend, const std::filesystem::path& path) {
  auto loaded = std::make_unique<Loaded>(Must(GgufFile::Open(path)));
  loaded->config = Must(Gemma4Config::FromFile(loaded->file));
  loaded->tensors = Must(Gemma4Weights::FromFile(loaded->config, loaded->file));
  loaded->weights = std::make_unique<GgufWeights>(loaded->file);
  loaded->host = std::make_shared<PluginHost>(HostOptions{});
  loaded->registry = std::make_unique<Registry>(RegistryOptions::FromProcess(), loaded->host);
  loaded->registry->RegisterBuiltIn("reference", ReferencePluginQuery);
  const auto plugin = Must(loaded->registry->Find(backend.name));
  loaded->device = Must(plugin->Open(0, OptionsOf(backend)));
  return loaded;
}

}  // namespace rullama::golden
