#include "conformance/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/json_reader.h"
#include "core/base/mmap_file.h"

namespace rullama::conformance {
namespace {

using Json = nlohmann::json;

Error ManifestError(const std::filesystem::path& path, std::string_view what) {
  return {ErrorKind::kUsage, "conformance.manifest",
          fmt::format("manifest '{}': {}", path.string(), what)};
}

std::optional<Activations> ActivationsFrom(std::string_view name) {
  for (const auto& [activations, known] : kActivationNames) {
    if (name == known) return activations;
  }
  return std::nullopt;
}

std::optional<std::vector<Manifest::Entry>> EntriesFrom(const Json& list) {
  std::vector<Manifest::Entry> entries;
  if (!list.is_array()) return std::nullopt;
  for (const Json& item : list) {
    const bool good = item.is_object() && item.contains("test") && item["test"].is_string() &&
                      item.contains("reason") && item["reason"].is_string();
    if (!good) return std::nullopt;
    entries.push_back({item["test"], item["reason"]});
  }
  return entries;
}

std::optional<std::vector<std::string>> TextsFrom(const Json& list) {
  std::vector<std::string> texts;
  if (!list.is_array()) return std::nullopt;
  for (const Json& item : list) {
    if (!item.is_string()) return std::nullopt;
    texts.push_back(item);
  }
  return texts;
}

Result<Manifest> LoadFile(const std::filesystem::path& path) {
  const auto file = MmapFile::Open(path);
  if (!file) return tl::unexpected(file.error());
  const auto bytes = file->bytes();
  const auto read = ReadJson({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!read) return tl::unexpected(ManifestError(path, read.error().ToString()));
  const Json& json = *read;
  if (!json.is_object()) return tl::unexpected(ManifestError(path, "is not a JSON object"));
  Manifest manifest;
  for (const auto& [key, value] : json.items()) {
    if (key == "activations") {
      const auto activations =
          value.is_string() ? ActivationsFrom(value.get<std::string>()) : std::nullopt;
      if (!activations) {
        return tl::unexpected(
            ManifestError(path, "'activations' has to be float, int16, float16 or int8"));
      }
      manifest.activations = *activations;
    } else if (key == "matrix_lists_refused_ops") {
      if (!value.is_boolean()) {
        return tl::unexpected(
            ManifestError(path, fmt::format("'{}' has to be true or false", key)));
      }
      manifest.matrix_lists_refused_ops = value.get<bool>();
    } else if (key == "refusals") {
      auto texts = TextsFrom(value);
      if (!texts) {
        return tl::unexpected(ManifestError(path, "'refusals' has to be a list of texts"));
      }
      manifest.refusals = *std::move(texts);
    } else if (key == "unsupported" || key == "expected_failure") {
      auto entries = EntriesFrom(value);
      if (!entries) {
        return tl::unexpected(ManifestError(
            path, fmt::format("'{}' has to be a list of objects with 'test' and 'reason'", key)));
      }
      if (key == "unsupported") manifest.names_all_unsupported = true;
      (key == "unsupported" ? manifest.unsupported : manifest.expected_failure) =
          *std::move(entries);
    } else {
      return tl::unexpected(
          ManifestError(path, fmt::format("unknown key '{}'; known are activations, unsupported, "
                                          "refusals, expected_failure and "
                                          "matrix_lists_refused_ops",
                                          key)));
    }
  }
  return manifest;
}

}  // namespace

Result<Manifest> Manifest::Load(const std::filesystem::path& path, std::string_view activations) {
  Manifest manifest;
  if (!path.empty()) {
    RL_ASSIGN_OR_RETURN(manifest, LoadFile(path));
  }
  if (activations.empty()) return manifest;
  const auto chosen = ActivationsFrom(activations);
  if (!chosen) {
    return MakeError(ErrorKind::kUsage, "conformance.manifest",
                     "--activations is '{}', expected float, int16, float16 or int8", activations);
  }
  manifest.activations = *chosen;
  return manifest;
}

const Manifest::Entry* FindEntry(const std::vector<Manifest::Entry>& entries,
                                 std::string_view test) {
  for (const Manifest::Entry& entry : entries) {
    if (MatchesGlob(entry.test, test)) return &entry;
  }
  return nullptr;
}

bool MayRefuse(const Manifest& manifest, std::string_view text) {
  return std::ranges::any_of(
      manifest.refusals, [&](const std::string& pattern) { return MatchesGlob(pattern, text); });
}

bool MatchesGlob(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0;
  size_t star = std::string_view::npos, resume = 0;  // the last * and where its text may end
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace rullama::conformance
