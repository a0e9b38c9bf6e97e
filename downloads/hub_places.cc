#include "downloads/hub_places.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <string_view>

namespace rullama::downloads {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultEndpoint = "https://huggingface.co";
constexpr size_t kMaxTokenBytes = 4096;

std::string ValueOf(const char* (*getenv)(const char*), const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool IsTrue(std::string value) {
  std::ranges::transform(value, value.begin(), [](unsigned char c) { return std::toupper(c); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

// Where huggingface_hub keeps everything.
fs::path HomeOf(const char* (*getenv)(const char*)) {
  if (const std::string home = ValueOf(getenv, "HF_HOME"); !home.empty()) return home;
  if (const std::string xdg = ValueOf(getenv, "XDG_CACHE_HOME"); !xdg.empty()) {
    return fs::path(xdg) / "huggingface";
  }
  return fs::path(ValueOf(getenv, "HOME")) / ".cache" / "huggingface";
}

std::string ModelsFolder(const std::string& repo) {
  std::string name = "models--" + repo;
  name.replace(name.find('/'), 1, "--");
  return name;
}

std::string Trimmed(std::string text) {
  const auto is_space = [](unsigned char c) { return std::isspace(c) != 0; };
  text.erase(text.begin(), std::ranges::find_if_not(text, is_space));
  while (!text.empty() && is_space(static_cast<unsigned char>(text.back()))) text.pop_back();
  return text;
}

std::string ReadTokenFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxTokenBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

}  // namespace

HubPlaces HubPlaces::FromEnvironment(const char* (*getenv)(const char*)) {
  HubPlaces places{.endpoint = Trimmed(ValueOf(getenv, "HF_ENDPOINT")),
                   .cache = ValueOf(getenv, "HF_HUB_CACHE"),
                   .offline = IsTrue(ValueOf(getenv, "HF_HUB_OFFLINE")),
                   .getenv = getenv};
  while (places.endpoint.ends_with('/')) places.endpoint.pop_back();
  if (places.endpoint.empty()) places.endpoint = kDefaultEndpoint;
  if (places.cache.empty()) places.cache = HomeOf(getenv) / "hub";
  return places;
}

fs::path HubPlaces::FolderOf(const std::string& repo) const { return cache / ModelsFolder(repo); }
fs::path HubPlaces::LocksOf(const std::string& repo) const {
  return cache / ".locks" / ModelsFolder(repo);
}

Result<std::string> HubPlaces::Token() const {
  std::string token = Trimmed(ValueOf(getenv, "HF_TOKEN"));
  if (token.empty() && !IsTrue(ValueOf(getenv, "HF_HUB_DISABLE_IMPLICIT_TOKEN"))) {
    const std::string path = ValueOf(getenv, "HF_TOKEN_PATH");
    token = Trimmed(ReadTokenFile(path.empty() ? HomeOf(getenv) / "token" : fs::path(path)));
  }
  const bool plain =
      std::ranges::all_of(token, [](unsigned char c) { return c > 0x20 && c < 0x7F; });
  if (plain) return token;
  return MakeError(ErrorKind::kIo, "pull.unauthorized",
                   "HF_TOKEN, or the file of the token, has characters that no token has; set "
                   "HF_TOKEN to a token of the Hub");
}

}  // namespace rullama::downloads
