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

namespace rullama::cli {

// Makes the model of -hf that of the configuration, with its towers if the command takes any and no
// others are named. It is downloaded if it is not in the cache; if it is, nobody is asked. Does
// nothing without -hf. Errors: usage.option (kUsage) if -m names a model too, pull.*, file.*.
Status ApplyHubModel(const ConfigFlags& flags, LayeredConfig& config);

// The file of "hf.co/USER/REPO[:QUANT]" in the cache of the Hub; nothing for other texts, for names
// that Ollama's store has, and if it is not there.
std::optional<std::string> CachedHubFile(const std::string& name);

// If `name` is that of a model that is on no store of this machine: downloads it where `pull` says
// so or the user does, who is asked on a terminal. Else the command continues, and its error says
// what to do. Errors: run.cancelled, pull.*, file.*.
Status OfferToPull(const std::string& name, bool pull, Console& console);

}  // namespace rullama::cli
