// The interface of a subcommand: one file per command, with one function AddXCommand(app, context)
// that declares its flags. The callback of a command sets `context.action`; main runs it once the
// command line has been parsed.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "cli/terminal/console.h"
#include "core/base/status.h"

namespace rullama::cli {

struct CommandContext {
  Console& console;
  // The chosen command. Its result is the exit code of the program; an error's is its kind.
  std::function<Result<int>()> action;
  // Set by an action that leaves threads in drivers, which no destructor may disturb: the program
  // then ends without any.
  bool leaves_threads = false;
};

void AddRunCommand(CLI::App& app, CommandContext& context);
void AddEncodeCommand(CLI::App& app, CommandContext& context);
void AddEmbedCommand(CLI::App& app, CommandContext& context);
void AddLogitsCommand(CLI::App& app, CommandContext& context);
void AddPerplexityCommand(CLI::App& app, CommandContext& context);
void AddEvalCommand(CLI::App& app, CommandContext& context);
void AddBenchCommand(CLI::App& app, CommandContext& context);
void AddProfileCommand(CLI::App& app, CommandContext& context);
void AddTokenizeCommands(CLI::App& app, CommandContext& context);  // tokenize, detokenize
void AddListCommands(CLI::App& app, CommandContext& context);      // list, show
void AddPullCommands(CLI::App& app, CommandContext& context);      // pull, rm
void AddInspectCommand(CLI::App& app, CommandContext& context);
void AddGraphCommand(CLI::App& app, CommandContext& context);
void AddBackendsCommand(CLI::App& app, CommandContext& context);
void AddImatrixCommand(CLI::App& app, CommandContext& context);
void AddQuantizeCommand(CLI::App& app, CommandContext& context);
void AddSynthCommand(CLI::App& app, CommandContext& context);
void AddDiffCommand(CLI::App& app, CommandContext& context);
void AddNewBackendCommand(CLI::App& app, CommandContext& context);
void AddFinetuneCommand(CLI::App& app, CommandContext& context);
void AddExportLoraCommand(CLI::App& app, CommandContext& context);
void AddServeCommand(CLI::App& app, CommandContext& context);
void AddConfigCommand(CLI::App& app, CommandContext& context);

}  // namespace rullama::cli
