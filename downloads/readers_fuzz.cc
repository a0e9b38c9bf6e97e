// Any bytes as an answer of a server, a field of HTTP, a name or the state of a file: each gives a
// value that keeps what its header promises, or an error.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "downloads/file_fetch.h"
#include "downloads/hub_files.h"
#include "downloads/hub_name.h"
#include "downloads/ollama_registry.h"
#include "downloads/partial_file.h"
#include "downloads/url.h"

namespace {

using namespace rullama::downloads;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

void ReadAnswers(std::string_view text) {
  if (const auto files = ReadHubTree(text)) {
    for (const HubFile& file : *files) {
      Require(IsSafePath(file.path), "a path stays in its folder");
      Require(IsHex(file.digest.hex, 64) || IsHex(file.digest.hex, 40), "a sum is one");
    }
    const auto selection = ChooseHubFiles(*files, {.mtp = true}, "a/b");
    Require(!selection || !selection->parts.empty(), "a model has a part");
    for (const auto& parts : HubModels(*files)) Require(!parts.empty(), "a model has a part");
  }
  if (const auto commit = ReadHubCommit(text)) Require(IsHex(*commit, 40), "a commit is a sum");
  if (const auto blobs = ReadRegistryManifest(text)) {
    for (const RegistryBlob& blob : *blobs) Require(IsHex(blob.hex, 64), "a digest is a sum");
  }
  if (const auto token = ReadRegistryToken(text)) {
    Require(token->find_first_of("\r\n") == std::string::npos, "a token is a value of a field");
  }
}

void ReadFields(std::string_view text) {
  NextPage(text);
  ParseChallenge(text);
  if (const auto range = ParseContentRange(text)) {
    Require(range->range.begin < range->range.end, "a range is not empty");
  }
  constexpr uint64_t kBytes = 1000;
  if (const auto state = ParsePartialState(text, kBytes)) {
    Require(state->done.bytes() <= kBytes, "a state is of its file");
  }
}

void ReadNames(std::string_view text) {
  if (const auto name = ParseHubName(text)) {
    Require(IsSafePath(name->repo), "a name is safe in paths");
  }
  if (CheckRevision(text)) Require(IsSafePath(text), "a revision is safe in paths");
  if (const auto name = ParseRegistryName(text)) {
    Require(IsSafePath(name->host + "/" + name->name_space + "/" + name->model + "/" + name->tag),
            "a name is safe in paths");
  }
  QuantOf(text);
  if (const auto url = ParseUrl(std::string(text.substr(0, text.find('\0'))))) {
    Require(url->scheme == "http" || url->scheme == "https", "an address is of the web");
    KindOfHost(url->host);
    if (const auto next = ResolveUrl(*url, "/x")) {
      Require(next->Origin() == url->Origin(), "a path stays on its host");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ReadAnswers(text);
  ReadFields(text);
  ReadNames(text);
  return 0;
}
