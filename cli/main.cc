// The `rullama` program: understands the command line, runs one command, turns its result into an
// exit code. Exit codes: 0 done; ErrorKind for errors (core/base/status.h); 130 and 143 after
// SIGINT and SIGTERM. A reader of stdout that went away is not an error.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "cli/commands/arguments.h"
#include "cli/commands/command.h"
#include "cli/commands/completion.h"
#include "cli/commands/file_check.h"
#include "cli/commands/help_format.h"
#include "cli/commands/manual_page.h"
#include "cli/terminal/quiet_terminal.h"
#include "cli/terminal/signals.h"
#include "core/plugin/call_guard.h"

namespace rullama::cli {
namespace {

constexpr const char* kExamples =
    R"(Examples:
  rullama run gemma4:e2b "Why is the sky blue?"       a model by its name
  rullama -m model.gguf -p "Once upon" --raw          continue a text, no chat
  cat notes.txt | rullama -m model.gguf -p "Summarise:"
  rullama --config configs/tiny.yaml                  everything from a file; chats on a terminal
  rullama inspect model.gguf                          show its contents
  rullama backends                                    what this machine can compute with

Without a command, `run` is meant. `rullama COMMAND --help` shows the flags of a command.
Exit codes: 0 done, 1 failure while running, 2 usage or configuration, 3 backend, 4 model file,
5 out of memory, 6 input or output, 7 above a threshold, 130 interrupted, 143 terminated.)";

int ExitCodeOf(Console& console, const Error& error) {
  if (error.id == kPipeClosedId) return 0;
  if (error.id == "run.cancelled") {
    if (Terminated()) return kExitTerminated;
    if (Interrupted()) return kExitInterrupted;
  }
  console.Fail(error);
  return static_cast<int>(error.kind);
}

// Parses into `context.action`. A number is the exit code of a program that is already done.
Result<std::optional<int>> Parse(int argc, char** argv, CLI::App& app, Console& console) {
  RL_ASSIGN_OR_RETURN(std::vector<std::string> arguments,
                      PrepareArguments({argv + 1, argv + argc}, app));
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    RL_RETURN_IF_ERROR(console.Write(app.help()));
    return std::optional<int>(0);
  } catch (const CLI::CallForAllHelp&) {
    RL_RETURN_IF_ERROR(console.Write(app.help("", CLI::AppFormatMode::All)));
    return std::optional<int>(0);
  } catch (const CLI::CallForVersion& version) {
    RL_RETURN_IF_ERROR(console.Write(std::string(version.what()) + "\n"));
    return std::optional<int>(0);
  } catch (const CLI::ParseError& error) {
    return tl::unexpected(DescribeParseError(app, error));
  }
  return std::optional<int>();
}

// Answers the shells (cli/completion) and the build (cmake/RullamaManual.cmake), which ask for what
// --help does not mention. Nothing if the words are an ordinary command line.
std::optional<std::string> AnswerScripts(const std::vector<std::string>& words,
                                         const CLI::App& app) {
  if (words.empty()) return std::nullopt;
  if (words[0] == "__complete") return CompletionText(app, {words.begin() + 1, words.end()});
  if (words[0] != "__manual" || words.size() > 3) return std::nullopt;
  if (words.size() == 1) return fmt::format("{}\n", fmt::join(ManualPageNames(app), "\n"));
  return ManualPage(app, words[1], words.size() == 3 ? words[2] : "");
}

int RunAction(CommandContext& context) {
  const Result<int> result = context.action();
  if (!result) return ExitCodeOf(context.console, result.error());
  if (Terminated()) return kExitTerminated;
  if (Interrupted()) return kExitInterrupted;
  return *result;
}

int RunProgram(int argc, char** argv) {
  Console console;
  CommandContext context{.console = console, .action = {}};
  CLI::App app("rullama runs Gemma 3 and 4 models on plugin backends.", "rullama");
  app.set_version_flag("--version", "rullama " RULLAMA_VERSION);
  app.formatter(std::make_shared<HelpFormat>());
  app.require_subcommand(1);
  std::string color = "auto";
  const auto add_color = [&color](CLI::App& command) {
    command.add_option("--color", color, "Colours on stderr: auto, always or never [default auto]")
        ->check(CLI::IsMember({"auto", "always", "never"}))
        ->option_text("WHEN");
  };
  AddRunCommand(app, context);
  AddEncodeCommand(app, context);
  AddEmbedCommand(app, context);
  AddLogitsCommand(app, context);
  AddPerplexityCommand(app, context);
  AddEvalCommand(app, context);
  AddBenchCommand(app, context);
  AddProfileCommand(app, context);
  AddTokenizeCommands(app, context);
  AddListCommands(app, context);
  AddPullCommands(app, context);
  AddInspectCommand(app, context);
  AddGraphCommand(app, context);
  AddBackendsCommand(app, context);
  AddImatrixCommand(app, context);
  AddQuantizeCommand(app, context);
  AddSynthCommand(app, context);
  AddDiffCommand(app, context);
  AddNewBackendCommand(app, context);
  AddFinetuneCommand(app, context);
  AddExportLoraCommand(app, context);
  AddServeCommand(app, context);
  AddConfigCommand(app, context);
  for (CLI::App* command : app.get_subcommands({})) add_color(*command);
  // These flags are set after the commands, which would inherit both.
  app.set_help_all_flag("--help-all", "Show the flags of all commands");
  app.footer(kExamples);

  if (const auto answer = AnswerScripts({argv + 1, argv + argc}, app)) {
    const Status written = console.Write(*answer);
    return written ? 0 : ExitCodeOf(console, written.error());
  }
  const auto done = Parse(argc, argv, app, console);
  if (!done) return ExitCodeOf(console, done.error());
  if (done->has_value()) return **done;
  if (color == "always") console.set_color(ColorMode::kAlways);
  if (color == "never") console.set_color(ColorMode::kNever);
  if (const char* level = std::getenv("RULLAMA_LOG")) console.set_verbosity(VerbosityOf(level));
  for (const CLI::App* command : app.get_subcommands()) {
    if (const Status checked = CheckFiles(*command); !checked) {
      return ExitCodeOf(console, checked.error());
    }
  }
  const int code = RunAction(context);
  if (!context.leaves_threads) return code;
  RestoreTerminal();
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace
}  // namespace rullama::cli

int main(int argc, char** argv) {
  rullama::cli::OccupyStandardStreams();
  rullama::cli::InstallSignalHandlers();
  rullama::InstallTerminateHandler([](std::string_view) { rullama::cli::RestoreTerminal(); });
  try {
    return rullama::cli::RunProgram(argc, argv);
  } catch (const std::bad_alloc&) {
    rullama::cli::Console().Fail(
        {rullama::ErrorKind::kOutOfMemory, "memory.host",
         "the system refused more memory; lower --ctx-size, or use a smaller model"});
    return static_cast<int>(rullama::ErrorKind::kOutOfMemory);
  } catch (const std::system_error& error) {
    // Threads are all that we ask the system for in this way.
    rullama::cli::Console().Fail(
        {rullama::ErrorKind::kRuntime, "system.threads",
         fmt::format("the system refused a thread: {}; lower --threads, or raise the limits on "
                     "processes and memory (ulimit -u, ulimit -v)",
                     error.code().message())});
    return static_cast<int>(rullama::ErrorKind::kRuntime);
  }
}
