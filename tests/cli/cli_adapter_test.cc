// --lora from outside: an adapter changes the answer, and a wrong one is an error that says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/gguf/gguf_writer.h"
#include "tests/cli/program.h"
#include "tests/fakes/adapter_folder.h"

namespace rullama::cli_test {
namespace {

using ::testing::HasSubstr;

std::string AdapterModel() {
  return std::string(RULLAMA_SOURCE_DIR) + "/tests/data/tiny-e2b-Q4_K_M.gguf";
}

void WriteText(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string AdapterFolder(const std::string& name, int64_t inputs) {
  const auto folder = TemporaryDirectory() / name;
  WriteAdapterFolder(folder, inputs);
  return folder.string();
}

RunResult Answer(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"-m",      AdapterModel(), "--raw", "-p",
                                        "The sky", "-n",           "12",    "--greedy"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunRullama(arguments);
}

TEST(Adapters, ChangeTheAnswer) {
  const std::string folder = AdapterFolder("adapter_right", 512);
  const RunResult base = Answer({});
  const RunResult adapted = Answer({"--lora", folder, "-v"});
  ASSERT_EQ(base.exit_code, 0) << base.err;
  ASSERT_EQ(adapted.exit_code, 0) << adapted.err;
  EXPECT_NE(adapted.out, base.out);
  EXPECT_THAT(adapted.err, HasSubstr("2 tensors on 1 weights, rank 1, scale 4"));
  // Two adapters that cancel each other leave the answer as it was.
  const RunResult cancelled = Answer({"--lora", folder, "--lora-scaled", folder + ":-1"});
  ASSERT_EQ(cancelled.exit_code, 0) << cancelled.err;
  EXPECT_EQ(cancelled.out, base.out);
  // The same from a configuration, whose files are relative to its folder.
  const auto yaml = TemporaryDirectory() / "adapters.yaml";
  WriteText(yaml, "model:\n  adapters: [{path: adapter_right, scale: 1.0}]\n");
  EXPECT_EQ(Answer({"--config", yaml.string()}).out, adapted.out);
}

// The adapter of WriteAdapterFolder() as a file of GGUF: blk.0.ffn_down, rank 1, 512 columns of
// input and 256 of output.
void WriteAdapterFile(const std::filesystem::path& path) {
  constexpr uint64_t kInputs = 512, kOutputs = 256;
  GgufWriter writer;
  ASSERT_TRUE(writer.Set("general.architecture", "gemma4"));
  ASSERT_TRUE(writer.Set("general.type", "adapter"));
  ASSERT_TRUE(writer.Set("adapter.type", "lora"));
  ASSERT_TRUE(writer.Set("adapter.lora.alpha", 4.0F));
  const uint64_t a[] = {kInputs, 1}, b[] = {1, kOutputs};
  ASSERT_TRUE(writer.AddTensor("blk.0.ffn_down.weight.lora_a", DType::kF32, a));
  ASSERT_TRUE(writer.AddTensor("blk.0.ffn_down.weight.lora_b", DType::kF32, b));
  auto output = writer.Begin(path);
  ASSERT_TRUE(output);
  std::vector<float> values(kInputs + kOutputs);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 3 == 0 ? 0.5F : -0.25F;
  ASSERT_TRUE(output->Append(std::as_bytes(std::span(values).first(kInputs))));
  ASSERT_TRUE(output->Append(std::as_bytes(std::span(values).subspan(kInputs))));
  ASSERT_TRUE(output->Finish());
}

// A store of Ollama whose model "adapted" has a layer with an adapter. Digests are made up.
std::filesystem::path StoreWithAdapter() {
  namespace fs = std::filesystem;
  using nlohmann::json;
  const fs::path root = TemporaryDirectory() / "adapter_store";
  const fs::path manifest = root / "manifests/registry.ollama.ai/library/adapted/latest";
  fs::create_directories(root / "blobs");
  fs::create_directories(manifest.parent_path());
  json image = {{"layers", json::array()}};
  const auto blob = [&](char digit) {
    return root / "blobs" / ("sha256-" + std::string(64, digit));
  };
  const auto layer = [&](char digit, const std::string& kind) {
    return json{{"mediaType", "application/vnd.ollama.image." + kind},
                {"digest", "sha256:" + std::string(64, digit)},
                {"size", fs::file_size(blob(digit))}};
  };
  fs::copy_file(AdapterModel(), blob('a'));
  WriteAdapterFile(blob('b'));
  WriteText(blob('c'), R"({"model_format":"gguf"})");
  image["config"] = layer('c', "config");
  image["layers"] = {layer('a', "model"), layer('b', "adapter")};
  WriteText(manifest, image.dump());
  return root;
}

TEST(Adapters, OfAModelInOllamasStoreAreTaken) {
  RunOptions store;
  store.environment = {"OLLAMA_MODELS=" + StoreWithAdapter().string()};
  const auto answer = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--raw", "-p", "The sky", "-n", "12", "--greedy", "-v"});
    return RunRullama(arguments, store);
  };
  const std::string folder = AdapterFolder("adapter_of_store", 512);
  const RunResult stored = answer({"-m", "adapted"});
  ASSERT_EQ(stored.exit_code, 0) << stored.err;
  EXPECT_EQ(stored.out, Answer({"--lora", folder}).out);
  EXPECT_THAT(stored.err, HasSubstr("2 tensors on 1 weights, rank 1, scale 4"));
  // Adapters that are given take their place.
  EXPECT_EQ(answer({"-m", "adapted", "--lora", folder + ":0"}).out, Answer({}).out);
  EXPECT_THAT(
      RunRullama({"show", "adapted"}, store).out,
      HasSubstr("adapter        " + store.environment[0].substr(sizeof("OLLAMA_MODELS=") - 1)));
}

TEST(Adapters, WrongOnesAreErrors) {
  const std::string wrong = AdapterFolder("adapter_wrong", 7);
  RunResult result = Answer({"--lora", wrong});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, HasSubstr("[1, 7]"));
  EXPECT_THAT(result.err, HasSubstr("[adapter.shape]"));
  result = Answer({"--lora", (TemporaryDirectory() / "missing").string()});
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err, HasSubstr("[io.open]"));
  result = Answer({"--lora", wrong + ":1e9"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--lora"));
}

}  // namespace
}  // namespace rullama::cli_test
