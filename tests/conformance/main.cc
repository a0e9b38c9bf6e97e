// rullama-conformance: does a plugin keep the contract of rullama_abi.h and the numerics of
// docs/numerics.md? GoogleTest runs the tests; each prints the seed and the command that repeats it
// when it fails.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/plugin/call_guard.h"
#include "core/reference/reference_backend.h"
#include "tests/conformance/case.h"
#include "tests/conformance/matrix.h"
#include "tests/conformance/suite.h"

namespace rullama::conformance {
namespace {

struct Flags {
  std::string plugin;
  std::string manifest;
  std::string filter = "*";
  std::string json;
  std::vector<std::string> options;
  uint32_t device = 0;
  uint64_t seed = 1;
  bool list = false;
  bool matrix = false;
  bool verbose = false;
};

// One result of the report.
struct Outcome {
  std::string test, status, text;
};

class FunctionTest : public ::testing::Test {
 public:
  FunctionTest(const NamedTest& test, Suite& suite, Device& device, std::string replay,
               std::vector<Outcome>& outcomes)
      : test_(test),
        suite_(suite),
        device_(device),
        replay_(std::move(replay)),
        outcomes_(outcomes) {}

  void TestBody() override {
    const Status status = test_.run(suite_, device_);
    const bool unsupported = !status && status.error().id == kUnsupportedId;
    const auto* refused = FindEntry(suite_.manifest.unsupported, test_.name);
    const auto* known = FindEntry(suite_.manifest.expected_failure, test_.name);
    if (refused != nullptr && !unsupported) {
      return Fail("the manifest says it is unsupported, and the plugin runs it; remove the entry");
    }
    if (unsupported && refused == nullptr && suite_.manifest.names_all_unsupported) {
      return Fail(
          fmt::format("the plugin refuses it ({}), and the manifest does not name it as "
                      "unsupported; let the plugin run it or add an entry",
                      status.error().message));
    }
    if (unsupported) return Skip("unsupported", status.error().message);
    if (known != nullptr && status) {
      return Fail("passes, and the manifest expects a failure; remove the entry");
    }
    if (known != nullptr) return Skip("expected failure", known->reason);
    if (!status) return Fail(status.error().ToString());
    outcomes_.push_back({test_.name, "passed", ""});
  }

 private:
  void Fail(const std::string& text) {
    outcomes_.push_back({test_.name, "failed", text});
    ADD_FAILURE() << text << "\n  again: " << replay_;
  }
  void Skip(const char* status, const std::string& text) {
    outcomes_.push_back({test_.name, status, text});
    GTEST_SKIP() << status << ": " << text;
  }

  const NamedTest& test_;
  Suite& suite_;
  Device& device_;
  std::string replay_;
  std::vector<Outcome>& outcomes_;
};

// Failures and the summary only: the list of passed tests is long.
class QuietPrinter : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& part) override {
    if (part.failed()) fmt::print("{}\n", part.message());
  }
  void OnTestEnd(const ::testing::TestInfo& info) override {
    if (info.result()->Failed()) {
      fmt::print("[  FAILED  ] {}.{}\n", info.test_suite_name(), info.name());
    }
  }
};

Result<rl_plugin_query_fn> EntryPoint(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* symbol = library == nullptr ? nullptr : ::dlsym(library, RL_PLUGIN_QUERY_NAME);
  if (symbol == nullptr) {
    return MakeError(ErrorKind::kBackend, "plugin.load", "{}", ::dlerror());
  }
  return reinterpret_cast<rl_plugin_query_fn>(symbol);
}

