// The rows that a slot's caches hold at a position, in host memory: what Session::Save takes and
// Session::Restore puts back, into any slot of any session of the same model that it fits.
//
// A complete snapshot has all rows a sequence needs. One without the long states (SnapshotContent)
// has the rings only; it is small, and of use while the rows of its slot before its position have
// not been given up.
//
// Ownership: owns its bytes; moves, never copies. Thread safety: immutable once made; any thread
// may read. Errors: snapshot.memory (kOutOfMemory).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace rullama {

enum class SnapshotContent : uint8_t {
  kAll,
  // Without the states that have the most rows (the caches of global layers), which going back in
  // the same slot does not change.
  kRings,
};

// The rows of one state.
struct SnapshotPart {
  std::string state;
  std::string row_type;  // element type and shape of a row
  uint64_t row_bytes = 0;
  int64_t state_rows = 0;  // rows of the state in each slot
  int64_t rows = 0;        // of these, the first ones that are here

  [[nodiscard]] uint64_t bytes() const { return static_cast<uint64_t>(rows) * row_bytes; }
  friend bool operator==(const SnapshotPart&, const SnapshotPart&) = default;
};

// The description of a snapshot.
struct SnapshotInfo {
  SnapshotContent content = SnapshotContent::kAll;
  int32_t position = 0;  // tokens before it are in the caches
  // The slot had been written to here: `position`, or one more where a ring had wrapped.
  int32_t written = 0;
  std::vector<SnapshotPart> parts = {};  // their bytes follow one another in this order
};

class Snapshot {
 public:
  // Its bytes are not initialised. The sizes of the parts are the caller's to check.
  static Result<Snapshot> Allocate(SnapshotInfo info);

  [[nodiscard]] const SnapshotInfo& info() const { return info_; }
  [[nodiscard]] int32_t position() const { return info_.position; }
  [[nodiscard]] bool complete() const { return info_.content == SnapshotContent::kAll; }
  // The size in memory.
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  // The rows of all parts.
  [[nodiscard]] std::span<const std::byte> data() const {
    return {data_.get(), static_cast<size_t>(bytes_)};
  }
  [[nodiscard]] std::span<std::byte> data() { return {data_.get(), static_cast<size_t>(bytes_)}; }

 private:
  friend class Session;

  // Where an incomplete snapshot was taken.
  struct Origin {
    std::shared_ptr<const int> session;  // identifies it, also after its end
    int32_t slot = 0;
    uint64_t moment = 0;  // of its SlotLog
  };

  Snapshot() = default;

  SnapshotInfo info_;
  Origin origin_;
  std::unique_ptr<std::byte[]> data_;
  uint64_t bytes_ = 0;
};

}  // namespace rullama
