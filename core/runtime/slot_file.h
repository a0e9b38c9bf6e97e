// Slots in files: what a slot of a session held, for a later start of the same program with the
// same model.
//
//   8   "rullslot"
//   4   version
//   4   bytes of the header, which ends before the rows
//   8   bytes of the file
//   4   number of fingerprints, 16 bytes each
//   32  owner
//   4   tokens whose rows were read in chunks
//   4   number of tokens, 4 bytes each
//   4   number of snapshots: for each its position, its written positions and the number of its
//       parts, 4 bytes each; for each part name and type of rows (4 bytes of length, text), bytes
//       of a row, rows of the state and rows here, 8 bytes each
//       the rows of all parts, in this order
//   32  SHA-256 of all before it
//
// Numbers are little endian. The first snapshot is complete, after all tokens; the others have the
// rings after earlier tokens, ascending.
//
// Thread safety: pure functions apart from the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "core/base/sha256.h"
#include "core/base/status.h"
#include "core/runtime/snapshot.h"
#include "core/runtime/snapshot_file.h"

namespace rullama {

// The beginning of a file of a slot.
struct SlotFileHeader {
  std::vector<ModelFingerprint> fingerprints;  // each of another thing that changes the numbers
  Sha256Digest owner = {};                     // of the name of the client whose rows these are
  std::vector<int32_t> tokens;
  int64_t chunked = 0;  // the rows of the first tokens, which were read in chunks
};

struct StoredSlot : SlotFileHeader {
  std::shared_ptr<const Snapshot> all;  // complete, after all tokens
  // With the rings only, at positions up to `chunked`, ascending.
  std::vector<std::shared_ptr<Snapshot>> rings;
};

// Writes a slot, whose size it tells before. Borrows the slot.
class SlotFileWriter {
 public:
  explicit SlotFileWriter(const StoredSlot& slot);

  [[nodiscard]] uint64_t file_bytes() const { return file_bytes_; }
  // The file may be read by its owner only; it appears under its name once it is whole, and
  // replaces an older one. Errors: session.internal if the parts do not belong together; slot.file
  // if the path is a link or anything other than a regular file; io.*.
  [[nodiscard]] Status Write(const std::filesystem::path& path) const;

 private:
  const StoredSlot& slot_;
  std::vector<std::byte> header_;
  uint64_t file_bytes_;
};

// Nothing is allocated before all sizes agree with that of the file, and nothing is returned before
// the sum agrees. Errors: slot.not_found if there is no such plain file; slot.corrupt for one that
// is damaged or of another format; snapshot.memory; io.*.
Result<StoredSlot> ReadSlotFile(const std::filesystem::path& path);
Result<StoredSlot> ParseSlotFile(std::span<const std::byte> bytes);
// The header alone, whose bytes are not checked against the sum. Errors: as ReadSlotFile().
Result<SlotFileHeader> ReadSlotFileHeader(const std::filesystem::path& path);

}  // namespace rullama
