// rullama-conformance from outside: it passes a plugin that keeps the contract, catches one that
// does not, and takes its manifest at its word.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <sstream>

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
  // A crash, and an allocation that fails, look as they do without a sanitizer.
  options.environment.push_back("ASAN_OPTIONS=handle_segv=0:allocator_may_return_null=1");
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
        Wrong{"in_place_and_copied", "Op.matmul/q8_0_k32_n67_t7"},
        Wrong{"prints", "Op.reshape/f32_t7"},
        Wrong{"prints_at_open", "Contract.stdout_is_left_alone"},
        Wrong{"ignores_hangups_from_open", "Contract.process_is_left_alone"},
        Wrong{"last_weight_wins", "Contract.weights_are_kept"},
        Wrong{"places_of_weights_mixed_up", "Contract.weights_are_kept"},
        Wrong{"no_weights", "Contract.weights_come_and_go"},
        Wrong{"crashes_as_it_describes", "Contract.graph_is_described"},
        Wrong{"reads_beyond_weights", "Op.matmul/q8_0_k32_n67_t7"},
        Wrong{"writes_weights", "Op.matmul/q8_0_k32_n67_t7"},
        Wrong{"reads_beyond_inputs", "Op.copy/f32_t7"}, Wrong{"leaks", "Replay.memory_stays_flat"},
        Wrong{"rounds_upward", "Op.copy/f32_t7"}, Wrong{"ignores_interrupts", "Op.copy/f32_t7"},
        Wrong{"changes_directory", "Op.copy/f32_t7"}, Wrong{"closes_stdin", "Op.copy/f32_t7"},
        Wrong{"sets_the_locale", "Op.copy/f32_t7"}, Wrong{"blocks_a_signal", "Op.copy/f32_t7"},
        Wrong{"crashes", "Op.reshape/f32_t7"}, Wrong{"exits", "Op.reshape/f32_t7"},
        Wrong{"allocates_each_time", "Replay.counters_stay_flat"},
        Wrong{"observation_matters", "Observation.keeps_results"},
        Wrong{"time_before_execution", "Times.lie_inside_their_execution"},
        Wrong{"time_after_execution", "Times.lie_inside_their_execution"},
        Wrong{"time_of_no_op", "Times.lie_inside_their_execution"},
        Wrong{"op_without_time", "Times.lie_inside_their_execution"},
        Wrong{"times_unasked", "Times.only_on_request"},
        Wrong{"neighbours_matter", "Batch.attention/f32_16_slots"},
        Wrong{"neighbours_matter", "Texts.layer/q8_0"},
        Wrong{"cancelled_for_ever", "Fault.cancelled_plan_works_again"}));

