// A plugin that breaks the contract is reported to the user with its name and exit code 3. The file
// also tests which names `new-backend` refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <memory>

#include "tests/cli/program.h"
#include "tests/gpu_backends.h"

namespace rullama::cli_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kPluginExit = 3;
constexpr int kUsageExit = 2;
constexpr int kTerminatedExit = 143;

RunResult RunFaulty(const std::string& fault, const std::string& model) {
  RunOptions options;
  options.environment.push_back(fault);
  return RunRullama({"run", "-m", model, "--raw", "--plugin", RULLAMA_FAULTY_PLUGIN, "--backend",
                     "faulty", "-p", "It was in July", "-n", "4", "--greedy"},
                    options);
}

TEST(PluginFault, TokensThatAreNoneAreTheFaultOfThePlugin) {
  const RunResult large = RunFaulty("RULLAMA_FAULTY_READS=127", TinyModel());
  EXPECT_EQ(large.exit_code, kPluginExit) << large.err;
  EXPECT_THAT(large.err, AllOf(HasSubstr("plugin 'faulty' chose token 2139062143"),
                               HasSubstr("expected 0 to 2047"), HasSubstr("[backend.token]")));
  const RunResult negative = RunFaulty("RULLAMA_FAULTY_READS=128", TinyModel());
  EXPECT_EQ(negative.exit_code, kPluginExit) << negative.err;
  EXPECT_THAT(negative.err, AllOf(HasSubstr("plugin 'faulty' chose token -2139062144"),
                                  Not(HasSubstr("logit_bias"))));
  const RunResult canvas = RunFaulty("RULLAMA_FAULTY_READS=127", TinyDiffusionModel());
  EXPECT_EQ(canvas.exit_code, kPluginExit) << canvas.err;
  EXPECT_THAT(canvas.err, AllOf(HasSubstr("plugin 'faulty' chose token 2139062143 for row 0"),
                                HasSubstr("[backend.token]")));
}

TEST(PluginFault, AWeightOfAllMemoryThereIsIsRefused) {
  const RunResult result = RunFaulty("RULLAMA_FAULTY_LAYOUT=1", TinyModel());
  EXPECT_EQ(result.exit_code, kPluginExit) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("plugin 'faulty'"), HasSubstr("weight_layout"),
                                HasSubstr("18446744073709551615"), HasSubstr("[plugin.contract]")));
}

TEST(PluginFault, ExitIsNotSilent) {
  const RunResult result = RunFaulty("RULLAMA_FAULTY_EXIT=1", TinyModel());
  EXPECT_EQ(result.exit_code, kPluginExit);
  EXPECT_THAT(result.err, HasSubstr("plugin 'faulty' ended the program inside device_count"));
}

