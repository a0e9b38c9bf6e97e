// Models with an adapter against logits that an independent implementation computed with it, from
// PEFT's files and from llama.cpp's, on every backend, on plain and on quantised weights.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/read_file_test_util.h"
#include "core/runtime/output_names.h"
#include "core/safetensors/safetensors.h"
#include "models/common/adapters/adapter.h"
#include "tests/golden/session_support.h"

namespace rullama::golden {
namespace {

const std::string kShared = std::string(RULLAMA_SOURCE_DIR) + "/../shared";

struct AdapterCase {
  std::string model;  // "e2b"
  std::string type;
};

std::string FolderOf(const AdapterCase& test) { return kShared + "/goldens/train-" + test.model; }

std::vector<int32_t> ProbeTokens(const AdapterCase& test) {
  std::ifstream file(FolderOf(test) + "/golden.json");
  return nlohmann::json::parse(file).at("run").at("probe").at("ids").get<std::vector<int32_t>>();
}

// An .npy file of f32 values: a header, then the values.
std::vector<float> ProbeLogits(const AdapterCase& test, size_t count) {
  const std::string suffix = test.type == "f16" ? "" : "." + test.type;
  std::ifstream file(FolderOf(test) + "/adapter/logits" + suffix + ".npy",
                     std::ios::binary | std::ios::ate);
  std::vector<float> logits(count);
  const auto bytes = static_cast<std::streamoff>(count * sizeof(float));
  file.seekg(static_cast<std::streamoff>(file.tellg()) - bytes);
  file.read(reinterpret_cast<char*>(logits.data()), bytes);
  EXPECT_TRUE(file) << FolderOf(test);
  return logits;
}

// The logits of all rows, with these adapters.
std::vector<float> AdaptedLogits(const Backend& backend, const AdapterCase& test,
                                 const std::vector<std::pair<std::string, double>>& adapters) {
  auto loaded = Open(backend, kShared + "/models/tiny-" + test.model + "-" + test.type + ".gguf");
  const std::vector<int32_t> tokens = ProbeTokens(test);
  const auto rows = static_cast<int64_t>(tokens.size());
  const AdapterTarget target{std::string(loaded->config.architecture()),
                             ExpectedTensors(loaded->config)};
  std::vector<ScaledAdapter> scaled;
  for (const auto& [path, scale] : adapters) {
    scaled.push_back({Must(ReadAdapter(path, target)), scale});
  }
  ModelAdapters joined = JoinAdapters(scaled);
  ModelGraph parts = Must(BuildModel(
      loaded->config, loaded->tensors,
      {.capacity = rows, .kv_dtype = Loaded::KvDtypeOf(backend), .max_t = rows, .max_r = rows}));
  AddLogitsOutput(parts.builder, parts.logits, RowDemand::kAll);
  loaded->AddConstants(std::move(parts.constants));
  loaded->AddConstants(std::move(joined.constants));
  const Graph graph = Must(std::move(parts.builder).Finish());
  loaded->session = Must(Session::Create(Must(AdaptProducts(graph, joined.pairs)), *loaded->weights,
                                         loaded->Options(rows)));
  const Status run =
      loaded->session->Run(StepRows::Consecutive(tokens, 0, /*slot=*/0, DemandMode::kAllRows));
  EXPECT_TRUE(run) << run.error().ToString();
  std::vector<float> logits(tokens.size() * static_cast<size_t>(loaded->config.vocabulary));
  EXPECT_TRUE(loaded->session->ReadOutput(output_names::kLogits,
                                          std::as_writable_bytes(std::span(logits))));
  return logits;
}

double ErrorOf(const Backend& backend, const AdapterCase& test,
               const std::vector<std::pair<std::string, double>>& adapters) {
  const std::vector<float> logits = AdaptedLogits(backend, test, adapters);
  const double error = RelativeL2(logits, ProbeLogits(test, logits.size()));
  std::printf("%s %s %s: relative L2 %.3g\n", backend.name.c_str(), test.model.c_str(),
              test.type.c_str(), error);
  return error;
}

// Without the adapter the logits are off by 0.08 to 0.23.
double ToleranceOf(const Backend& backend) { return backend.name == "reference" ? 1e-5 : 5e-3; }

class GoldenAdapter : public ::testing::TestWithParam<std::tuple<Backend, AdapterCase>> {};

TEST_P(GoldenAdapter, LogitsOfPeftAndGguf) {
  const auto& [backend, test] = GetParam();
  const std::string folder = FolderOf(test) + "/adapter";
  EXPECT_LT(ErrorOf(backend, test, {{folder, 1}}), ToleranceOf(backend));
  if (backend.name != "reference") return;
  EXPECT_LT(ErrorOf(backend, test, {{folder + "/adapter.gguf", 1}}), ToleranceOf(backend));
  EXPECT_LT(ErrorOf(backend, test, {{folder, 0.25}, {folder + "/adapter.gguf", 0.75}}),
            ToleranceOf(backend));
  EXPECT_GT(ErrorOf(backend, test, {}), 0.05);
}

std::string NameOfCase(const ::testing::TestParamInfo<GoldenAdapter::ParamType>& row) {
  const auto& [backend, test] = row.param;
  return backend.name + "_" + test.model + "_" + test.type;
}

INSTANTIATE_TEST_SUITE_P(
    Models, GoldenAdapter,
    ::testing::Combine(::testing::Values(Backend{"reference", ""}, Backend{"cpu", ""}),
                       ::testing::Values(AdapterCase{"e2b", "f16"}, AdapterCase{"e2b", "Q4_K_M"},
                                         AdapterCase{"dense", "f16"}, AdapterCase{"moe", "f16"},
                                         AdapterCase{"moe", "Q4_K_M"})),
    NameOfCase);

// Drivers in software are slow: one model with plain and one with quantised weights.
INSTANTIATE_TEST_SUITE_P(Gpus, GoldenAdapter,
                         ::testing::Combine(::testing::ValuesIn(Gpus()),
                                            ::testing::Values(AdapterCase{"e2b", "Q4_K_M"},
                                                              AdapterCase{"moe", "f16"})),
                         NameOfCase);

// Tensors that are read and written again are the same, byte by byte.
TEST(GoldenAdapterFile, PeftTensorsSurviveARoundTrip) {
  for (const char* model : {"e2b", "dense", "moe"}) {
    const std::string path = FolderOf({model, "f16"}) + "/adapter/adapter_model.safetensors";
    const SafetensorsFile file = Must(SafetensorsFile::Open(path));
    std::vector<std::vector<float>> values;
    std::vector<SafetensorsOutput> outputs;
    for (const SafetensorsTensor& tensor : file.tensors()) {
      values.push_back(Must(file.Floats(tensor)));
      outputs.push_back({tensor.name, tensor.shape, values.back()});
    }
    const std::vector<std::byte> bytes = EncodeSafetensors(outputs, file.metadata());
    const std::string expected = ReadWholeFile(path);
    ASSERT_EQ(bytes.size(), expected.size()) << model;
    EXPECT_EQ(std::memcmp(bytes.data(), expected.data(), bytes.size()), 0) << model;
  }
}

}  // namespace
}  // namespace rullama::golden
