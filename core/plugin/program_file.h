// The file of the running program. Thread-safe.
#pragma once

#include <filesystem>

namespace rullama {

// The file that `link`, the target of /proc/self/exe, stands for. Linux adds " (deleted)" to the
// name of a file that was removed or replaced while it runs, as an upgrade does.
[[nodiscard]] std::filesystem::path ProgramFile(const std::filesystem::path& link);

}  // namespace rullama
