// rullama-conformance from outside: it passes a plugin that keeps the contract, catches one that
// does not, and takes its manifest at its word.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "tests/cli/program.h"

namespace rullama::conformance {
namespace {

using cli_test::ReadFile;
using cli_test::RunResult;
using cli_test::TemporaryDirectory;
using cli_test::TemporaryFile;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kTestFailed = 7;
constexpr int kUsage = 2;

// wrong_plugin.cc with this fault, or without one.
RunResult RunWrong(const std::string& fault, std::vector<std::string> arguments) {
  cli_test::RunOptions options;
  if (!fault.empty()) options.environment.push_back("RULLAMA_WRONG=" + fault);
  arguments.insert(arguments.begin(), {"--plugin", RULLAMA_WRONG_PLUGIN});
  return cli_test::RunRullama(arguments, options);
}

struct Wrong {
  const char* fault;
  const char* test;  // that has to fail
};
void PrintTo(const Wrong& wrong, std::ostream* stream) { *stream << wrong.fault; }

class Catches : public ::testing::TestWithParam<Wrong> {};

TEST_P(Catches, TheFaultAndNotTheReference) {
  const auto& [fault, test] = GetParam();
  const RunResult good = RunWrong("", {"--filter", test});
  EXPECT_EQ(good.exit_code, 0) << good.out << good.err;
  EXPECT_THAT(good.out, HasSubstr("1 passed"));
  const RunResult bad = RunWrong(fault, {"--filter", test});
  EXPECT_EQ(bad.exit_code, kTestFailed) << bad.out << bad.err;
  EXPECT_THAT(bad.out, HasSubstr(std::string("[  FAILED  ] ") + test + "\n"));
}

INSTANTIATE_TEST_SUITE_P(
    Faults, Catches,
    ::testing::Values(
        Wrong{"any_major", "Contract.refuses_a_host_of_another_major"},
        Wrong{"options_ignored", "Contract.unknown_option_is_named"},
        Wrong{"text_not_terminated", "Contract.unknown_option_is_named"},
        Wrong{"any_size", "Buffer.too_large"}, Wrong{"offsets_rounded", "Buffer.parts"},
        Wrong{"state_not_zeroed", "Buffer.states_begin_as_zeros"},
        Wrong{"promise_broken", "Op.copy/f32_t7"}, Wrong{"element_not_written", "Op.copy/f32_t7"},
        Wrong{"writes_outside", "Op.copy/f32_t7"}, Wrong{"writes_input", "Op.copy/f32_t7"},
        Wrong{"not_deterministic", "Op.rms_norm/n17"},
        Wrong{"rows_of_first_step", "Replay.equals_a_fresh_plan_and_the_reference"},
        Wrong{"rows_of_first_step", "Replay.block_weights_equal_a_fresh_plan"},
        Wrong{"allocates_each_time", "Replay.counters_stay_flat"},
        Wrong{"observation_matters", "Observation.changes_nothing"},
        Wrong{"cancelled_for_ever", "Fault.cancelled_plan_works_again"}));

TEST(Conformance, PassesAPluginThatKeepsTheContract) {
  // Not everything: conformance_reference runs that on the same code.
  const RunResult run = RunWrong("", {"--filter", "Op.r*"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr(" 0 failed, 0 unsupported, 0 expected failure"));
}

TEST(Conformance, SaysHowToRepeatAFailure) {
  const std::string manifest = TemporaryFile("empty.json", "{}");
  const RunResult run = RunWrong("element_not_written",
                                 {"--filter", "Op.copy/*", "--seed", "77", "--manifest", manifest});
  EXPECT_THAT(run.out, HasSubstr("again: rullama-conformance --plugin " RULLAMA_WRONG_PLUGIN
                                 " --seed 77 --filter 'Op.copy/f32_t7' --manifest '" +
                                 manifest + "'\n"));
}

TEST(Conformance, WritesAReport) {
  const std::string report = TemporaryDirectory() / "report.json";
  EXPECT_EQ(RunWrong("writes_input", {"--filter", "Op.copy/f32_t*", "--json", report}).exit_code,
            kTestFailed);
  const auto json = nlohmann::json::parse(ReadFile(report));
  EXPECT_EQ(json["plugin"], "wrong");
  ASSERT_EQ(json["tests"].size(), 2U);
  EXPECT_EQ(json["tests"][0]["test"], "Op.copy/f32_t1");
  EXPECT_EQ(json["tests"][0]["status"], "failed");
  EXPECT_THAT(json["tests"][0]["text"].get<std::string>(), HasSubstr("input 'x' was written"));
}

// One entry about Op.copy/*, as `list` of the manifest.
RunResult RunWithEntry(const std::string& fault, const std::string& list,
                       const std::string& test = "Op.copy/*") {
  const nlohmann::json manifest = {{list, {{{"test", test}, {"reason", "for this test"}}}}};
  return RunWrong(fault, {"--filter", "Op.copy/f32_t7", "--manifest",
                          TemporaryFile("manifest.json", manifest.dump())});
}

TEST(Manifest, AnExpectedFailureIsNoFailure) {
  const RunResult run = RunWithEntry("writes_input", "expected_failure");
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_THAT(run.out, HasSubstr("1 expected failure"));
}

TEST(Manifest, AnExpectedFailureThatPassesIsOne) {
  const RunResult run = RunWithEntry("", "expected_failure");
  EXPECT_EQ(run.exit_code, kTestFailed);
  EXPECT_THAT(run.out, HasSubstr("the manifest expects a failure; remove the entry"));
}

TEST(Manifest, WhatIsSaidToBeUnsupportedMayNotRun) {
  const RunResult run = RunWithEntry("", "unsupported");
  EXPECT_EQ(run.exit_code, kTestFailed);
  EXPECT_THAT(run.out, HasSubstr("the manifest says it is unsupported, and the plugin runs it"));
}

TEST(Manifest, WhatIsRefusedAndNotSaidToBeFails) {
  const nlohmann::json manifest = {{"unsupported", nlohmann::json::array()}};
  const RunResult run = RunWrong("refuses_all", {"--filter", "Op.copy/f32_t7", "--manifest",
                                                 TemporaryFile("manifest.json", manifest.dump())});
  EXPECT_EQ(run.exit_code, kTestFailed) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("the manifest does not name it as unsupported"));
}

TEST(Manifest, AnEntryForNoTestIsAnError) {
  const RunResult run = RunWithEntry("", "unsupported", "Op.copi/*");
  EXPECT_EQ(run.exit_code, kUsage);
  EXPECT_THAT(run.err, HasSubstr("Op.copi/*"));
  EXPECT_THAT(run.out, Not(HasSubstr("passed")));
}

}  // namespace
}  // namespace rullama::conformance
