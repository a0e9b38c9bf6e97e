// Which files and directories plugins may come from. Stateless; thread-safe.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rullama {

// "cpu" of "librullama_backend_cpu.so", or nothing for any other name.
std::optional<std::string> BackendNameOf(const std::filesystem::path& file);

// Why plugins of this directory are not trusted, or nothing: anyone may put files into it.
std::optional<std::string> WhyUntrustedDirectory(const std::filesystem::path& directory);

// Why this file, which the user named, is not trusted, or nothing: anyone may change or replace it.
// A directory like /tmp, where only the owner may replace a file, is accepted here.
std::optional<std::string> WhyUntrustedFile(const std::filesystem::path& file);

// Plugin files of a directory, by name; nothing if it cannot be read (`error` then says why).
std::vector<std::filesystem::path> PluginFilesIn(const std::filesystem::path& directory,
                                                 std::string* error);

// The non-empty entries of a ':'-separated list.
std::vector<std::filesystem::path> SplitPathList(std::string_view list);

}  // namespace rullama
