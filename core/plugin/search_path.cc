#include "core/plugin/search_path.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <system_error>

namespace rullama {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "librullama_backend_";
constexpr std::string_view kSuffix = ".so";

// Mode bits, or nothing if there is no such file (opening it will say so).
std::optional<mode_t> ModeOf(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return info.st_mode;
}

}  // namespace

std::optional<std::string> BackendNameOf(const fs::path& file) {
  const std::string name = file.filename().string();
  if (name.size() <= kPrefix.size() + kSuffix.size()) return std::nullopt;
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  return name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
}

std::optional<std::string> WhyUntrustedDirectory(const fs::path& directory) {
  const auto mode = ModeOf(directory);
  if (!mode || (*mode & S_IWOTH) == 0) return std::nullopt;
  return fmt::format(
      "directory '{}' is writable for everyone, so anyone could put a plugin there; "
      "take that right away (chmod o-w) or name the plugin file itself",
      directory.string());
}

std::optional<std::string> WhyUntrustedFile(const fs::path& file) {
  const auto file_mode = ModeOf(file);
  if (file_mode && (*file_mode & S_IWOTH) != 0) {
    return fmt::format("file '{}' is writable for everyone; take that right away (chmod o-w)",
                       file.string());
  }
  const fs::path directory = file.parent_path();
  const auto mode = ModeOf(directory);
  if (!mode || (*mode & S_IWOTH) == 0 || (*mode & S_ISVTX) != 0) return std::nullopt;
  return fmt::format(
      "directory '{}' is writable for everyone, so anyone could replace the plugin; "
      "take that right away (chmod o-w)",
      directory.string());
}

std::vector<fs::path> PluginFilesIn(const fs::path& directory, std::string* error) {
  std::vector<fs::path> files;
  std::error_code code;
  fs::directory_iterator it(directory, code);
  while (!code && it != fs::directory_iterator()) {
    if (BackendNameOf(it->path())) files.push_back(it->path());
    it.increment(code);
  }
  if (code) {
    *error = fmt::format("cannot read directory '{}': {}", directory.string(), code.message());
    return {};
  }
  std::ranges::sort(files);  // directories have no order of their own; ours must not vary
  return files;
}

std::vector<fs::path> SplitPathList(std::string_view list) {
  std::vector<fs::path> paths;
  while (!list.empty()) {
    const size_t end = std::min(list.find(':'), list.size());
    if (end > 0) paths.emplace_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return paths;
}

}  // namespace rullama