Result<Suite> Open(const Flags& flags) {
  Suite suite;
  suite.seed = flags.seed;
  suite.device_index = flags.device;
  suite.cancelled = std::make_shared<std::atomic<bool>>(false);
  if (!flags.manifest.empty()) {
    RL_ASSIGN_OR_RETURN(suite.manifest, Manifest::Load(flags.manifest));
  }
  for (const std::string& option : flags.options) {
    const size_t equals = option.find('=');
    if (equals == std::string::npos) {
      return MakeError(ErrorKind::kUsage, "usage.option", "'{}' is no KEY=VALUE", option);
    }
    suite.options.emplace_back(option.substr(0, equals), option.substr(equals + 1));
  }
  HostOptions host;
  host.cancelled = suite.cancelled;
  host.logger = std::make_shared<spdlog::logger>("rullama",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  const auto shared = std::make_shared<PluginHost>(std::move(host));
  if (flags.plugin == "reference") {
    suite.query = ReferencePluginQuery;
    RL_ASSIGN_OR_RETURN(suite.plugin, Plugin::FromQuery(suite.query, "built in", shared));
  } else {
    RL_ASSIGN_OR_RETURN(suite.plugin, Plugin::Load(flags.plugin, shared));
    RL_ASSIGN_OR_RETURN(suite.query, EntryPoint(flags.plugin));
  }
  return suite;
}

// "Op.matmul/q4_k" is suite "Op", test "matmul/q4_k".
void Register(const NamedTest& test, const Flags& flags, Suite& suite, Device& device,
              std::vector<Outcome>& outcomes) {
  const size_t dot = test.name.find('.');
  std::string replay = fmt::format("rullama-conformance --plugin {} --seed {} --filter '{}'",
                                   flags.plugin, flags.seed, test.name);
  // The manifest decides how close results have to be, so it is part of what is repeated.
  if (!flags.manifest.empty()) replay += fmt::format(" --manifest '{}'", flags.manifest);
  if (flags.device != 0) replay += fmt::format(" --device {}", flags.device);
  for (const std::string& option : flags.options) {
    replay += fmt::format(" --plugin-option '{}'", option);
  }
  ::testing::RegisterTest(test.name.substr(0, dot).c_str(), test.name.substr(dot + 1).c_str(),
                          nullptr, nullptr, __FILE__, __LINE__,
                          [&test, &suite, &device, &outcomes, replay]() -> ::testing::Test* {
                            return new FunctionTest(test, suite, device, replay, outcomes);
                          });
}

Status WriteReport(const Flags& flags, const Suite& suite, const std::vector<Outcome>& outcomes) {
  nlohmann::json report = {{"plugin", suite.plugin->name()},
                           {"version", suite.plugin->version()},
                           {"seed", flags.seed},
                           {"tests", nlohmann::json::array()}};
  for (const Outcome& outcome : outcomes) {
    nlohmann::json row = {{"test", outcome.test}, {"status", outcome.status}};
    if (!outcome.text.empty()) row["text"] = outcome.text;
    report["tests"].push_back(std::move(row));
  }
  std::ofstream file(flags.json);
  file << report.dump(1) << "\n";
  file.close();
  if (file) return OkStatus();
  return MakeError(ErrorKind::kIo, "conformance.report", "cannot write '{}'", flags.json);
}

void PrintSummary(const std::vector<Outcome>& outcomes) {
  std::map<std::string, size_t> counts;
  for (const Outcome& outcome : outcomes) ++counts[outcome.status];
  std::string text;
  for (const char* status : {"passed", "failed", "unsupported", "expected failure"}) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", counts[status], status);
  }
  fmt::print("{}\n", text);
}

// An entry that names no test, of a renamed one or with a slip of the pen, would excuse nothing.
Status CheckManifest(const Manifest& manifest, const std::vector<NamedTest>& tests) {
  for (const auto* entries : {&manifest.unsupported, &manifest.expected_failure}) {
    for (const Manifest::Entry& entry : *entries) {
      const bool used = std::ranges::any_of(
          tests, [&](const NamedTest& test) { return MatchesGlob(entry.test, test.name); });
      if (used) continue;
      return MakeError(ErrorKind::kUsage, "conformance.manifest",
                       "the manifest names '{}', and no test is called so; --list shows all",
                       entry.test);
    }
  }
  return OkStatus();
}

