#include "downloads/ollama_registry.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error_of.h"
#include "core/base/json_reader.h"
#include "core/base/printable.h"
#include "downloads/answers.h"
#include "downloads/url.h"

namespace rullama::downloads {
namespace {

using Json = nlohmann::json;
using BadRegistry = ErrorOf<ErrorKind::kIo, "pull.protocol">;

constexpr size_t kMaxManifestBytes = size_t{1} << 20;
constexpr size_t kManifestDepth = 16;
constexpr uint64_t kMaxBlobBytes = uint64_t{1} << 53;
constexpr std::string_view kManifestType = "application/vnd.docker.distribution.manifest.v2+json";
constexpr std::string_view kImagePrefix = "application/vnd.ollama.image.";
constexpr std::string_view kModelKind = "model";
constexpr std::string_view kSha256Prefix = "sha256:";
constexpr unsigned kBlobMode = 0644;

std::string TextMember(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// `kind` is kept if it is given; else it is that of the media type.
Result<RegistryBlob> ReadBlob(const Json& json, std::string kind) {
  if (!json.is_object()) return BadRegistry("the manifest has a layer that is not an object");
  if (kind.empty()) {
    const std::string type = TextMember(json, "mediaType");
    if (!type.starts_with(kImagePrefix)) {
      return BadRegistry("the manifest has a layer of type '{}', expected those of a model in GGUF",
                         ShownName(type));
    }
    kind = type.substr(kImagePrefix.size());
  }
  const std::string digest = TextMember(json, "digest");
  const bool known = digest.starts_with(kSha256Prefix);
  const std::string hex = known ? digest.substr(kSha256Prefix.size()) : std::string();
  if (!IsHex(hex, 64)) {
    return BadRegistry("the manifest has the digest '{}', expected sha256: and 64 digits",
                       ShownName(digest));
  }
  const auto size = json.find("size");
  if (size == json.end() || !size->is_number_unsigned() || size->get<uint64_t>() > kMaxBlobBytes) {
    return BadRegistry("the manifest has a layer without a valid size");
  }
  return RegistryBlob{std::move(kind), hex, size->get<uint64_t>()};
}

// The next "name=value" or "name="value"" of a challenge; both empty at the end.
std::pair<std::string, std::string> TakeParameter(std::string_view& text) {
  const size_t begin = text.find_first_not_of(" ,\t");
  const size_t equals = text.find('=');
  if (begin == text.npos || equals == text.npos || equals < begin) return {};
  std::string name(text.substr(begin, equals - begin));
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  text.remove_prefix(equals + 1);
  std::string value;
  if (!text.starts_with('"')) {
    const size_t end = std::min(text.find(','), text.size());
    value = text.substr(0, end);
    text.remove_prefix(end);
    return {name, value};
  }
  text.remove_prefix(1);
  while (!text.empty() && text.front() != '"') {
    if (text.front() == '\\' && text.size() > 1) text.remove_prefix(1);
    value += text.front();
    text.remove_prefix(1);
  }
  text.remove_prefix(std::min<size_t>(text.size(), 1));
  return {name, value};
}

Result<std::string> TokenOf(const BearerChallenge& challenge, const Url& registry,
                            const std::string& what, PullConnection& connection) {
  RL_ASSIGN_OR_RETURN(Url realm, ParseUrl(challenge.realm));
  const HostKind to = KindOfHost(realm.host);
  const HostKind from = KindOfHost(registry.host);
  const bool inwards = (to == HostKind::kLoopback || to == HostKind::kPrivate) &&
                       from != HostKind::kLoopback && from != HostKind::kPrivate;
  const bool same = realm.host == registry.host && realm.scheme == registry.scheme;
  if (!same && (!realm.encrypted() || inwards)) {
    return MakeError(ErrorKind::kIo, "pull.redirect",
                     "{}: the registry sends to '{}' for a token, expected its own host or an "
                     "encrypted address",
                     what, ShownName(realm.Origin()));
  }
  const std::string mark = realm.text.find('?') == std::string::npos ? "?" : "&";
  RL_ASSIGN_OR_RETURN(
      realm, ParseUrl(fmt::format("{}{}service={}&scope={}", realm.text, mark,
                                  EscapePath(challenge.service), EscapePath(challenge.scope))));
  RL_ASSIGN_OR_RETURN(const FetchedText answer,
                      FetchText(connection.client, {.url = realm}, kMaxManifestBytes,
                                connection.options, connection.hooks));
  if (!answer.outcome.succeeded()) {
    return tl::unexpected(ErrorOfAnswer(answer.outcome, what, {}));
  }
  RL_ASSIGN_OR_RETURN(const std::string token, ReadRegistryToken(answer.text));
  return "Bearer " + token;
}

// The manifest, with a token if the registry asks for one.
Result<std::string> FetchManifest(const Url& url, const std::string& what, PullPlan& plan,
                                  PullConnection& connection) {
  const auto get = [&] {
    return FetchText(connection.client,
                     {.url = url,
                      .headers = {fmt::format("Accept: {}", kManifestType)},
                      .authorization = connection.authorization},
                     kMaxManifestBytes, connection.options, connection.hooks);
  };
  RL_ASSIGN_OR_RETURN(FetchedText answer, get());
  const auto challenge = ParseChallenge(answer.outcome.head.Field("www-authenticate"));
  if (answer.outcome.head.status == 401 && challenge) {
    plan.renew = [challenge = *challenge, url, what, &connection] {
      return TokenOf(challenge, url, what, connection);
    };
    RL_ASSIGN_OR_RETURN(connection.authorization, plan.renew());
    RL_ASSIGN_OR_RETURN(answer, get());
  }
  if (!answer.outcome.succeeded()) {
    return tl::unexpected(ErrorOfAnswer(answer.outcome, what, {}));
  }
  return std::move(answer.text);
}

}  // namespace

Result<OllamaName> ParseRegistryName(std::string_view text) {
  auto name = ParseOllamaName(text);
  const bool scheme = text.find("://") != text.npos;
  if (name && !scheme && ParseUrl("https://" + name->host)) return name;
  return MakeError(ErrorKind::kUsage, "pull.name",
                   "'{}' is not the name of a model, expected one like gemma4:e2b, "
                   "[HOST/][NAMESPACE/]MODEL[:TAG], or hf.co/USER/REPO[:QUANT]",
                   ShownName(text));
}

Result<std::vector<RegistryBlob>> ReadRegistryManifest(std::string_view text) {
  const auto json = ReadJson(text, {.depth = kManifestDepth});
  if (!json) return BadRegistry("the manifest {}", json.error().ToString());
  if (!json->is_object()) return BadRegistry("the manifest is not a JSON object");
  const auto version = json->find("schemaVersion");
  if (version == json->end() || *version != 2) {
    return BadRegistry("the manifest does not have schemaVersion 2");
  }
  const auto config = json->find("config");
  const auto layers = json->find("layers");
  if (config == json->end() || layers == json->end() || !layers->is_array() || layers->empty()) {
    return BadRegistry("the manifest has no 'config' or no 'layers'");
  }
  std::vector<RegistryBlob> blobs;
  for (const Json& layer : *layers) {
    RL_ASSIGN_OR_RETURN(RegistryBlob blob, ReadBlob(layer, {}));
    blobs.push_back(std::move(blob));
  }
  if (std::ranges::count(blobs, kModelKind, &RegistryBlob::kind) != 1) {
    return BadRegistry("the manifest does not have one layer of a model in GGUF");
  }
  RL_ASSIGN_OR_RETURN(RegistryBlob blob, ReadBlob(*config, "config"));
  blobs.push_back(std::move(blob));
  return blobs;
}

std::optional<BearerChallenge> ParseChallenge(std::string_view text) {
  constexpr std::string_view kScheme = "bearer ";
  std::string scheme(text.substr(0, kScheme.size()));
  std::ranges::transform(scheme, scheme.begin(), [](unsigned char c) { return std::tolower(c); });
  if (scheme != kScheme) return std::nullopt;
  text.remove_prefix(kScheme.size());
  BearerChallenge challenge;
  for (;;) {
    const auto [name, value] = TakeParameter(text);
    if (name.empty()) break;
    if (name == "realm") challenge.realm = value;
    if (name == "service") challenge.service = value;
    if (name == "scope") challenge.scope = value;
  }
  if (challenge.realm.empty()) return std::nullopt;
  return challenge;
}

Result<std::string> ReadRegistryToken(std::string_view text) {
  const auto json = ReadJson(text, {.depth = kManifestDepth});
  std::string token;
  if (json && json->is_object()) {
    token = TextMember(*json, "token");
    if (token.empty()) token = TextMember(*json, "access_token");
  }
  const bool plain =
      std::ranges::all_of(token, [](unsigned char c) { return c > 0x20 && c < 0x7F; });
  if (token.empty() || !plain) return BadRegistry("the registry's answer has no token");
  return token;
}

Result<PullPlan> PlanOllamaPull(const OllamaName& name, const std::filesystem::path& store,
                                PullConnection& connection) {
  const std::string what = name.ToString();
  RL_ASSIGN_OR_RETURN(Url url, ParseUrl("https://" + name.host));
  if (connection.options.insecure || KindOfHost(url.host) == HostKind::kLoopback) {
    RL_ASSIGN_OR_RETURN(url, ParseUrl("http://" + name.host));
  }
  RL_RETURN_IF_ERROR(CheckPlainHttp(url, connection.options.insecure, false));
  const std::string base = fmt::format("{}/v2/{}/{}", url.Origin(), name.name_space, name.model);
  RL_ASSIGN_OR_RETURN(url, ParseUrl(fmt::format("{}/manifests/{}", base, name.tag)));
  PullPlan plan{.root = store};
  RL_ASSIGN_OR_RETURN(std::string manifest, FetchManifest(url, what, plan, connection));
  RL_ASSIGN_OR_RETURN(const std::vector<RegistryBlob> blobs, ReadRegistryManifest(manifest));
  for (const RegistryBlob& blob : blobs) {
    const std::filesystem::path path = store / "blobs" / ("sha256-" + blob.hex);
    plan.files.push_back(
        {.name = fmt::format("{} ({})", what, ShownName(blob.kind)),
         .url = fmt::format("{}/blobs/{}{}", base, kSha256Prefix, blob.hex),
         .bytes = blob.bytes,
         .digest = {DigestKind::kSha256, blob.hex},
         .blob = path,
         .partial = path.string() + ".rullama-partial",
         .lock = store / "blobs" / fmt::format(".sha256-{}.rullama-lock", blob.hex),
         .removes_lock = true,
         .mode = kBlobMode});
    if (blob.kind == kModelKind) plan.paths.model = path;
    if (blob.kind == "projector") plan.paths.projector = path;
    if (blob.kind == "draft") plan.paths.draft = path;
  }
  plan.text = PlannedText{store / "manifests" / name.host / name.name_space / name.model / name.tag,
                          std::move(manifest)};
  return plan;
}

}  // namespace rullama::downloads
