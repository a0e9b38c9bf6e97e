// The program on the first OpenCL device there is: what it samples, options that make no sense, and
// machines without a driver.
#include "tests/cli/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

namespace rullama::cli_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

RunResult Sample(const std::string& model, const std::string& backend, const std::string& seed) {
  return RunRullama({"-m", model, "--backend", backend, "--device", "0", "--raw", "-p",
                     "The prince looked at", "-n", "24", "--seed", seed, "--temp", "1.0", "--top-k",
                     "40", "--top-p", "0.95"});
}

// Ties and random numbers are defined to the last rule, and logits agree to more digits than a draw
// looks at.
TEST(OpenCl, TheSameSeedGivesTheTextOfTheCpu) {
  for (const auto& [model, seed] : {std::pair(TinyModel(), "7"), std::pair(TinyMoeModel(), "8")}) {
    const RunResult cpu = Sample(model, "cpu", seed);
    const RunResult opencl = Sample(model, "opencl", seed);
    EXPECT_EQ(opencl.exit_code, 0) << opencl.err;
    EXPECT_GT(cpu.out.size(), 20U);
    EXPECT_EQ(opencl.out, cpu.out) << model << ", seed " << seed;
  }
}

// PoCL and no other driver, as its package installs it, so the tests of CPUs also run where there
// is a GPU.
RunOptions PoclAlone() {
  RunOptions options;
  options.environment = {"OCL_ICD_VENDORS=/etc/OpenCL/vendors/pocl.icd"};
  return options;
}

RunResult WithOptions(const std::string& options) {
  const auto config = TemporaryFile(
      "opencl.yaml", "backend: {name: opencl, device: \"0\", options: {" + options + "}}\n");
  return RunRullama({"-m", TinyModel(), "--config", config, "--raw", "-p", "The", "-n", "1"},
                    PoclAlone());
}

TEST(OpenCl, OptionsItDoesNotKnow) {
  const RunResult unknown = WithOptions("kernel: cpu");
  EXPECT_NE(unknown.exit_code, 0);
  EXPECT_THAT(unknown.err, HasSubstr("unknown option 'kernel'"));
  EXPECT_THAT(unknown.err, HasSubstr("kernels, cache, tensor_cores, precise_products, profile"));
  const RunResult value = WithOptions("kernels: fast");
  EXPECT_NE(value.exit_code, 0);
  EXPECT_THAT(value.err, HasSubstr("expected cpu, generic or nvidia"));
  const RunResult precise = WithOptions("precise_products: f32");
  EXPECT_NE(precise.exit_code, 0);
  EXPECT_THAT(precise.err, HasSubstr("option precise_products is 'f32', expected on or off"));
}

TEST(OpenCl, WhatTheDeviceCannotHave) {
  const RunResult kernels = WithOptions("kernels: nvidia");
  EXPECT_NE(kernels.exit_code, 0);
  EXPECT_THAT(kernels.err, HasSubstr("option kernels is 'nvidia', but the device is"));
  const RunResult cores = WithOptions("tensor_cores: \"on\"");
  EXPECT_NE(cores.exit_code, 0);
  EXPECT_THAT(cores.err, HasSubstr("option tensor_cores is 'on', but the device has no"));
}

RunResult InPieces(const std::string& model, const std::string& bytes) {
  const auto config = TemporaryFile(
      "pieces.yaml",
      "backend: {name: opencl, device: \"0\", options: {weight_piece: \"" + bytes + "\"}}\n");
  return RunRullama(
      {"-m", model, "--config", config, "--raw", "-p", "The prince", "-n", "16", "--temp", "0"},
      PoclAlone());
}

// Pieces of 30,000 bytes split all matrices of the tiny model except those of keys and values.
TEST(OpenCl, WeightsInPieces) {
  const RunResult pieces = InPieces(TinyModel(), "30000");
  const RunResult whole = InPieces(TinyModel(), "1000000000");
  EXPECT_EQ(pieces.exit_code, 0) << pieces.err;
  EXPECT_GT(whole.out.size(), 20U);
  EXPECT_EQ(pieces.out, whole.out);
}

TEST(OpenCl, ExpertsHaveToBeInOnePiece) {
  const RunResult result = InPieces(TinyMoeModel(), "30000");
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("one allocation has at most"), HasSubstr("placement.host_ops")));
  const RunResult least = InPieces(TinyModel(), "100");
  EXPECT_NE(least.exit_code, 0);
  EXPECT_THAT(least.err, HasSubstr("weight_piece is '100', expected bytes from 4096 to"));
}

TEST(OpenCl, OptionsThatContradictEachOther) {
  const RunResult result = WithOptions("kernels: generic, tensor_cores: \"on\"");
  EXPECT_NE(result.exit_code, 0);
  // If the device has no tensor cores, that is reported first.
  EXPECT_THAT(result.err, AnyOf(HasSubstr("but needs kernels to be 'nvidia'"),
                                HasSubstr("but the device has no tensor cores")));
}

// A loader without drivers, and a driver that is not there: no device, said why, and no other
// backend.
TEST(OpenCl, NoDriver) {
  const auto folder = TemporaryDirectory() / "vendors";
  std::filesystem::create_directories(folder);
  for (const std::string& vendors : {std::string("/nonexistent"), folder.string()}) {
    RunOptions options;
    options.environment = {"OCL_ICD_VENDORS=" + vendors};
    const RunResult result = RunRullama(
        {"-m", TinyModel(), "--backend", "opencl", "--raw", "-p", "The", "-n", "1"}, options);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("no OpenCL driver is installed"));
  }
}

// PoCL trusts its cache and aborts, or runs into pages that are not there. That is its fault, but
// the program says which folder to delete.
TEST(OpenCl, ADamagedCacheOfTheDriverIsNamed) {
  namespace fs = std::filesystem;
  const fs::path cache = TemporaryDirectory() / "pocl_cache";
  fs::create_directories(cache);
  RunOptions options = PoclAlone();
  options.environment.push_back("POCL_CACHE_DIR=" + cache.string());
  const std::vector<std::string> words = {"-m",       TinyModel(), "--backend", "opencl",
                                          "--device", "0",         "--raw",     "--greedy",
                                          "-p",       "The",       "-n",        "1"};
  const RunResult whole = RunRullama(words, options);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  size_t kernels = 0;
  for (const auto& entry : fs::recursive_directory_iterator(cache)) {
    if (entry.path().extension() != ".so") continue;
    fs::resize_file(entry.path(), 0);
    ++kernels;
  }
  ASSERT_GT(kernels, 0U);
  const RunResult damaged = RunRullama(words, options);
  if (damaged.exit_code == 0) {
    EXPECT_EQ(damaged.out, whole.out);  // a version that compiles again
    return;
  }
  EXPECT_THAT(damaged.err, AllOf(HasSubstr(cache.string()), HasSubstr("[program.crash]"),
                                 HasSubstr("backend 'opencl'")));
}

TEST(OpenCl, CpuDevicesOnlyOnRequest) {
  const RunResult result = RunRullama(
      {"-m", TinyModel(), "--backend", "opencl", "--raw", "-p", "The", "-n", "1"}, PoclAlone());
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("opencl"), HasSubstr("--device")));
}

}  // namespace
}  // namespace rullama::cli_test