// A device that claims to be a GPU, with this many bytes of memory; the notes of -v.
std::string NotesOfGpu(const std::string& bytes, const std::vector<std::string>& more = {}) {
  RunOptions options;
  options.environment.push_back("RULLAMA_FAULTY_GPU=" + bytes);
  std::vector<std::string> arguments = {"-m",        TinyModel(), "--plugin", RULLAMA_FAULTY_PLUGIN,
                                        "--backend", "faulty",    "-c",       "2048",
                                        "-v",        "-n",        "1",        "-p",
                                        "Hi"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const RunResult result = RunRullama(arguments, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.err;
}

TEST(AutoSettings, AGpuWithRoomTakesLongStepsAndThePerLayerTable) {
  const std::string notes = NotesOfGpu("1000000000000");
  EXPECT_THAT(notes, HasSubstr("context.prefill_chunk: 2048, chosen for the device"));
  EXPECT_THAT(notes, HasSubstr("placement.host_weights: [], chosen for the device"));
  EXPECT_THAT(notes, HasSubstr("cpu runs 0 ops"));
}

TEST(AutoSettings, AGpuWithoutRoomDoesNot) {
  // 512 rows fit, but without the fifth to spare.
  const std::string notes = NotesOfGpu("8500000");
  EXPECT_THAT(notes, HasSubstr("context.prefill_chunk: 512, chosen for the device"));
  EXPECT_THAT(notes, HasSubstr("placement.host_weights: [per_layer_token_embd], chosen"));
  EXPECT_THAT(notes, HasSubstr("reads a weight of placement.host_weights"));
}

TEST(AutoSettings, GivenValuesAreNotChosen) {
  const auto config =
      TemporaryFile("given.yaml", "placement: {host_weights: [per_layer_token_embd]}\n");
  const std::string notes = NotesOfGpu("1000000000000", {"-b", "64", "--config", config.string()});
  EXPECT_THAT(notes, Not(HasSubstr("chosen for the device")));
  EXPECT_THAT(notes, HasSubstr("reads a weight of placement.host_weights"));
  EXPECT_THAT(NotesOfGpu("1000000000000", {"-b", "auto"}), HasSubstr("prefill_chunk: 2048"));
}

TEST(AutoSettings, ADraftModelKeepsItsMemory) {
  constexpr const char* kRoom = "60000000";
  EXPECT_THAT(NotesOfGpu(kRoom), HasSubstr("context.prefill_chunk: 2048, chosen for the device"));
  EXPECT_THAT(NotesOfGpu(kRoom, {"--draft-model", TinyModel()}),
              HasSubstr("context.prefill_chunk: 512, chosen for the device"));
}

TEST(AutoSettings, AProcessorTakesShortSteps) {
  const RunResult result = RunRullama({"-m", TinyModel(), "-v", "-n", "1", "-p", "Hi"});
  EXPECT_THAT(result.err, HasSubstr("context.prefill_chunk: 512, chosen for the device"));
  EXPECT_THAT(result.err, Not(HasSubstr("host_weights")));
}

// The line about slots that a server prints at its start, on a GPU with `bytes` of memory.
std::string SlotsOfGpu(const std::string& bytes, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {
      "serve",     "-m",  TinyModel(), "--plugin", RULLAMA_FAULTY_PLUGIN, "--backend", "faulty",
      "--warm-up", "off", "--port",    "0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  RunningProgram server(arguments,
                        {.join_streams = true, .environment = {"RULLAMA_FAULTY_GPU=" + bytes}});
  const std::string said = server.ReadUntil("listening on http://127.0.0.1:");
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
  return said;
}

TEST(AutoSlots, AServerHasAsManyAsTheGpuHasRoomFor) {
  EXPECT_THAT(SlotsOfGpu("1000000000000"),
              HasSubstr("8 slots (auto) of 2048 tokens: KV caches of "));
  EXPECT_THAT(SlotsOfGpu("9000000"), HasSubstr("4 slots (auto) of 2048 tokens"));
  EXPECT_THAT(SlotsOfGpu("1000000000000", {"--slots", "3", "-c", "512"}),
              HasSubstr("3 slots of 512 tokens: KV caches of "));
  EXPECT_THAT(SlotsOfGpu("1000000000000", {"--slots", "auto", "--max-loaded-models", "2"}),
              HasSubstr("4 slots (auto) of 2048 tokens"));
}

// The time for running answers is far longer than the test may take.
RunningProgram ServerThatHangs(const std::string& function) {
  static const std::filesystem::path config =
      TemporaryFile("patient.yaml", "server: {drain_s: 3600, port: 0}\n");
  return RunningProgram({"serve", "-m", TinyModel(), "--plugin", RULLAMA_FAULTY_PLUGIN, "--backend",
                         "faulty", "--config", config.string()},
                        {.join_streams = true, .environment = {"RULLAMA_FAULTY_HANG=" + function}});
}

// As one whose driver still compiles kernels, which cannot be stopped.
TEST(EndOfServer, DoesNotWaitForADeviceThatStaysOpen) {
  RunningProgram server = ServerThatHangs("device_close");
  server.ReadUntil("listening on http://127.0.0.1:");
  server.Signal(SIGTERM);
  server.ReadUntil("faulty: hangs in device_close");
  EXPECT_EQ(server.Wait(), 0);
}

TEST(EndOfServer, DoesNotWaitForKernelsOfItsStart) {
  RunningProgram server = ServerThatHangs("plan_compile");
  server.ReadUntil("faulty: hangs in plan_compile");
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), kTerminatedExit);
}

// A lack that does not matter to a run is not a warning, and refuses nothing.
TEST(PluginFault, WhatABackendCannotDoIsANote) {
  RunOptions options;
  options.environment.emplace_back("RULLAMA_FAULTY_REFUSES=logprobs.");
  const RunResult result =
      RunRullama({"-m", TinyModel(), "--plugin", RULLAMA_FAULTY_PLUGIN, "--backend", "faulty", "-v",
                  "--raw", "-p", "The", "-n", "2", "--greedy"},
                 options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("not with this backend: greedy answers with "
                                          "log-probabilities, drawn answers with "),
                                HasSubstr("is refused by faulty: not today"), HasSubstr("memory:"),
                                Not(HasSubstr("warning"))));
}

