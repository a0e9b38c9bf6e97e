#include "engine/snapshot_keys.h"

#include <algorithm>
#include <utility>

#include "engine/media/soft_row_ids.h"

namespace rullama {

SnapshotKeys::SnapshotKeys(const ModelSession& session, const AdapterTable& adapters,
                           std::shared_ptr<SnapshotStore> store)
    : session_(session), adapters_(adapters), store_(std::move(store)) {
  if (!store_) return;
  hashing_ = std::async(std::launch::async, [this] {
    static_cast<void>(OwnerOf({}, {}, std::string_view()));  // of requests that choose none
    ExpectOwn();
  });
}

Result<std::vector<ModelFingerprint>> SnapshotKeys::FingerprintsFor(std::span<const int32_t> tokens,
                                                                    const SharedAdapters& used) {
  const std::lock_guard lock(mutex_);
  if (fingerprints_.empty()) {
    RL_ASSIGN_OR_RETURN(fingerprints_, FingerprintsOf(session_));
  }
  std::vector<ModelFingerprint> all = fingerprints_;
  if (std::ranges::any_of(tokens, IsSoftRow)) {
    if (!towers_) {
      RL_ASSIGN_OR_RETURN(towers_, FingerprintWithTowers(session_, all.front()));
    }
    all.push_back(*towers_);
  }
  // Rows that choose none of several adapters may differ in the last bits from those of a model
  // without any.
  if (adapters_.can_choose()) all[kAdapterFingerprint] = {0, used ? used->key : 0};
  return all;
}

Result<ModelFingerprint> SnapshotKeys::FingerprintFor(std::span<const int32_t> tokens,
                                                      const SharedAdapters& used) {
  RL_ASSIGN_OR_RETURN(const std::vector<ModelFingerprint> parts, FingerprintsFor(tokens, used));
  return Joined(parts);
}

Result<SharedAdapters> SnapshotKeys::CheckFingerprints(const StoredSlot& stored) {
  RL_ASSIGN_OR_RETURN(std::vector<ModelFingerprint> expected, FingerprintsFor(stored.tokens, {}));
  const std::span<const ModelFingerprint> parts = stored.fingerprints;
  const size_t common = std::min(parts.size(), expected.size());
  // The adapters in force follow what every slot has.
  const auto used = adapters_.Restored(parts.subspan(common));
  if (used) {
    RL_ASSIGN_OR_RETURN(expected, FingerprintsFor(stored.tokens, *used));
  }
  const auto [found, missing] = std::ranges::mismatch(parts.first(common), expected);
  if (used && missing == expected.end()) return *used;
  const auto index = missing == expected.end() ? kAdapterFingerprint
                                               : static_cast<size_t>(missing - expected.begin());
  return MakeError(ErrorKind::kUsage, "slot.mismatch",
                   "the slot was saved with another {}; read the prompt again",
                   FingerprintName(index));
}

Result<SnapshotKeys::Owner> SnapshotKeys::OwnerOf(std::span<const int32_t> tokens,
                                                  const SharedAdapters& used,
                                                  std::string_view client) {
  if (!store_) return nullptr;
  RL_ASSIGN_OR_RETURN(std::vector<ModelFingerprint> fingerprints, FingerprintsFor(tokens, used));
  SnapshotStore::Owner out{.fingerprints = std::move(fingerprints), .client = Sha256(client)};
  if (std::ranges::any_of(tokens, IsSoftRow)) {
    out.towers = out.fingerprints.back();
    out.fingerprints.pop_back();
  }
  // Requests may name any factors: only those of the engine are remembered.
  RL_ASSIGN_OR_RETURN(const SharedAdapters own, adapters_.InForce(std::nullopt));
  if (!used || AreSame(own, used)) store_->Expect(out);
  return std::make_shared<const SnapshotStore::Owner>(std::move(out));
}

void SnapshotKeys::AdaptersHaveChanged() {
  // While the model is being hashed, what follows that comes to the same.
  if (hashed()) ExpectOwn();
}

void SnapshotKeys::ExpectOwn() {
  if (const auto own = adapters_.InForce(std::nullopt)) {
    static_cast<void>(OwnerOf({}, *own, std::string_view()));
  }
}

}  // namespace rullama
