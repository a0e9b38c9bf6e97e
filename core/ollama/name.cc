#include "core/ollama/name.h"

#include <algorithm>
#include <cctype>

namespace rullama {
namespace {

constexpr std::string_view kDefaultHost = "registry.ollama.ai";
constexpr std::string_view kDefaultNamespace = "library";
constexpr std::string_view kDefaultTag = "latest";
constexpr size_t kMaxPartBytes = 80;
constexpr size_t kMaxHostBytes = 350;

struct PartRule {
  std::string_view what;
  size_t max_bytes;
  std::string_view punctuation;  // allowed after the first character
};
constexpr PartRule kHostRule{"host", kMaxHostBytes, "_-.:"};
constexpr PartRule kNamespaceRule{"namespace", kMaxPartBytes, "_-"};
constexpr PartRule kModelRule{"model", kMaxPartBytes, "_-."};
constexpr PartRule kTagRule{"tag", kMaxPartBytes, "_-."};

bool IsAlphanumeric(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

Status CheckPart(std::string_view part, const PartRule& rule) {
  const bool valid = !part.empty() && part.size() <= rule.max_bytes &&
                     (IsAlphanumeric(part[0]) || part[0] == '_') &&
                     std::all_of(part.begin(), part.end(), [&](char c) {
                       return IsAlphanumeric(c) || rule.punctuation.find(c) != part.npos;
                     });
  if (valid) return OkStatus();
  return MakeError(ErrorKind::kModelFile, "store.name",
                   "the {} of the model name is not valid: expected 1 to {} characters, first a "
                   "letter, digit or '_', then also any of '{}'; write it like gemma4:e2b, or give "
                   "the path of a .gguf file",
                   rule.what, rule.max_bytes, rule.punctuation);
}

}  // namespace

std::string OllamaName::ToString() const {
  std::string text;
  if (host != kDefaultHost) text += host + "/";
  if (host != kDefaultHost || name_space != kDefaultNamespace) text += name_space + "/";
  return text + model + ":" + tag;
}

Result<OllamaName> ParseOllamaName(std::string_view text) {
  OllamaName name;
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (text.starts_with(scheme)) {
      text.remove_prefix(scheme.size());
      break;
    }
  }
  // A colon before the last slash belongs to the host (a port).
  const size_t slash = text.rfind('/');
  const size_t colon = text.rfind(':');
  name.tag = kDefaultTag;
  if (colon != text.npos && (slash == text.npos || colon > slash)) {
    name.tag = text.substr(colon + 1);
    text = text.substr(0, colon);
  }
  name.host = kDefaultHost;
  name.name_space = kDefaultNamespace;
  name.model = text;
  if (slash != text.npos) {
    name.model = text.substr(slash + 1);
    const std::string_view before = text.substr(0, slash);
    const size_t host_end = before.rfind('/');
    name.name_space = host_end == before.npos ? before : before.substr(host_end + 1);
    if (host_end != before.npos) name.host = before.substr(0, host_end);
  }
  RL_RETURN_IF_ERROR(CheckPart(name.host, kHostRule));
  RL_RETURN_IF_ERROR(CheckPart(name.name_space, kNamespaceRule));
  RL_RETURN_IF_ERROR(CheckPart(name.model, kModelRule));
  RL_RETURN_IF_ERROR(CheckPart(name.tag, kTagRule));
  return name;
}

bool LooksLikeOllamaName(std::string_view text) {
  return !text.ends_with(".gguf") && ParseOllamaName(text).has_value();
}

}  // namespace rullama
