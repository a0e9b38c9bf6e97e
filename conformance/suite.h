// The suite holds the tests by name and the plugin they run on. A test is a function: its Status
// describes the fault; the id kUnsupported says that the plugin does not support the test.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "conformance/manifest.h"
#include "core/base/error_of.h"
#include "core/plugin/device.h"

namespace rullama::conformance {

inline constexpr std::string_view kUnsupportedId = "conformance.unsupported";
inline tl::unexpected<Error> Unsupported(std::string reason) {
  return tl::unexpected(Error{ErrorKind::kBackend, std::string(kUnsupportedId), std::move(reason)});
}
using Failed = ErrorOf<ErrorKind::kThreshold, "conformance.failed">;

struct Suite {
  std::shared_ptr<Plugin> plugin;
  rl_plugin_query_fn query = nullptr;  // its entry point, for tests below the C++ classes
  uint32_t device_index = 0;
  std::vector<std::pair<std::string, std::string>> options;
  std::shared_ptr<std::atomic<bool>> cancelled;  // what the plugin sees as the user's wish
  uint64_t seed = 1;
  Manifest manifest;
  std::string written_while_opening;  // to standard output, by the plugin
  std::string changed_while_opening;  // of the process's state (process_state.h), by the plugin

  [[nodiscard]] Result<std::unique_ptr<Device>> Open() const {
    return plugin->Open(device_index, options);
  }
};

struct NamedTest {
  std::string name;  // "Op.matmul/q4_k_k256_n31_t7"
  std::function<Status(Suite&, Device&)> run;
  // Whether --quick runs it.
  bool quick = true;
};

std::vector<NamedTest> AllTests();
void AddOpTests(std::vector<NamedTest>& tests);
void AddContractTests(std::vector<NamedTest>& tests);
void AddProcessTests(std::vector<NamedTest>& tests);
void AddWeightTests(std::vector<NamedTest>& tests);
void AddBufferTests(std::vector<NamedTest>& tests);
void AddReplayTests(std::vector<NamedTest>& tests);
void AddTimesTests(std::vector<NamedTest>& tests);
void AddBatchTests(std::vector<NamedTest>& tests);
void AddTextTests(std::vector<NamedTest>& tests);
void AddFaultTests(std::vector<NamedTest>& tests);

// The seed of a case: of the run and of its name, so that a filter does not change it.
uint64_t SeedOf(const Suite& suite, std::string_view name);

}  // namespace rullama::conformance
