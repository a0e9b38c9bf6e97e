// The files of a repository of the Hub: what its API says of them, and which of them make a model.
// Thread safety: value types and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "downloads/digest.h"

namespace rullama::downloads {

struct HubFile {
  std::string path;  // safe (IsSafePath)
  uint64_t bytes = 0;
  Digest digest = {};
};

// The member `sha` of the answer of /api/models/REPO/revision/REV. Error pull.protocol.
Result<std::string> ReadHubCommit(std::string_view json);

// A page of /api/models/REPO/tree/SHA: its files, without folders. Every entry is checked. Error
// pull.protocol.
Result<std::vector<HubFile>> ReadHubTree(std::string_view json);

// The address with rel="next" in a field "Link"; empty if there is none.
std::string NextPage(std::string_view link);

struct HubChoice {
  std::string quant = {};  // empty: Q4_K_M, Q8_0 or the first
  std::string file = {};   // a path, instead of a quant
  bool mmproj = true;
  bool mtp = false;
};

// Indices of `files`.
struct HubSelection {
  std::vector<size_t> parts = {};  // of the model, in order
  std::optional<size_t> mmproj = {};
  std::optional<size_t> mtp = {};
};

// Errors: pull.not_found, with the quants that there are; pull.incomplete, with the missing part.
Result<HubSelection> ChooseHubFiles(const std::vector<HubFile>& files, const HubChoice& choice,
                                    std::string_view repo);

// The models among `files`: the parts of each, in order. Incomplete ones are left out.
std::vector<std::vector<size_t>> HubModels(const std::vector<HubFile>& files);

// The quant that a file is named after: "Q4_K_M". Empty if its name has none.
std::string QuantOf(std::string_view path);

}  // namespace rullama::downloads
