// The files and directories that plugins may come from. Stateless; thread-safe.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rullama {

// "cpu" of "librullama_backend_cpu.so", or nothing for any other name.
std::optional<std::string> BackendNameOf(const std::filesystem::path& file);

// The reason why plugins of this directory are not trusted (anyone may put files into it), or
// nothing.
std::optional<std::string> WhyUntrustedDirectory(const std::filesystem::path& directory);

// The reason why this file, which the user named, is not trusted (anyone may change or replace it),
// or nothing. A directory like /tmp, where only the owner may replace a file, is accepted here.
std::optional<std::string> WhyUntrustedFile(const std::filesystem::path& file);

// Plugin files of a directory, by name; nothing if it cannot be read (`error` then says why).
std::vector<std::filesystem::path> PluginFilesIn(const std::filesystem::path& directory,
                                                 std::string* error);

// The non-empty entries of a ':'-separated list.
std::vector<std::filesystem::path> SplitPathList(std::string_view list);

}  // namespace rullama
