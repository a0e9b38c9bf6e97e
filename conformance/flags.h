// The command line of rullama-conformance.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rullama::conformance {

struct Flags {
  std::string plugin;
  std::string manifest;
  std::string activations;  // overrides the manifest; may be empty
  std::string filter = "*";
  std::vector<std::string> skip;  // tests to leave out, as in `filter`
  std::string json;
  std::vector<std::string> options;
  uint32_t device = 0;
  uint64_t seed = 1;
  std::chrono::seconds timeout{60};  // of one test
  bool quick = false;
  bool list = false;
  bool matrix = false;
  bool verbose = false;

  // The command that repeats one test.
  [[nodiscard]] std::string Again(std::string_view test) const;
};

}  // namespace rullama::conformance
