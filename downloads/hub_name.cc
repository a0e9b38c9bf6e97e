#include "downloads/hub_name.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/base/printable.h"
#include "core/base/utf8.h"

namespace rullama::downloads {
namespace {

constexpr size_t kMaxNameBytes = 96;
constexpr size_t kMaxPathBytes = 1024;
constexpr size_t kMaxPathPartBytes = 255;

bool IsAscii09az(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x80 && std::isalnum(byte) != 0;
}

// [A-Za-z0-9][A-Za-z0-9._-]{0,95} without ".." or "--".
bool IsNamePart(std::string_view part) {
  return !part.empty() && part.size() <= kMaxNameBytes && IsAscii09az(part[0]) &&
         part.find("..") == part.npos && part.find("--") == part.npos &&
         std::ranges::all_of(
             part, [](char c) { return IsAscii09az(c) || c == '.' || c == '_' || c == '-'; });
}

}  // namespace

std::string HubName::ToString() const {
  return fmt::format("hf.co/{}{}{}", repo, quant.empty() ? "" : ":", quant);
}

Result<HubName> ParseHubName(std::string_view words) {
  const std::string_view text = AfterHubHost(words).value_or(words);
  const size_t slash = std::min(text.find('/'), text.size());
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string_view user = text.substr(0, slash);
  const std::string_view repo =
      slash < colon ? text.substr(slash + 1, colon - slash - 1) : std::string_view();
  std::string_view quant = text.substr(std::min(colon + 1, text.size()));
  const bool quant_fits = colon == text.size() || IsNamePart(quant);
  if (IsNamePart(user) && IsNamePart(repo) && quant_fits) {
    // The tag that names of Ollama have where none is given.
    if (quant == "latest") quant = {};
    return HubName{fmt::format("{}/{}", user, repo), std::string(quant)};
  }
  return MakeError(ErrorKind::kUsage, "pull.name",
                   "'{}' is not a model of the Hub, expected USER/REPO or USER/REPO:QUANT of "
                   "letters, digits and '.', '_', '-', at most 96 in a part",
                   ShownName(words));
}

std::optional<std::string_view> AfterHubHost(std::string_view text) {
  constexpr std::array<std::string_view, 2> kHosts = {"hf.co/", "huggingface.co/"};
  if (text.starts_with("https://")) text.remove_prefix(std::string_view("https://").size());
  for (const std::string_view host : kHosts) {
    if (text.starts_with(host)) return text.substr(host.size());
  }
  return std::nullopt;
}

Status CheckRevision(std::string_view revision) {
  const bool plain = std::ranges::all_of(revision, [](char c) {
    return IsAscii09az(c) || c == '.' || c == '_' || c == '-' || c == '/';
  });
  if (plain && IsSafePath(revision) && revision.size() <= kMaxPathPartBytes) return OkStatus();
  return MakeError(ErrorKind::kUsage, "pull.name",
                   "'{}' is not a revision, expected a branch, a tag or a commit",
                   ShownName(revision));
}

bool IsSafePath(std::string_view path) {
  if (path.empty() || path.size() > kMaxPathBytes || FindInvalidUtf8(path)) return false;
  const bool plain = std::ranges::all_of(
      path, [](unsigned char c) { return c >= 0x20 && c != 0x7F && c != '\\'; });
  if (!plain) return false;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part.size() > kMaxPathPartBytes) {
      return false;
    }
    begin = end + 1;
  }
  return true;
}

}  // namespace rullama::downloads
