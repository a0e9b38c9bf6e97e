// A server that has said "listening" compiles nothing more: counted by layers of Vulkan and OpenCL
// that see each call of a compiler.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cli/program.h"
#include "tests/server/client.h"

namespace rullama::cli_test {
namespace {

struct Api {
  std::string backend;
  std::vector<std::string> environment;  // with the layer
};

Api Vulkan() {
  return {"vulkan",
          {"VK_LAYER_PATH=" RULLAMA_TEST_LAYERS, "VK_INSTANCE_LAYERS=VK_LAYER_RULLAMA_slow"}};
}
Api OpenCl(const std::filesystem::path& folder) {
  return {
      "opencl",
      {"OPENCL_LAYERS=" RULLAMA_TEST_OPENCL_LAYER, "POCL_CACHE_DIR=" + (folder / "pocl").string(),
       "POCL_EXTRA_BUILD_FLAGS=-cl-opt-disable"}};
}

class WarmUpTest : public ::testing::Test {
 protected:
  WarmUpTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~WarmUpTest() override { std::filesystem::remove_all(folder_); }

  // Calls of the compiler so far.
  [[nodiscard]] int64_t Compiled() const {
    std::ifstream file(compiled_);
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  }

  [[nodiscard]] RunOptions OptionsFor(const Api& api) const {
    RunOptions options{.join_streams = true, .environment = api.environment};
    options.environment.push_back("XDG_CACHE_HOME=" + (folder_ / "cache").string());
    options.environment.push_back("RULLAMA_TEST_COMPILED=" + compiled_.string());
    return options;
  }

  const std::filesystem::path folder_ =
      ::testing::TempDir() + "warm_up_" + std::to_string(::getpid());
  const std::filesystem::path compiled_ = folder_ / "compiled";
};

std::vector<std::string> ServeArguments(const std::string& backend) {
  return {"serve",   "-m", TinyModel(), "--backend", backend,  "--device", "0",
          "--slots", "4",  "-c",        "512",       "--port", "0"};
}

uint16_t PortOf(RunningProgram& server) {
  server.ReadUntil("listening on http://127.0.0.1:");
  return static_cast<uint16_t>(std::stoi(server.ReadUntil("tokens)")));
}

std::string Words(size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += "the prince ";
  return text;
}

// Requests for each chain of samplers, with prompts of each size of step.
std::vector<std::string> Bodies() {
  const std::string settings[] = {
      "",
      R"(, "temperature": 0)",
      R"(, "temperature": 0, "logprobs": 3)",
      R"(, "logprobs": 2)",
      R"(, "frequency_penalty": 1)",
      R"(, "logit_bias": {"7": -100}, "logprobs": 1)",
      R"(, "top_k": -1, "top_p": 0.5)",
      R"(, "top_k": -1, "min_p": 0.1, "logprobs": 1)",
      R"(, "n": 3)",
      R"(, "echo": true, "logprobs": 1)",
  };
  std::vector<std::string> bodies;
  for (const size_t words : {1, 6, 20, 60, 150}) {
    for (const std::string& setting : settings) {
      bodies.push_back(R"({"max_tokens": 4, "prompt": ")" + Words(words) + "\"" + setting + "}");
    }
  }
  return bodies;
}

// Sends the requests, four at a time.
void AskAll(uint16_t port, const std::vector<std::string>& bodies) {
  constexpr size_t kClients = 4;
  std::vector<std::jthread> clients;
  for (size_t client = 0; client < kClients; ++client) {
    clients.emplace_back([&, client] {
      for (size_t i = client; i < bodies.size(); i += kClients) {
        const std::string answer = server::Ask(port, "/v1/completions", bodies[i]);
        EXPECT_EQ(server::StatusOf(answer), 200) << bodies[i] << "\n" << answer;
      }
    });
  }
}

TEST_F(WarmUpTest, VulkanCompilesNothingOnceTheServerListens) {
  RunningProgram server(ServeArguments("vulkan"), OptionsFor(Vulkan()));
  const uint16_t port = PortOf(server);
  const int64_t at_start = Compiled();
  EXPECT_GT(at_start, 20);
  AskAll(port, Bodies());
  EXPECT_EQ(server::StatusOf(server::Ask(port, "/v1/embeddings", R"({"input": "the prince"})")),
            200);
  EXPECT_EQ(Compiled(), at_start);
}

TEST_F(WarmUpTest, WithoutItThingsAreCompiledWhenTheyAreNeeded) {
  std::vector<std::string> arguments = ServeArguments("vulkan");
  arguments.insert(arguments.end(), {"--warm-up", "off"});
  RunningProgram server(arguments, OptionsFor(Vulkan()));
  const uint16_t port = PortOf(server);
  EXPECT_EQ(Compiled(), 0);
  AskAll(port, {Bodies().front()});
  EXPECT_GT(Compiled(), 10);
}

// A compiler of a driver cannot be stopped; here each kernel takes it longer than the test may
// take.
TEST_F(WarmUpTest, AServerThatStartsEndsWithoutItsCompiler) {
  const std::filesystem::path config = folder_ / "config.yaml";
  std::ofstream(config) << "server: {drain_s: 3600}\n";
  RunOptions options = OptionsFor(Vulkan());
  options.environment.push_back("RULLAMA_TEST_COMPILE_MS=3600000");
  std::vector<std::string> arguments = ServeArguments("vulkan");
  arguments.insert(arguments.end(), {"--config", config.string()});
  RunningProgram server(arguments, options);
  constexpr int kMostPolls = 6000;
  for (int i = 0; i < kMostPolls && Compiled() == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_GT(Compiled(), 0);
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 128 + SIGTERM);
}

TEST_F(WarmUpTest, OpenClBuildsNothingOnceTheServerListens) {
  const Api api = OpenCl(folder_);
  RunningProgram server(ServeArguments(api.backend), OptionsFor(api));
  const uint16_t port = PortOf(server);
  const int64_t at_start = Compiled();
  EXPECT_GT(at_start, 20);
  AskAll(port, Bodies());
  EXPECT_EQ(Compiled(), at_start);
}

}  // namespace
}  // namespace rullama::cli_test
