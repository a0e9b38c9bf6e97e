#include "server/web_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "core/base/mmap_file.h"
#include "core/base/printable.h"

namespace rullama::server {
namespace {

constexpr std::string_view kPage = "index.html";

// The types of a page's files, by the ends of their names.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kTypes = {
    {{".html", "text/html; charset=utf-8"},
     {".css", "text/css; charset=utf-8"},
     {".js", "text/javascript; charset=utf-8"},
     {".mjs", "text/javascript; charset=utf-8"},
     {".wasm", "application/wasm"}}};

// Empty if pages ask for no such file.
std::string_view TypeOf(std::string_view name) {
  const auto type = std::ranges::find_if(
      kTypes, [name](const auto& entry) { return name.ends_with(entry.first); });
  return type == kTypes.end() ? std::string_view() : type->second;
}

}  // namespace

Status CheckWebFolder(const std::string& path) {
  if (WebFile(path, kPage)) return OkStatus();
  return MakeError(ErrorKind::kIo, "server.web_folder",
                   "server.web_path '{}' is not a folder with a file '{}'; name the folder "
                   "build/wasm/web of a build for browsers",
                   ShownName(path), kPage);
}

Result<HttpAnswer> WebFile(const std::string& folder, std::string_view name) {
  const std::string_view type = TypeOf(name);
  if (type.empty() || name.starts_with('.') || name.find('/') != std::string_view::npos) {
    return MakeError(ErrorKind::kIo, "io.open", "the page has no file '{}'", ShownName(name));
  }
  RL_ASSIGN_OR_RETURN(const MmapFile file, MmapFile::Open(std::filesystem::path(folder) / name));
  const auto bytes = file.bytes();
  return HttpAnswer{.status = 200,
                    .content_type = std::string(type),
                    .body = std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                    .fields = {{"Cross-Origin-Opener-Policy", "same-origin"},
                               {"Cross-Origin-Embedder-Policy", "require-corp"},
                               {"Cross-Origin-Resource-Policy", "same-origin"},
                               {"Content-Security-Policy", "frame-ancestors 'none'"},
                               {"Referrer-Policy", "no-referrer"},
                               {"Cache-Control", "no-cache"}}};
}

}  // namespace rullama::server
