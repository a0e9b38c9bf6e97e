// Which snapshots and saved slots an engine may use: those whose fingerprints of the model, the
// configuration and the adapters are its own.
//
// Ownership: refers to the session and the adapters, which outlive it. Thread safety: all member
// functions from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/snapshot_file.h"
#include "engine/adapters_in_force.h"
#include "engine/loading/model_fingerprint.h"
#include "engine/model_session.h"
#include "engine/scheduling/snapshot_store.h"

namespace rullama {

class SnapshotKeys {
 public:
  using Owner = std::shared_ptr<const SnapshotStore::Owner>;

  // `store`: that of prompts on disk, for which the model is hashed at once, on a thread of its
  // own; null: prompts are not kept there.
  SnapshotKeys(const ModelSession& session, const AdapterTable& adapters,
               std::shared_ptr<SnapshotStore> store);

  // The fingerprints of tokens that were read with these adapters, for the file of a slot. The
  // first call reads the model file. Errors: those of FingerprintsOf().
  Result<std::vector<ModelFingerprint>> FingerprintsFor(std::span<const int32_t> tokens,
                                                        const SharedAdapters& used);
  // The same as one, for the file of a prompt.
  Result<ModelFingerprint> FingerprintFor(std::span<const int32_t> tokens,
                                          const SharedAdapters& used);
  // The adapters that a saved slot was read with. Error slot.mismatch if it is of another model or
  // configuration, or one of them is not loaded.
  Result<SharedAdapters> CheckFingerprints(const StoredSlot& stored);

  // Null: prompts are not kept on disk.
  [[nodiscard]] SnapshotStore* store() const { return store_.get(); }
  // The owner of the snapshots on disk of a client's tokens; null without a store. Errors: as
  // FingerprintsFor().
  Result<Owner> OwnerOf(std::span<const int32_t> tokens, const SharedAdapters& used,
                        std::string_view client);
  // To be called after SetScales(): makes the snapshots on disk of the adapters now in force
  // usable.
  void AdaptersHaveChanged();

 private:
  void ExpectOwn();
  // Whether the fingerprints for snapshots on disk are known.
  [[nodiscard]] bool hashed() const {
    return hashing_.valid() &&
           hashing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  const ModelSession& session_;
  const AdapterTable& adapters_;
  const std::shared_ptr<SnapshotStore> store_;
  std::mutex mutex_;  // guards the fingerprints
  std::vector<ModelFingerprint> fingerprints_;
  std::optional<ModelFingerprint> towers_;
  std::future<void> hashing_;  // of the model, for the store; waits for its end
};

}  // namespace rullama
