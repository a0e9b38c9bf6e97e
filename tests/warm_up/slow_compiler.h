// What the layer of Vulkan and that of OpenCL do to each call of a compiler: a line in the file
// RULLAMA_TEST_COMPILED, and a wait of RULLAMA_TEST_COMPILE_MS milliseconds.
//
// Thread safety: any thread.
#pragma once

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

namespace rullama::slow_compiler {

inline void NoteAndWait(const std::string& what) {
  if (const char* file = std::getenv("RULLAMA_TEST_COMPILED")) {
    std::ofstream(file, std::ios::app) << what + "\n" << std::flush;
  }
  const char* wait = std::getenv("RULLAMA_TEST_COMPILE_MS");
  if (wait != nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(wait)));
}

}  // namespace rullama::slow_compiler
