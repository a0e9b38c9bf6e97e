// The kernels' source compiles by the rules of NVIDIA's compiler, which takes no pointer to const,
// or to memory of another kind, for another one: PoCL, on which kernels are tested, only warns.
// clang compiles each kernel in each of its forms, with the constants that it has before
// specialisation.
#include "backends/opencl/sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rullama/sdk/dtype.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/gpu/kernel_source.h"

namespace rullama::opencl {
namespace {

using ::testing::HasSubstr;

// -DC1=... for all constants of a kernel; `type`, if it is given, is that of its weights.
std::string Constants(gpu::Shader shader, std::optional<DType> type = std::nullopt) {
  std::string out;
  size_t id = 1;
  for (const gpu::SpecConstant& constant : gpu::ConstantsOf(shader)) {
    const bool is_float = constant.type == gpu::SpecConstant::Type::kF32;
    const std::string bits =
        type && constant.name == "kType" ? std::to_string(static_cast<uint32_t>(*type))
        : is_float ? std::to_string(std::bit_cast<uint32_t>(std::stof(constant.value)))
                   : constant.value;
    out += " -DC" + std::to_string(id++) + "=" + bits + "u";
  }
  return out;
}

// What clang says of a source; empty if it compiles.
std::string ErrorsOf(const std::string& source, const std::string& options) {
  const std::string file = ::testing::TempDir() + "/kernel.cl", log = file + ".log";
  std::ofstream(file) << source;
  // NVIDIA's compiler knows `asm` in OpenCL C.
  const std::string command =
      "clang -cc1 -triple nvptx64-nvidia-nvcl -x cl -cl-std=CL1.2 -finclude-default-header"
      " -Dasm=__asm__ -fsyntax-only -Wno-everything"
      " -Werror=incompatible-pointer-types -Werror=incompatible-pointer-types-discards-qualifiers"
      " -Werror=implicit-function-declaration -Werror=int-conversion -Werror=return-type " +
      options + " '" + file + "' >'" + log + "' 2>&1";
  if (std::system(command.c_str()) == 0) return "";
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

class OpenClFormTest : public ::testing::TestWithParam<std::string> {};

TEST_P(OpenClFormTest, AllKernelsCompileStrictly) {
  size_t kernels = 0;
  for (const gpu::Shader shader : gpu::AllShaders()) {
    const std::string file = std::string(gpu::NameOf(shader)) + ".cl";
    if (!HasSource(file)) continue;
    const std::string source = SourceOf(file);
    EXPECT_EQ(ErrorsOf(source, GetParam() + Constants(shader)), "") << file;
    ++kernels;
    if (source.find("UnpackBlocks") == std::string::npos) continue;
    EXPECT_EQ(ErrorsOf(source, GetParam() + Constants(shader, DType::kQ4_K)), "") << file;
  }
  EXPECT_GT(kernels, 40U);
}

INSTANTIATE_TEST_SUITE_P(Forms, OpenClFormTest,
                         ::testing::Values("-DCPU -DTHREADS=1", "-DGENERIC -DTHREADS=256",
                                           "-DNVIDIA -DTHREADS=256"));

TEST(OpenClSources, WhatNvidiaRejectsIsAnError) {
  const std::string function = "void Set(__global float* x) { *x = 0; }\n";
  const std::string kernel = function + "__kernel void k(__global float* x) { Set(x); }\n";
  EXPECT_EQ(ErrorsOf(kernel, ""), "");
  EXPECT_THAT(ErrorsOf(function + "__kernel void k(__global const float* x) { Set(x); }\n", ""),
              HasSubstr("discards qualifiers"));
  EXPECT_THAT(ErrorsOf(function + "__kernel void k(__local float* x) { Set(x); }\n", ""),
              HasSubstr("address space"));
}

}  // namespace
}  // namespace rullama::opencl
