// Whether a shared library is all there. The dynamic loader maps what the headers promise without
// asking how long the file is; what is missing then ends the process with SIGBUS.
#pragma once

#include <filesystem>

#include "core/base/status.h"

namespace rullama {

// plugin.load (kBackend) if the file ends before what its ELF headers describe, which a full disk
// or an interrupted copy leaves behind. Whatever else may be wrong with it, a file that is no ELF
// file for one, is left to the dynamic loader, which says so. Thread-safe.
Status CheckElfIsWhole(const std::filesystem::path& path);

}  // namespace rullama
