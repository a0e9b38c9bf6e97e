// The one check of the files that a command names: none that it writes is one that it reads, no two
// that it writes are the same, and none is empty, as a variable of the shell that is not set makes
// it. It is made of the command line alone, before the command begins: of all options with files,
// and of the configuration that one of them names.
//
// Thread safety: one thread. Errors (kUsage): io.same_file, usage.option.
#pragma once

#include <CLI/CLI.hpp>

#include "core/base/status.h"

namespace rullama::cli {

// `command`: the one that was chosen, whose words were parsed. What else is wrong with them, the
// command says.
Status CheckFiles(const CLI::App& command);

}  // namespace rullama::cli
