// The model of -hf, and names of models that were downloaded or can be: where commands that take a
// model find them, and the question of `run` whether to download one.
// Thread safety: none; used by main's thread.
#pragma once

#include <optional>
#include <string>

#include "cli/commands/options.h"
#include "cli/terminal/console.h"
#include "core/base/status.h"
#include "core/config/layered_config.h"
#include "downloads/pull_plan.h"

namespace rullama::cli {

// Makes the model of -hf that of the configuration, with its towers if the command takes any and no
// others are named. It is downloaded if it is not in the cache; if it is, nobody is asked. Does
// nothing without -hf. Errors: usage.option (kUsage) if -m names a model too, pull.*, file.*.
Status ApplyHubModel(const ConfigFlags& flags, LayeredConfig& config);

// The model of a command that only reads its file.
struct NamedModel {
  std::string name;                // a file, or a name of a store or of the Hub
  std::optional<std::string> hub;  // -hf
  bool pull = false;               // download it without asking
};
// Adds `names` for the file or name, -hf and --pull.
void AddNamedModel(CLI::App& app, const std::string& names, NamedModel& model);
// The model that is named, as `run` finds it, and the towers of one of -hf: it is downloaded where
// -hf or --pull say so, or the user does. Errors: usage.option (kUsage) for two models,
// run.cancelled, pull.*, file.*.
Result<downloads::ModelPaths> FindNamedModel(const NamedModel& model, Console& console);

// The file of "hf.co/USER/REPO[:QUANT]" in the cache of the Hub; nothing for other texts, for names
// that Ollama's store has, and if it is not there.
std::optional<std::string> CachedHubFile(const std::string& name);

// If `name` is that of a model that is on no store of this machine: downloads it where `pull` says
// so or the user does, who is asked on a terminal. Else the command continues, and its error says
// what to do. Errors: run.cancelled, pull.*, file.*.
Status OfferToPull(const std::string& name, bool pull, Console& console);

}  // namespace rullama::cli
