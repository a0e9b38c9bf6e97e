#include "server/web_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <ios>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "core/base/printable.h"
#include "core/base/sha256.h"

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

std::optional<std::string> ReadAll(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream content;
  content << stream.rdbuf();
  if (!stream) return std::nullopt;
  return std::move(content).str();
}

}  // namespace

Result<WebFolder> WebFolder::Read(const std::string& path) {
  WebFolder folder;
  std::error_code failure;
  std::filesystem::directory_iterator entry(path, failure);
  for (; !failure && entry != std::filesystem::directory_iterator(); entry.increment(failure)) {
    const std::string name = entry->path().filename().string();
    const std::string_view type = TypeOf(name);
    std::error_code unknown;
    if (type.empty() || name.starts_with('.') || !entry->is_regular_file(unknown)) continue;
    auto bytes = ReadAll(entry->path());
    if (!bytes) {
      return MakeError(ErrorKind::kIo, "server.web_folder",
                       "file '{}' of server.web_path '{}' cannot be read", ShownName(name),
                       ShownName(path));
    }
    std::string etag = fmt::format("\"{}\"", HexText(Sha256(*bytes)));
    folder.files_.emplace(name,
                          File{.type = type, .etag = std::move(etag), .bytes = *std::move(bytes)});
  }
  if (folder.files_.contains(kPage)) return folder;
  return MakeError(ErrorKind::kIo, "server.web_folder",
                   "server.web_path '{}' is not a folder with a file '{}'; name the folder "
                   "build/wasm/web of a build for browsers",
                   ShownName(path), kPage);
}

Result<HttpAnswer> WebFolder::Answer(std::string_view name, std::string_view if_none_match) const {
  const auto found = files_.find(name);
  if (found == files_.end()) {
    return MakeError(ErrorKind::kIo, "io.open", "the page has no file '{}'", ShownName(name));
  }
  const File& file = found->second;
  const bool known =
      if_none_match == "*" || if_none_match.find(file.etag) != std::string_view::npos;
  return HttpAnswer{.status = known ? 304 : 200,
                    .content_type = std::string(file.type),
                    .body = known ? std::string() : file.bytes,
                    .fields = {{"Cross-Origin-Opener-Policy", "same-origin"},
                               {"Cross-Origin-Embedder-Policy", "require-corp"},
                               {"Cross-Origin-Resource-Policy", "same-origin"},
                               {"Content-Security-Policy", "frame-ancestors 'none'"},
                               {"Referrer-Policy", "no-referrer"},
                               {"Cache-Control", "no-cache"},
                               {"ETag", file.etag}}};
}

}  // namespace rullama::server