TEST(Conformance, PassesAPluginThatKeepsTheContract) {
  // A few tests are enough here: conformance_reference runs all of them on the same code.
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

TEST(Conformance, NamesTheActivationsWithWhichAResultWouldPass) {
  const std::string test = "Op.matmul/q8_0_k32_n67_t7", advice = "passes with `--activations";
  const RunResult rounded = RunWrong("rounds_activations", {"--filter", test});
  EXPECT_EQ(rounded.exit_code, kTestFailed);
  EXPECT_THAT(rounded.out, HasSubstr(advice + " float16`"));
  EXPECT_EQ(
      RunWrong("rounds_activations", {"--filter", test, "--activations", "float16"}).exit_code, 0);
  EXPECT_THAT(RunWrong("element_not_written", {"--filter", test}).out, Not(HasSubstr(advice)));
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

TEST(Conformance, NamesTheTestFirst) {
  const RunResult run = RunWrong("writes_input", {"--filter", "Op.copy/f32_t7"});
  EXPECT_THAT(run.out, HasSubstr("\n[  FAILED  ] Op.copy/f32_t7\n  input 'x' was written"));
  EXPECT_THAT(run.out, Not(HasSubstr("Failed\n")));
}

TEST(Conformance, SaysWhereInTheShapeAnElementIs) {
  const RunResult run = RunWrong("element_not_written", {"--filter", "Op.copy/f32_t7"});
  EXPECT_THAT(run.out, HasSubstr("'copy.1': element [0, 0] of [7, 37] is "));
}

TEST(Conformance, TestsHaveNamesOfTheirOwn) {
  std::istringstream list(RunWrong("", {"--list"}).out);
  std::set<std::string> names;
  for (std::string name; std::getline(list, name);) {
    EXPECT_TRUE(names.insert(name).second) << name << " is there twice";
  }
  EXPECT_GT(names.size(), 1000U);
}

TEST(Conformance, AFilterWithoutStarsGetsAHint) {
  const RunResult run = RunWrong("", {"--filter", "reshape"});
  EXPECT_EQ(run.exit_code, kUsage);
  EXPECT_THAT(run.err, HasSubstr("no test matches 'reshape'; '*reshape*' matches "));
}

TEST(Conformance, SkippedTestsDoNotRun) {
  const std::string report = TemporaryDirectory() / "skipped.json";
  const RunResult run = RunWrong(
      "element_not_written", {"--filter", "Op.copy/f32_t*", "--skip", "*_t7", "--json", report});
  const auto json = nlohmann::json::parse(ReadFile(report));
  ASSERT_EQ(json["tests"].size(), 1U) << run.out;
  EXPECT_EQ(json["tests"][0]["test"], "Op.copy/f32_t1");
}

TEST(Conformance, WhatIsSkippedHasToExist) {
  const RunResult run = RunWrong("", {"--filter", "Op.copy/*", "--skip", "*_narrow"});
  EXPECT_EQ(run.exit_code, kUsage);
  EXPECT_THAT(run.err, HasSubstr("no test matches '*_narrow', which --skip names"));
  EXPECT_EQ(RunWrong("", {"--list", "--filter", "Op.*", "--skip", "Op.*"}).exit_code, kUsage);
}

// The tests of reshape end the process; those before and after them are run, and reported.
class Ends : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(Ends, ATestAndNotTheRun) {
  const auto& [fault, words] = GetParam();
  const std::string report = TemporaryDirectory() / "crash.json";
  const RunResult run =
      RunWrong(fault, {"--filter", "Op.re*", "--seed", "5", "--timeout", "300", "--json", report});
  EXPECT_EQ(run.exit_code, kTestFailed) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("wrong "));  // the header, once
  EXPECT_THAT(run.out, HasSubstr(std::string("[  FAILED  ] Op.reshape/f32_t7\n  ") + words));
  EXPECT_THAT(run.out, HasSubstr("again: rullama-conformance --plugin " RULLAMA_WRONG_PLUGIN
                                 " --seed 5 --filter 'Op.reshape/f32_t7'\n"));
  const auto json = nlohmann::json::parse(ReadFile(report));
  std::set<std::string> failed, passed;
  for (const auto& test : json["tests"]) {
    (test["status"] == "failed" ? failed : passed).insert(test["test"].get<std::string>());
  }
  EXPECT_TRUE(std::ranges::all_of(
      failed, [](const std::string& name) { return name.starts_with("Op.reshape/"); }));
  EXPECT_EQ(failed.size(), 8U);
  EXPECT_TRUE(std::ranges::any_of(
      passed, [](const std::string& name) { return name.starts_with("Op.reduce/"); }));
}

INSTANTIATE_TEST_SUITE_P(
    Faults, Ends,
    ::testing::Values(std::pair("crashes", "crashed (SIGSEGV) in plan_compile\n"),
                      std::pair("aborts", "crashed (SIGABRT) in plan_compile\n"),
                      std::pair("fills_its_stack",
                                "crashed (SIGSEGV) in plan_compile: the stack is full\n"),
                      std::pair("exits",
                                "plugin 'wrong' ended the program inside plan_compile by a "
                                "call of exit\n"),
                      std::pair("leaves", "the process was ended with exit status 5")));

TEST(Conformance, StopsATestThatHangs) {
  const RunResult run = RunWrong("hangs", {"--filter", "Op.reshape/f32_t7", "--timeout", "1"});
  EXPECT_EQ(run.exit_code, kTestFailed);
  EXPECT_THAT(run.out, HasSubstr("[  FAILED  ] Op.reshape/f32_t7\n  did not end within 1 s"));
}

TEST(Conformance, StopsAfterThreeTestsThatHang) {
  const RunResult run = RunWrong("hangs", {"--filter", "Op.reshape/*", "--timeout", "1"});
  EXPECT_EQ(run.exit_code, kTestFailed);
  EXPECT_THAT(run.out, HasSubstr(" tests were not run, because 3 have hung"));
  EXPECT_THAT(run.out, HasSubstr("0 passed, 4 failed"));
}

// The modes of floats, which results of later tests depend on, are put back.
TEST(Conformance, SideEffectsAreNamed) {
  const RunResult run = RunWrong("rounds_upward", {"--filter", "Op.copy/f32_t*"});
  EXPECT_THAT(run.out,
              HasSubstr("Op.copy/f32_t1\n  the plugin changed what belongs to the program: "
                        "the modes of the processor for floats"));
  EXPECT_THAT(run.out, HasSubstr("Op.copy/f32_t7\n  the plugin changed"));
  EXPECT_THAT(RunWrong("ignores_interrupts", {"--filter", "Op.copy/f32_t7"}).out,
              HasSubstr("SIGINT is ignored; before, it had its default action"));
  EXPECT_THAT(RunWrong("closes_stdin", {"--filter", "Op.copy/f32_t7"}).out,
              HasSubstr("standard input is closed"));
}

TEST(Conformance, WhatIsPrintedAtTheEndIsAFailure) {
  const RunResult run = RunWrong("prints_at_shutdown", {"--filter", "Op.copy/f32_t7"});
  EXPECT_EQ(run.exit_code, kTestFailed);
  EXPECT_THAT(run.out, HasSubstr("when the device and the plugin were closed: the plugin wrote to "
                                 "standard output, which belongs to the program: 'good bye"));
}

TEST(Conformance, AnExceptionOutOfADestructorIsNamedInTheReport) {
  const std::string report = TemporaryDirectory() / "throws.json";
  const RunResult run =
      RunWrong("throws_at_close", {"--filter", "Op.copy/f32_t7", "--json", report});
  EXPECT_EQ(run.exit_code, kTestFailed);
  EXPECT_THAT(ReadFile(report), HasSubstr("plugin 'wrong' threw an exception out of device_close: "
                                          "the device is on fire"));
}

TEST(Conformance, ACrashNamesTheFunctionAndTheMemory) {
  const std::string test = "Op.matmul/q8_0_k32_n67_t7";
  for (const auto& [fault, words] :
       {std::pair("reads_beyond_weights",
                  "in weight_create: it touched memory 27 bytes beyond the end of the data of "
                  "weight 'weight'"),
        std::pair("writes_weights", "in weight_create: it wrote to the data of weight 'weight'")}) {
    const RunResult run = RunWrong(fault, {"--filter", test});
    EXPECT_THAT(run.out, HasSubstr(std::string("crashed (SIGSEGV) ") + words));
  }
}

TEST(Conformance, ACrashAtTheEndIsAFailure) {
  const RunResult run = RunWrong("crashes_at_close", {"--filter", "Op.copy/f32_t7"});
  EXPECT_EQ(run.exit_code, kTestFailed);
  EXPECT_THAT(run.out, HasSubstr("after the last test, when the device was closed: crashed"));
}

TEST(Conformance, ACrashAtTheBeginningIsAnErrorOfThePlugin) {
  const RunResult run = RunWrong("crashes_at_open", {"--filter", "Op.copy/f32_t7"});
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_THAT(run.err, HasSubstr("while it was loaded and its device opened: crashed (SIGSEGV)"));
  EXPECT_THAT(run.err, HasSubstr("[conformance.crash]"));
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

TEST(Manifest, OneThatCannotBeUnderstoodIsRefused) {
  const struct {
    const char* text;
    const char* error;
  } rows[] = {{"", "is not valid JSON (byte 1)"},
              {"[]", "is not a JSON object"},
              {R"({"refusals": [1]})", "'refusals' has to be a list of texts"},
              {R"({"skip": []})", "unknown key 'skip'"}};
  for (const auto& row : rows) {
    const RunResult run = RunWrong(
        "", {"--filter", "Op.copy/f32_t7", "--manifest", TemporaryFile("manifest.json", row.text)});
    EXPECT_NE(run.exit_code, 0);
    EXPECT_THAT(run.err, HasSubstr(row.error));
  }
}

// conformance_cpu_int8 fails unless the override works.
TEST(Manifest, AnUnknownKindOfActivationsIsRefused) {
  const RunResult run = RunWrong("", {"--filter", "Op.copy/f32_t7", "--activations", "int12"});
  EXPECT_EQ(run.exit_code, kUsage);
  EXPECT_THAT(run.err, HasSubstr("--activations is 'int12', expected float, int16"));
}

TEST(Manifest, TheMatrixMayListRefusedOps) {
  const nlohmann::json manifest = {{"unsupported", nlohmann::json::array()},
                                   {"matrix_lists_refused_ops", true}};
  const std::string file = TemporaryFile("manifest.json", manifest.dump());
  const RunResult op = RunWrong("refuses_all", {"--filter", "Op.softcap/n1", "--manifest", file});
  EXPECT_EQ(op.exit_code, 0) << op.out << op.err;
  EXPECT_THAT(op.out, HasSubstr("1 unsupported"));
  const RunResult parts =
      RunWrong("refuses_all", {"--filter", "Decomposed.softcap/n1", "--manifest", file});
  EXPECT_EQ(parts.exit_code, kTestFailed) << parts.out << parts.err;
}

TEST(Manifest, ARefusalMayHaveAKnownText) {
  const auto run = [](std::string_view text) {
    const nlohmann::json manifest = {{"unsupported", nlohmann::json::array()},
                                     {"refusals", {"another one", text}}};
    return RunWrong("refuses_all", {"--filter", "Decomposed.softcap/n1", "--manifest",
                                    TemporaryFile("manifest.json", manifest.dump())});
  };
  const RunResult known = run("*is refused without a reason");
  EXPECT_EQ(known.exit_code, 0) << known.out << known.err;
  EXPECT_THAT(known.out, HasSubstr("1 unsupported"));
  EXPECT_EQ(run("*has no kernels*").exit_code, kTestFailed);
}

TEST(Conformance, AFailureWhileRunningNamesTheOp) {
  const RunResult run = RunWrong("fails_at_its_first_op", {"--filter", "Op.copy/f32_t7"});
  EXPECT_EQ(run.exit_code, kTestFailed) << run.err;
  EXPECT_THAT(run.out,
              HasSubstr("plan_execute failed at op 0 (copy 'copy.1'): the device is tired"));
}

TEST(Matrix, AnAttributeThatIsRefusedIsNoListOfTypes) {
  const RunResult run = RunWrong("refuses_products_as_stored", {"--matrix"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("| `matmul` | bf16, f16, f32, iq1_m, "));
  EXPECT_THAT(run.out, HasSubstr("tq2_0 | all of them in some cases ("));
}

TEST(Manifest, AnEntryForNoTestIsAnError) {
  const RunResult run = RunWithEntry("", "unsupported", "Op.copi/*");
  EXPECT_EQ(run.exit_code, kUsage);
  EXPECT_THAT(run.err, HasSubstr("Op.copi/*"));
  EXPECT_THAT(run.out, Not(HasSubstr("passed")));
}

// The tests of --list, without what follows the type in the names of cases.
std::set<std::string> ListedOpsAndTypes(std::vector<std::string> arguments) {
  static const std::set<std::string> kTypes = {
      "f32",   "f16",   "bf16",   "q4_0",    "q4_1",   "q5_0",    "q5_1",  "q8_0",  "q2_k",
      "q3_k",  "q4_k",  "q5_k",   "q6_k",    "iq4_nl", "iq4_xs",  "mxfp4", "nvfp4", "iq1_m",
      "iq1_s", "iq2_s", "iq2_xs", "iq2_xxs", "iq3_s",  "iq3_xxs", "tq1_0", "tq2_0"};
  arguments.emplace_back("--list");
  std::istringstream lines(RunWrong("", std::move(arguments)).out);
  std::set<std::string> found;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("Op.")) continue;
    const size_t slash = line.find('/');
    found.insert(line.substr(0, slash));
    const std::string rest = line.substr(slash + 1) + "_";
    for (const std::string& type : kTypes) {
      if (rest.starts_with(type + "_")) found.insert(line.substr(0, slash + 1) + type);
    }
  }
  return found;
}

TEST(Quick, HasACaseOfEachOpAndType) {
  const std::set<std::string> all = ListedOpsAndTypes({"--skip", "*_wide"});
  const std::set<std::string> quick = ListedOpsAndTypes({"--quick"});
  EXPECT_GT(all.size(), 100U);
  EXPECT_THAT(quick, ::testing::ContainerEq(all));
}

TEST(Quick, LeavesMostCasesOut) {
  const auto lines = [](const std::vector<std::string>& arguments) {
    return std::ranges::count(RunWrong("", arguments).out, '\n');
  };
  const auto quick = lines({"--quick", "--list"});
  EXPECT_GT(quick, 100);
  EXPECT_LT(quick * 4, lines({"--list"}));
}

}  // namespace
}  // namespace rullama::conformance
