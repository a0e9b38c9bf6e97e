// The program on the first Vulkan device there is: what it samples, and options that make no sense.
#include "tests/cli/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace rullama::cli_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunResult Sample(const std::string& model, const std::string& backend, const std::string& seed) {
  return RunRullama({"-m", model, "--backend", backend, "--device", "0", "--raw", "-p",
                     "The prince looked at", "-n", "24", "--seed", seed, "--temp", "1.0", "--top-k",
                     "40", "--top-p", "0.95"});
}

// Ties and random numbers are defined to the last rule, and logits agree to more digits than a draw
// looks at.
TEST(Vulkan, TheSameSeedGivesTheTextOfTheCpu) {
  for (const auto& [model, seed] : {std::pair(TinyModel(), "7"), std::pair(TinyMoeModel(), "8")}) {
    const RunResult cpu = Sample(model, "cpu", seed);
    const RunResult vulkan = Sample(model, "vulkan", seed);
    EXPECT_EQ(vulkan.exit_code, 0) << vulkan.err;
    EXPECT_GT(cpu.out.size(), 20U);
    EXPECT_EQ(vulkan.out, cpu.out) << model << ", seed " << seed;
  }
}

TEST(Vulkan, ExpertsOnTheHostGiveTheSameText) {
  const auto run = [](std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        "-m", TinyMoeModel(),         "--backend", "vulkan", "--device", "0", "--raw",
        "-p", "The prince looked at", "-n",        "8",      "--seed",   "8", "-v"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunRullama(arguments);
  };
  const RunResult device = run({});
  const RunResult first = run({"--n-cpu-moe", "1"});
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_GT(device.out.size(), 10U);
  EXPECT_EQ(first.out, device.out);
  EXPECT_THAT(device.err, Not(HasSubstr("host_expert_layers")));
  EXPECT_THAT(first.err, HasSubstr("moe_ffn (blk.0.moe.experts) moved to the host: "
                                   "placement.host_expert_layers is 1"));
  const RunResult all = run({"--cpu-moe"});
  EXPECT_EQ(all.out, device.out);
  EXPECT_THAT(all.err, HasSubstr("moe_ffn (blk.0.moe.experts and "));
}

// One row: the norm before the queries is their prologue, and the gate the epilogue of a product.
TEST(Vulkan, GraphShowsWhatIsFused) {
  const std::vector<std::string> graph = {"graph", "-m", TinyModel(), "--fused", "--device", "0"};
  const auto with_backend = [&](const std::string& backend) {
    std::vector<std::string> arguments = graph;
    arguments.insert(arguments.end(), {"--backend", backend});
    return RunRullama(arguments);
  };
  const RunResult vulkan = with_backend("vulkan");
  EXPECT_EQ(vulkan.exit_code, 0) << vulkan.err;
  EXPECT_THAT(vulkan.out, HasSubstr("prologue:"));
  EXPECT_THAT(vulkan.out, HasSubstr("epilogue:"));
  EXPECT_THAT(vulkan.out, HasSubstr("fused: rms_norm"));
  const RunResult cpu = with_backend("cpu");
  EXPECT_EQ(cpu.exit_code, 2);
  EXPECT_THAT(cpu.err, HasSubstr("graph.not_fused"));
}

RunResult WithOptions(const std::string& options, const std::string& device = "0",
                      const RunOptions& run = {}) {
  const auto config = TemporaryFile("vulkan.yaml", "backend: {name: vulkan, device: \"" + device +
                                                       "\", options: {" + options + "}}\n");
  return RunRullama({"-m", TinyModel(), "--config", config, "--raw", "-p", "The", "-n", "1"}, run);
}

TEST(Vulkan, OptionsThatContradictEachOther) {
  for (const std::string option : {"persistent", "integer_dot"}) {
    const RunResult result = WithOptions("subgroups: \"off\", " + option + ": \"on\"");
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr("option " + option + " is 'on', but needs subgroups"));
  }
}

TEST(Vulkan, OptionsItDoesNotKnow) {
  const RunResult unknown = WithOptions("persistant: \"on\"");
  EXPECT_NE(unknown.exit_code, 0);
  EXPECT_THAT(unknown.err, HasSubstr("unknown option 'persistant'"));
  EXPECT_THAT(unknown.err, HasSubstr("integer_dot, persistent"));
  const RunResult value = WithOptions("integer_dot: \"yes\"");
  EXPECT_NE(value.exit_code, 0);
  EXPECT_THAT(value.err, HasSubstr("expected on or off"));
}

// Mesa's software device, which has no matrix units.
RunResult WithMatrices(const std::string& value, const RunOptions& run = {}) {
  return WithOptions("cooperative_matrix: \"" + value + "\"", "llvmpipe", run);
}

TEST(Vulkan, MatrixUnitsThatADeviceLacks) {
  const std::string nv = "VK_NV_cooperative_matrix: it", khr = "VK_KHR_cooperative_matrix: it";
  const RunResult with_nv = WithMatrices("nv");
  EXPECT_EQ(with_nv.exit_code, 2);
  EXPECT_THAT(with_nv.err,
              HasSubstr("option cooperative_matrix is 'nv', but the device cannot use " + nv));
  EXPECT_THAT(with_nv.err, HasSubstr("leave the option out to use what the device has"));
  EXPECT_THAT(with_nv.err, Not(HasSubstr(khr)));
  const RunResult with_khr = WithMatrices("khr");
  EXPECT_EQ(with_khr.exit_code, 2);
  EXPECT_THAT(with_khr.err, HasSubstr("cannot use " + khr));
  EXPECT_THAT(with_khr.err, Not(HasSubstr(nv)));
  const RunResult on = WithMatrices("on");
  EXPECT_EQ(on.exit_code, 2);
  EXPECT_THAT(on.err, HasSubstr("option cooperative_matrix is 'on', but the device cannot use"));
  EXPECT_THAT(on.err, HasSubstr(nv));
  EXPECT_THAT(on.err, HasSubstr(khr));
  const RunResult bad = WithMatrices("yes");
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr("expected on, off, nv or khr"));
}

TEST(Vulkan, MatrixUnitsThatAreNotUsed) {
  const RunResult off = WithMatrices("off", {.environment = {"RULLAMA_LOG=info"}});
  EXPECT_EQ(off.exit_code, 0) << off.err;
  EXPECT_THAT(off.err, HasSubstr("matrix units: not used; the option cooperative_matrix is off"));
  const RunResult unset = WithOptions("", "llvmpipe", {.environment = {"RULLAMA_LOG=info"}});
  EXPECT_EQ(unset.exit_code, 0) << unset.err;
  EXPECT_THAT(unset.err, HasSubstr("matrix units: not used; VK_KHR_cooperative_matrix: it"));
  EXPECT_THAT(unset.err, HasSubstr("; VK_NV_cooperative_matrix: it"));
}

}  // namespace
}  // namespace rullama::cli_test
