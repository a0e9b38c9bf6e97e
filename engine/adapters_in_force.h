// The adapters that a request has in force, and those that an engine has loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/snapshot_file.h"
#include "engine/api/request.h"
#include "models/common/adapter.h"

namespace rullama {

// Immutable.
struct AdaptersInForce {
  std::vector<AdapterScale> scales;  // ascending ids, no factor of 0; not empty
  // A hash of what they add to products, which stays the same from start to start; never 0.
  uint64_t key = 0;
};
// Null: none is in force.
using SharedAdapters = std::shared_ptr<const AdaptersInForce>;
// Whether two lists of adapters of one engine are the same: their hashes, and each entry.
[[nodiscard]] bool AreSame(const SharedAdapters& a, const SharedAdapters& b);

// Where the rows of a prompt are of use: to requests of the client with the same adapters.
struct PromptSpace {
  uint64_t client = 0;
  SharedAdapters adapters = {};

  friend bool operator==(const PromptSpace& a, const PromptSpace& b) {
    return a.client == b.client && AreSame(a.adapters, b.adapters);
  }
};

// The name of an adapter for clients: the last part of its path.
std::string AdapterName(const std::string& path);

// A fault of an entry of a list of adapters: "scale" "is 2000, expected -1000 to 1000".
struct AdapterFault {
  size_t index = 0;
  std::string_view member;  // "id" or "scale"
  std::string what;
};
// The first fault of a list for a request to an engine that has loaded `loaded` adapters.
std::optional<AdapterFault> FindAdapterFault(std::span<const AdapterScale> scales, int64_t loaded);

// Whether rows that choose among these adapters may have all of them, with the factors that they
// were loaded with. Error adapter.limit.
[[nodiscard]] Status CheckAppliedAdapters(std::span<const AdapterFacts> loaded);

// Thread safety: all member functions from any thread.
class AdapterTable {
 public:
  // `can_choose`: requests may. If not, all have those that are part of the graphs, also without
  // `apply`: requests that choose none have them.
  AdapterTable(std::vector<AdapterFacts> loaded, bool can_choose, bool apply);

  [[nodiscard]] bool can_choose() const { return can_choose_; }
  // With the factors in force for requests that choose none.
  [[nodiscard]] std::vector<AdapterInfo> List() const;
  // The adapters of a request; without a choice those of the engine. Error usage.request, whose
  // message begins with the place: "adapters[1].id is 7, ...".
  [[nodiscard]] Result<SharedAdapters> InForce(
      const std::optional<std::vector<AdapterScale>>& chosen) const;
  // Requests that choose none have these from now on. Errors: as InForce(), after which nothing has
  // changed.
  Status SetScales(std::span<const AdapterScale> scales);

  // Adapters in force as fingerprints in a file: the content and the factor of each.
  [[nodiscard]] std::vector<ModelFingerprint> Stored(const SharedAdapters& adapters) const;
  // The adapters of such fingerprints; nothing if one of them is not loaded.
  [[nodiscard]] std::optional<SharedAdapters> Restored(
      std::span<const ModelFingerprint> stored) const;

 private:
  [[nodiscard]] Status Check(std::span<const AdapterScale> scales) const;
  // The adapters of `scales`, which was checked, whose factor is not 0.
  [[nodiscard]] SharedAdapters Join(std::vector<AdapterScale> scales) const;

  const std::vector<AdapterFacts> loaded_;
  const bool can_choose_;
  mutable std::mutex mutex_;          // guards what follows
  std::vector<AdapterScale> scales_;  // of requests that choose none, for each adapter
};

}  // namespace rullama