Result<int> RunTests(const Flags& flags, int argc, char** argv) {
  RL_ASSIGN_OR_RETURN(Suite suite, Open(flags));
  std::vector<NamedTest> tests = AllTests();
  RL_RETURN_IF_ERROR(CheckManifest(suite.manifest, tests));
  std::erase_if(tests,
                [&](const NamedTest& test) { return !MatchesGlob(flags.filter, test.name); });
  if (flags.list) {
    for (const NamedTest& test : tests) fmt::print("{}\n", test.name);
    return 0;
  }
  if (tests.empty()) {
    return MakeError(ErrorKind::kUsage, "conformance.filter",
                     "no test matches '{}'; --list shows all", flags.filter);
  }
  RL_ASSIGN_OR_RETURN(const auto device, suite.Open());
  if (flags.matrix) {
    RL_ASSIGN_OR_RETURN(const std::string matrix, OpMatrix(suite, *device));
    fmt::print("{}", matrix);
    return 0;
  }
  fmt::print("{} {} on {}, {} tests, seed {}\n", suite.plugin->name(), suite.plugin->version(),
             device->description().name, tests.size(), flags.seed);
  std::vector<Outcome> outcomes;
  for (const NamedTest& test : tests) Register(test, flags, suite, *device, outcomes);
  ::testing::InitGoogleTest(&argc, argv);
  if (!flags.verbose) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new QuietPrinter);
  }
  const int failed = RUN_ALL_TESTS();
  PrintSummary(outcomes);
  if (!flags.json.empty()) RL_RETURN_IF_ERROR(WriteReport(flags, suite, outcomes));
  return failed == 0 ? 0 : static_cast<int>(ErrorKind::kThreshold);
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Tests a backend plugin of rullama: contract, memory, every op against the float64 "
      "reference.\nExit codes: 0 all passed, 7 a test failed, 2 usage, 3 the plugin cannot be "
      "used.");
  app.add_option("--plugin", flags.plugin, "The shared object, or `reference` for the built-in one")
      ->required();
  app.add_option("--plugin-option", flags.options, "KEY=VALUE for the device; may be repeated");
  app.add_option("--device", flags.device, "Index of the device")->capture_default_str();
  app.add_option("--filter", flags.filter, "Tests to run; * stands for any text")
      ->capture_default_str();
  app.add_option("--seed", flags.seed, "Seed of all data")->capture_default_str();
  app.add_option("--manifest", flags.manifest,
                 "JSON file with what is unsupported or known to fail, and why");
  app.add_option("--json", flags.json, "Write the results to this file");
  app.add_flag("--list", flags.list, "Only print the names of the tests");
  app.add_flag("--matrix", flags.matrix, "Only print which ops and types the plugin runs");
  app.add_flag("-v,--verbose", flags.verbose, "Print every test as it runs");
  CLI11_PARSE(app, argc, argv);
  const Result<int> result = RunTests(flags, argc, argv);
  if (result) return *result;
  fmt::print(stderr, "rullama-conformance: error: {}\n", result.error().ToString());
  return static_cast<int>(result.error().kind);
}

}  // namespace

std::vector<NamedTest> AllTests() {
  std::vector<NamedTest> tests;
  AddContractTests(tests);
  AddBufferTests(tests);
  AddOpTests(tests);
  AddReplayTests(tests);
  AddFaultTests(tests);
  return tests;
}

uint64_t SeedOf(const Suite& suite, std::string_view name) {
  // FNV-1a.
  uint64_t hash = 0xCBF29CE484222325U ^ suite.seed;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return hash;
}

}  // namespace rullama::conformance

int main(int argc, char** argv) {
  rullama::InstallTerminateHandler();
  return rullama::conformance::Main(argc, argv);
}
