// The kernels' source compiles by the rules of NVIDIA's compiler, which takes no pointer to const,
// or to memory of another kind, for another one: PoCL, on which kernels are tested, only warns.
// clang compiles each kernel in each of its forms, with several values of its constants.
#include "backends/opencl/sources.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rullama/sdk/dtype.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/gpu/kernel_source.h"

namespace rullama::opencl {
namespace {

using ::testing::HasSubstr;

// The values of a kernel's constants: those before specialisation, with 1 in place of 0, which is
// off; and those before specialisation with weights in blocks.
enum class Values : uint8_t { kDefault, kOn, kBlocks };

std::string ValueOf(const gpu::SpecConstant& constant, Values values) {
  if (values == Values::kBlocks && constant.name == "kType") {
    return std::to_string(static_cast<uint32_t>(DType::kQ4_K));
  }
  if (constant.type == gpu::SpecConstant::Type::kF32) {
    return std::to_string(std::bit_cast<uint32_t>(std::stof(constant.value)));
  }
  return values == Values::kOn && constant.value == "0" ? "1" : constant.value;
}

using Words = std::vector<std::string>;

// -DC1=... for all constants of a kernel.
Words Constants(gpu::Shader shader, Values values) {
  Words out;
  for (const gpu::SpecConstant& constant : gpu::ConstantsOf(shader)) {
    out.push_back("-DC" + std::to_string(out.size() + 1) + "=" + ValueOf(constant, values) + "u");
  }
  return out;
}

// Runs clang on OpenCL C for NVIDIA's devices. Its exit code; what it says is in a file.
int RunClang(const Words& options, const std::string& log) {
  Words words = {"clang", "-cc1", "-triple",       "nvptx64-nvidia-nvcl",
                 "-x",    "cl",   "-cl-std=CL1.2", "-finclude-default-header"};
  words.insert(words.end(), options.begin(), options.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                   0600);
  pid_t child = 0;
  const int started =
      posix_spawnp(&child, arguments[0], &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  int status = 0;
  if (started != 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A file of this process.
std::string PathOf(const std::string& name) {
  return ::testing::TempDir() + "/opencl_sources_" + std::to_string(getpid()) + "_" + name;
}

// OpenCL's own functions, which clang reads once for all kernels.
std::string CompiledFunctions() {
  const std::string source = PathOf("functions.cl");
  std::string compiled = source + ".pch";
  std::ofstream(source) << "\n";
  EXPECT_EQ(RunClang({"-emit-pch", "-o", compiled, source}, source + ".log"), 0)
      << "no clang, which tools/install-deps.sh --tests installs?";
  return compiled;
}

// The messages of clang for a source; empty if it compiles.
std::string ErrorsOf(const std::string& source, const Words& options) {
  static const std::string kFunctions = CompiledFunctions();
  const std::string file = PathOf("kernel.cl"), log = file + ".log";
  std::ofstream(file) << source;
  // NVIDIA's compiler knows `asm` in OpenCL C.
  Words words = {"-include-pch",
                 kFunctions,
                 "-Dasm=__asm__",
                 "-fsyntax-only",
                 "-Wno-everything",
                 "-Werror=incompatible-pointer-types",
                 "-Werror=incompatible-pointer-types-discards-qualifiers",
                 "-Werror=implicit-function-declaration",
                 "-Werror=int-conversion",
                 "-Werror=return-type",
                 "-Werror=variadic-macros"};
  words.insert(words.end(), options.begin(), options.end());
  words.push_back(file);
  if (RunClang(words, log) == 0) return "";
  std::ostringstream text;
  text << std::ifstream(log).rdbuf();
  return "clang says: " + text.str();
}

bool HasSource(const std::string& file) {
  try {
    return !SourceOf(file).empty();
  } catch (const std::logic_error&) {
    return false;  // a kernel for matrix units or subgroups of Vulkan
  }
}

class OpenClFormTest : public ::testing::TestWithParam<Words> {};

TEST_P(OpenClFormTest, AllKernelsCompileStrictly) {
  size_t kernels = 0;
  for (const gpu::Shader shader : gpu::AllShaders()) {
    const std::string file = std::string(gpu::NameOf(shader)) + ".cl";
    if (!HasSource(file)) continue;
    const std::string source = SourceOf(file);
    std::vector<Values> all = {Values::kDefault, Values::kOn};
    if (source.find("UnpackBlocks") != std::string::npos) all.push_back(Values::kBlocks);
    for (const Values values : all) {
      Words options = Constants(shader, values);
      options.insert(options.end(), GetParam().begin(), GetParam().end());
      EXPECT_EQ(ErrorsOf(source, options), "") << file;
    }
    ++kernels;
  }
  EXPECT_GT(kernels, 40U);
}

INSTANTIATE_TEST_SUITE_P(Forms, OpenClFormTest,
                         ::testing::Values(Words{"-DCPU", "-DTHREADS=1"},
                                           Words{"-DGENERIC", "-DTHREADS=256"},
                                           Words{"-DNVIDIA", "-DTHREADS=256"}));

TEST(OpenClSources, WhatNvidiaRejectsIsAnError) {
  const std::string function = "void Set(__global float* x) { *x = 0; }\n";
  const std::string kernel = function + "__kernel void k(__global float* x) { Set(x); }\n";
  EXPECT_EQ(ErrorsOf(kernel, {}), "");
  EXPECT_THAT(ErrorsOf(function + "__kernel void k(__global const float* x) { Set(x); }\n", {}),
              HasSubstr("discards qualifiers"));
  EXPECT_THAT(ErrorsOf(function + "__kernel void k(__local float* x) { Set(x); }\n", {}),
              HasSubstr("address space"));
}

}  // namespace
}  // namespace rullama::opencl
