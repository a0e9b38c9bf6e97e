// The kernels' source compiles by the rules of NVIDIA's compiler, which takes no pointer to const,
// or to memory of another kind, for another one: PoCL, on which kernels are tested, only warns.
// clang compiles each kernel in each of its forms, with several values of its constants.
#include "backends/opencl/sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rullama/sdk/dtype.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
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

// -DC1=... for all constants of a kernel.
std::string Constants(gpu::Shader shader, Values values) {
  std::string out;
  size_t id = 1;
  for (const gpu::SpecConstant& constant : gpu::ConstantsOf(shader)) {
    out += " -DC" + std::to_string(id++) + "=" + ValueOf(constant, values) + "u";
  }
  return out;
}

constexpr char kClang[] =
    "clang -cc1 -triple nvptx64-nvidia-nvcl -x cl -cl-std=CL1.2 -finclude-default-header ";

// OpenCL's own functions, which clang reads once for all kernels.
const std::string& Functions() {
  static const std::string file = [] {
    const std::string source = ::testing::TempDir() + "/functions.cl", compiled = source + ".pch";
    std::ofstream(source) << "\n";
    const std::string command = kClang + ("-emit-pch -o '" + compiled + "' '" + source + "'");
    EXPECT_EQ(std::system(command.c_str()), 0);
    return compiled;
  }();
  return file;
}

// What clang says of a source; empty if it compiles.
std::string ErrorsOf(const std::string& source, const std::string& options) {
  const std::string file = ::testing::TempDir() + "/kernel.cl", log = file + ".log";
  std::ofstream(file) << source;
  // NVIDIA's compiler knows `asm` in OpenCL C.
  const std::string command =
      kClang + ("-include-pch '" + Functions() + "'") +
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
    std::vector<Values> all = {Values::kDefault, Values::kOn};
    if (source.find("UnpackBlocks") != std::string::npos) all.push_back(Values::kBlocks);
    for (const Values values : all) {
      EXPECT_EQ(ErrorsOf(source, GetParam() + Constants(shader, values)), "") << file;
    }
    ++kernels;
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
