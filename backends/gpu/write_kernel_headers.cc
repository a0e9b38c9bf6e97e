// Writes what kernels in GLSL, or in CUDA C++, include of kernels.def:
// write_kernel_headers DIRECTORY [cuda].
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "backends/gpu/kernel_source.h"

namespace rullama::gpu {
namespace {

void Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) throw std::runtime_error("cannot write " + path);
}

// The numbers of types as `types`, and the header of each kernel NAME as `NAME`, with `ending`.
void WriteAll(const std::string& directory, const Dialect& dialect, std::string_view ending) {
  const auto path_of = [&](std::string_view name) {
    return std::string(directory).append("/").append(name).append(ending);
  };
  Write(path_of("types"), TypeNumbers(dialect));
  for (const Shader shader : AllShaders()) Write(path_of(NameOf(shader)), Header(shader, dialect));
}

}  // namespace
}  // namespace rullama::gpu

int main(int argc, char** argv) {
  using rullama::gpu::kCuda, rullama::gpu::kGlsl;
  const bool is_cuda = argc == 3 && std::string_view(argv[2]) == "cuda";
  if (argc != 2 && !is_cuda) {
    std::fputs("usage: write_kernel_headers DIRECTORY [cuda]\n", stderr);
    return 2;
  }
  try {
    rullama::gpu::WriteAll(argv[1], is_cuda ? kCuda : kGlsl, is_cuda ? ".args.cuh" : ".args.glsl");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "write_kernel_headers: %s\n", error.what());
    return 1;
  }
  return 0;
}
