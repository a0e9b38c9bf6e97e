// rullama-conformance: does a plugin keep the contract of rullama_abi.h and the numerics of
// docs/numerics.md? Every test that fails prints the seed and the command that repeats it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "conformance/case.h"
#include "conformance/flags.h"
#include "conformance/matrix.h"
#include "conformance/report.h"
#include "conformance/suite.h"
#include "conformance/supervisor.h"
#include "conformance/worker.h"
#include "core/plugin/call_guard.h"

namespace rullama::conformance {
namespace {

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

Result<std::vector<NamedTest>> ChosenTests(const Flags& flags, std::vector<NamedTest> tests) {
  const auto matching = [&](std::string_view glob) {
    return std::ranges::count_if(
        tests, [&](const NamedTest& test) { return MatchesGlob(glob, test.name); });
  };
  if (matching(flags.filter) == 0) {
    std::string hint;
    const std::string inside = fmt::format("*{}*", flags.filter);
    if (const auto count = matching(inside); count > 0) {
      hint = fmt::format("; '{}' matches {}", inside, count);
    }
    return MakeError(ErrorKind::kUsage, "conformance.filter",
                     "no test matches '{}'{}; --list shows all", flags.filter, hint);
  }
  for (const std::string& skip : flags.skip) {
    if (matching(skip) > 0) continue;
    return MakeError(ErrorKind::kUsage, "conformance.skip",
                     "no test matches '{}', which --skip names; --list shows all", skip);
  }
  std::erase_if(tests, [&](const NamedTest& test) {
    return (flags.quick && !test.quick) || !MatchesGlob(flags.filter, test.name) ||
           std::ranges::any_of(
               flags.skip, [&](const std::string& skip) { return MatchesGlob(skip, test.name); });
  });
  if (tests.empty()) {
    return MakeError(ErrorKind::kUsage, "conformance.skip", "{} out all tests that match '{}'",
                     flags.quick ? "--quick and --skip leave" : "--skip leaves", flags.filter);
  }
  return tests;
}

Result<int> PrintMatrix(const Flags& flags) {
  RL_ASSIGN_OR_RETURN(const Suite suite, OpenSuite(flags));
  RL_ASSIGN_OR_RETURN(const auto device, suite.Open());
  RL_ASSIGN_OR_RETURN(const std::string matrix, OpMatrix(suite, *device));
  fmt::print("{}", matrix);
  return 0;
}

Result<int> RunTests(const Flags& flags) {
  if (flags.matrix) return PrintMatrix(flags);
  RL_ASSIGN_OR_RETURN(const Manifest manifest, Manifest::Load(flags.manifest, flags.activations));
  std::vector<NamedTest> all = AllTests();
  RL_RETURN_IF_ERROR(CheckManifest(manifest, all));
  RL_ASSIGN_OR_RETURN(const std::vector<NamedTest> tests, ChosenTests(flags, std::move(all)));
  if (flags.list) {
    for (const NamedTest& test : tests) fmt::print("{}\n", test.name);
    return 0;
  }
  // Each line is out before the next test may end everything.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  Report report(flags, manifest);
  const Status status = Supervise(flags, tests, report);
  if (status) report.PrintSummary();
  RL_RETURN_IF_ERROR(report.Write());
  RL_RETURN_IF_ERROR(status);
  return report.failed() ? static_cast<int>(ErrorKind::kThreshold) : 0;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Tests a backend plugin of rullama: contract, memory, every op against the float64 "
      "reference.\nExit codes: 0 all passed, 7 a test failed, 2 usage, 3 the plugin cannot be "
      "used.\nTests run in a child process, so that a crash is a failure of one test "
      "(gdb: set follow-fork-mode child).");
  app.add_option("--plugin", flags.plugin, "The shared object, or `reference` for the built-in one")
      ->required();
  app.add_option("--plugin-option", flags.options, "KEY=VALUE for the device; may be repeated");
  app.add_option("--device", flags.device, "Index of the device")->capture_default_str();
  app.add_option("--filter", flags.filter, "Tests to run; * stands for any text")
      ->capture_default_str();
  app.add_option(
      "--skip", flags.skip,
      "Tests to leave out, as in --filter; may be repeated. Those named *_wide give large "
      "GPUs work for their largest tiles and are slow on other devices");
  app.add_flag("--quick", flags.quick,
               "Of the cases of each op, only one for each type of weights, or a few if it has no "
               "weights; all other tests. For software drivers, whose compilers take minutes "
               "for every case");
  app.add_option("--seed", flags.seed, "Seed of all data")->capture_default_str();
  app.add_option("--manifest", flags.manifest,
                 "JSON file with the tests that are unsupported or known to fail, and why");
  app.add_option("--activations", flags.activations,
                 "How the plugin treats activations, in place of what the manifest says: float, "
                 "int16, float16 or int8");
  app.add_option("--json", flags.json, "Write the results to this file");
  int64_t timeout = flags.timeout.count();
  app.add_option("--timeout", timeout, "Seconds after which a test that does not end is stopped")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_flag("--list", flags.list, "Only print the names of the tests");
  app.add_flag("--matrix", flags.matrix, "Only print which ops and types the plugin runs");
  app.add_flag("-v,--verbose", flags.verbose, "Print every test as it runs");
  CLI11_PARSE(app, argc, argv);
  flags.timeout = std::chrono::seconds(timeout);
  const Result<int> result = RunTests(flags);
  if (result) return *result;
  fmt::print(stderr, "rullama-conformance: error: {}\n", result.error().ToString());
  return static_cast<int>(result.error().kind);
}

}  // namespace

std::string Flags::Again(std::string_view test) const {
  std::string command =
      fmt::format("rullama-conformance --plugin {} --seed {} --filter '{}'", plugin, seed, test);
  // The manifest decides how close results have to be, so it is part of the command.
  if (!manifest.empty()) command += fmt::format(" --manifest '{}'", manifest);
  if (!activations.empty()) command += fmt::format(" --activations {}", activations);
  if (device != 0) command += fmt::format(" --device {}", device);
  for (const std::string& option : options) command += fmt::format(" --plugin-option '{}'", option);
  return command;
}

std::vector<NamedTest> AllTests() {
  std::vector<NamedTest> tests;
  AddContractTests(tests);
  AddProcessTests(tests);
  AddWeightTests(tests);
  AddBufferTests(tests);
  AddOpTests(tests);
  AddReplayTests(tests);
  AddTimesTests(tests);
  AddBatchTests(tests);
  AddTextTests(tests);
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
