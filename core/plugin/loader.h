// Opens a plugin file and finds its entry point; the only place that knows Boost.DLL.
#pragma once

#include <rullama/abi/rullama_abi.h>

#include <filesystem>

#include "core/base/status.h"

namespace rullama {

// The library stays in memory until the process ends: its threads, statics and our copies of its
// strings would not survive its removal. Errors (kBackend): plugin.load with the dynamic loader's
// own text, plugin.entry if the file is a library but not a plugin. Thread-safe.
Result<rl_plugin_query_fn> LoadQueryFunction(const std::filesystem::path& path);

}  // namespace rullama