class Hanging {
 public:
  Hanging(const std::string& function, bool asks)
      : program_({"-m", TinyModel(), "--raw", "--plugin", RULLAMA_FAULTY_PLUGIN, "--backend",
                  "faulty", "-p", "x", "-n", "4"},
                 Options(function, asks)) {
    Expect("faulty: hangs in " + function);
  }

  // Reads until `text` or the end is there.
  void Expect(const std::string& text) {
    while (shown_.find(text) == std::string::npos) {
      const std::string more = program_.ReadSome();
      if (more.empty()) break;
      shown_ += more;
    }
    EXPECT_THAT(shown_, HasSubstr(text));
  }
  void Interrupt() const { program_.Signal(SIGINT); }
  int Wait() {
    for (std::string more; !(more = program_.ReadSome()).empty();) shown_ += more;
    return program_.Wait();
  }
  [[nodiscard]] const std::string& shown() const { return shown_; }

 private:
  static RunOptions Options(const std::string& function, bool asks) {
    RunOptions options;
    options.join_streams = true;
    options.environment.push_back("RULLAMA_FAULTY_HANG=" + function);
    if (asks) options.environment.emplace_back("RULLAMA_FAULTY_ASKS=1");
    return options;
  }

  RunningProgram program_;
  std::string shown_;
};

// All at once, since most of the time is spent asleep.
TEST(PluginHang, OneInterruptEndsTheProgramUnlessThePluginAsks) {
  const std::vector<std::string> functions = {"device_open", "weight_create", "plan_compile",
                                              "plan_execute"};
  std::vector<std::unique_ptr<Hanging>> hanging;
  for (const std::string& function : functions) {
    hanging.push_back(std::make_unique<Hanging>(function, false));
  }
  Hanging asking("plan_execute", true), twice("plan_execute", true);
  for (const auto& program : hanging) program->Interrupt();
  asking.Interrupt();
  twice.Interrupt();
  twice.Expect("still at work in plan_execute of a plugin; Ctrl-C again ends the program at once");
  twice.Interrupt();
  EXPECT_EQ(twice.Wait(), 130);
  EXPECT_THAT(twice.shown(), Not(HasSubstr("[plugin.hang]")));
  for (size_t i = 0; i < functions.size(); ++i) {
    EXPECT_EQ(hanging[i]->Wait(), 130);
    EXPECT_THAT(hanging[i]->shown(),
                AllOf(HasSubstr("a plugin hangs in " + functions[i]), HasSubstr("[plugin.hang]")));
  }
  EXPECT_EQ(asking.Wait(), 130);
  EXPECT_THAT(asking.shown(), AllOf(HasSubstr("comes back"), Not(HasSubstr("[plugin.hang]"))));
}

TEST(PluginFault, DenyNamesAllKindsAndSaysWhatToSet) {
  const auto config = TemporaryFile("deny.yaml", "placement:\n  fallback: deny\n");
  RunOptions options;
  options.environment.push_back("RULLAMA_FAKE=");
  const RunResult result =
      RunRullama({"run", "-m", TinyModel(), "--config", config, "--plugin", RULLAMA_FAKE_PLUGIN,
                  "--backend", "fake", "-p", "x", "-n", "1"},
                 options);
  EXPECT_EQ(result.exit_code, kPluginExit);
  EXPECT_THAT(result.err, AllOf(HasSubstr("refused as well: "), HasSubstr("matmul (only copy)"),
                                HasSubstr("or to 'allow' to let the host run these ops")));
}

RunResult NewBackend(const std::string& name) {
  const auto folder = TemporaryDirectory() / ("new_" + name);
  std::filesystem::remove_all(folder);
  return RunRullama({"new-backend", name, "--folder", folder});
}

TEST(NewBackend, RefusesWhatCannotBeANamespaceAndTheReference) {
  for (const char* name : {"class", "std", "and_eq", "unix", "rullama", "reference", "auto"}) {
    const RunResult result = NewBackend(name);
    EXPECT_EQ(result.exit_code, kUsageExit) << name;
    EXPECT_THAT(result.err, HasSubstr("[new_backend.name]"));
    EXPECT_FALSE(std::filesystem::exists(TemporaryDirectory() / (std::string("new_") + name)));
  }
}

TEST(NewBackend, WarnsOfTheNamesOfOurs) {
  for (const char* name : BackendNames()) {
    const RunResult result = NewBackend(name);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("is also a backend of rullama"));
  }
  EXPECT_THAT(NewBackend("classy").err, IsEmpty());
}

}  // namespace
}  // namespace rullama::cli_test
