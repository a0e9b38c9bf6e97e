// The reports of a crash in a plugin or a driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace rullama::cli_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A sanitizer reports faults itself.
constexpr bool kSanitized = RULLAMA_SANITIZED != 0;

RunResult RunFake(const std::string& script, const fs::path& cache) {
  RunOptions options;
  options.environment = {"RULLAMA_FAKE=" + script, "XDG_CACHE_HOME=" + cache.string()};
  return RunRullama({"-m", TinyModel(), "--plugin", RULLAMA_FAKE_PLUGIN, "--backend", "fake",
                     "--raw", "-p", "x", "-n", "1"},
                    options);
}

RunResult CrashIn(const std::string& function, const fs::path& cache) {
  return RunFake("crash=" + function, cache);
}

TEST(Crash, TheFunctionOfThePluginIsNamed) {
  if (kSanitized) {
    EXPECT_THAT(CrashIn("device_open", "/nonexistent").err, HasSubstr("Sanitizer"));
    return;
  }
  const fs::path cache = TemporaryDirectory() / "caches";
  fs::create_directories(cache / "pocl");
  for (const std::string function : {"device_count", "device_open"}) {
    const RunResult result = CrashIn(function, cache);
    EXPECT_EQ(result.exit_code, 128 + SIGSEGV);
    EXPECT_THAT(result.err, AllOf(HasSubstr("SIGSEGV"), HasSubstr(" in " + function + " of plugin"),
                                  HasSubstr("rullama 0."), HasSubstr("[program.crash]")));
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("this plugin is not part of the installation"),
                      HasSubstr("rullama-conformance --plugin '" RULLAMA_FAKE_PLUGIN "'"),
                      HasSubstr("gdb --args"), Not(HasSubstr("needs no driver"))));
  }
  EXPECT_THAT(CrashIn("device_open", cache).err,
              AllOf(HasSubstr("backend 'fake' on 'Fake One'"), HasSubstr("(driver ")));
}

// Whichever of the user's plugins it is in; if it is in none, it may come from any.
TEST(Crash, EachPluginOfTheUsersIsKnown) {
  if (kSanitized) return;
  RunOptions options;
  options.environment = {"RULLAMA_FAKE=crash=device_count"};
  for (const bool first : {true, false}) {
    std::vector<std::string> arguments{"backends"};
    for (const bool fake : {first, !first}) {
      arguments.insert(arguments.end(),
                       {"--plugin", fake ? RULLAMA_FAKE_PLUGIN : RULLAMA_FAULTY_PLUGIN});
    }
    EXPECT_THAT(RunRullama(arguments, options).err,
                HasSubstr("rullama-conformance --plugin '" RULLAMA_FAKE_PLUGIN "'"));
  }
  RunningProgram program({"-m", TinyModel(), "--plugin", RULLAMA_FAULTY_PLUGIN, "--backend",
                          "faulty", "--raw", "--greedy", "-p", "The", "-n", "-1"},
                         {.join_streams = true});
  EXPECT_THAT(program.ReadSome(), Not(::testing::IsEmpty()));
  program.Signal(SIGSEGV);  // which the main thread takes
  std::string text;
  for (std::string more; !(more = program.ReadSome()).empty();) text += more;
  EXPECT_EQ(program.Wait(), 128 + SIGSEGV);
  EXPECT_THAT(text, HasSubstr("plugins that are not part of the installation were loaded: '" +
                              std::string(RULLAMA_FAULTY_PLUGIN) + "'"));
}

// Outside of a plugin, or in one of ours, drivers are likely.
TEST(Crash, CachesAreNamedForPluginsOfTheInstallation) {
  if (kSanitized) return;
  const fs::path cache = TemporaryDirectory() / "caches";
  fs::create_directories(cache / "pocl");
  RunOptions options;
  options.join_streams = true;
  options.environment = {"XDG_CACHE_HOME=" + cache.string()};
  RunningProgram program({"-m", TinyModel(), "--raw", "--greedy", "-p", "The", "-n", "-1"},
                         options);
  EXPECT_THAT(program.ReadSome(), Not(::testing::IsEmpty()));
  program.Signal(SIGSEGV);
  std::string text;
  for (std::string more; !(more = program.ReadSome()).empty();) text += more;
  EXPECT_EQ(program.Wait(), 128 + SIGSEGV);
  EXPECT_THAT(text, AllOf(HasSubstr("'" + (cache / "pocl").string() + "'"),
                          HasSubstr("--backend cpu needs no driver")));
}

TEST(Crash, TheSignalStaysTheReasonOfTheEnd) {
  for (const int signal : {SIGABRT, SIGFPE, SIGILL, SIGBUS}) {
    RunningProgram program({"-m", TinyModel(), "--raw", "--greedy", "-p", "The", "-n", "-1"});
    EXPECT_THAT(program.ReadSome(), Not(::testing::IsEmpty()));
    program.Signal(signal);
    const int code = program.Wait();
    EXPECT_EQ(kSanitized ? code != 0 : code == 128 + signal, true) << code;
  }
}

// query_ops is called on the engine's thread, device_open on the main one.
TEST(Crash, AFullStackIsReportedOnEachThread) {
  for (const std::string function : {"device_open", "query_ops"}) {
    const RunResult result = RunFake("overflow=" + function, "/nonexistent");
    if (kSanitized) {
      EXPECT_THAT(result.err, HasSubstr("stack-overflow"));
      continue;
    }
    EXPECT_EQ(result.exit_code, 128 + SIGSEGV);
    EXPECT_THAT(result.err, AllOf(HasSubstr(" in " + function + " of plugin 'fake'"),
                                  HasSubstr("the stack is full")));
  }
}

}  // namespace
}  // namespace rullama::cli_test
