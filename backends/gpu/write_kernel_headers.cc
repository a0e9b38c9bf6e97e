// Writes what shaders include of kernels.def: write_kernel_headers DIRECTORY.
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>

#include "backends/gpu/kernel_source.h"

namespace rullama::gpu {
namespace {

void Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) throw std::runtime_error("cannot write " + path);
}

}  // namespace
}  // namespace rullama::gpu

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: write_kernel_headers DIRECTORY\n", stderr);
    return 2;
  }
  try {
    const std::string directory = argv[1];
    rullama::gpu::Write(directory + "/types.glsl", rullama::gpu::TypeNumbers(rullama::gpu::kGlsl));
    for (const rullama::gpu::Shader shader : rullama::gpu::AllShaders()) {
      std::string path = directory;
      path.append("/").append(rullama::gpu::NameOf(shader)).append(".args.glsl");
      rullama::gpu::Write(path, rullama::gpu::Header(shader, rullama::gpu::kGlsl));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "write_kernel_headers: %s\n", error.what());
    return 1;
  }
  return 0;
}
