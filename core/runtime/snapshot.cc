#include "core/runtime/snapshot.h"

#include <new>
#include <utility>

namespace rullama {

Result<Snapshot> Snapshot::Allocate(SnapshotInfo info) {
  Snapshot snapshot;
  for (const SnapshotPart& part : info.parts) snapshot.bytes_ += part.bytes();
  snapshot.data_.reset(new (std::nothrow) std::byte[static_cast<size_t>(snapshot.bytes_)]);
  if (snapshot.data_ == nullptr) {
    return MakeError(ErrorKind::kOutOfMemory, "snapshot.memory",
                     "no memory for a snapshot of {} bytes at position {}; keep fewer snapshots",
                     snapshot.bytes_, info.position);
  }
  snapshot.info_ = std::move(info);
  return snapshot;
}

}  // namespace rullama
