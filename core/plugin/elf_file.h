// Checks that a shared library is complete. The dynamic loader maps what the headers promise
// without checking the length of the file; a missing part then ends the process with SIGBUS.
#pragma once

#include <filesystem>

#include "core/base/status.h"

namespace rullama {

// Error plugin.load (kBackend) if the file ends before the parts that its ELF headers describe, as
// a full disk or an interrupted copy leaves it. All other faults, such as a file that is not an ELF
// file, are left to the dynamic loader, which reports them. Thread-safe.
Status CheckElfIsWhole(const std::filesystem::path& path);

}  // namespace rullama
