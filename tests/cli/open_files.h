// Files without a name, which commands write before they give them one.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>

namespace rullama::cli_test {

// Whether any process of this machine has a file of `folder` open that has no name there.
inline bool HasUnnamedFile(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  const std::string prefix = folder.string() + "/#";  // as the kernel shows them
  std::error_code code;
  for (const auto& process : fs::directory_iterator("/proc", code)) {
    for (fs::directory_iterator fd(process.path() / "fd", code), end; !code && fd != end;
         fd.increment(code)) {
      std::error_code gone;
      if (fs::read_symlink(fd->path(), gone).string().starts_with(prefix)) return true;
    }
  }
  return false;
}

// Waits until `is_true()`, for a minute at most.
template <typename Condition>
void WaitUntil(Condition is_true) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!is_true() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace rullama::cli_test
