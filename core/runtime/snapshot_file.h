// Snapshots in files: a GGUF file (general.type "snapshot") with the tokens before its
// position, the model's fingerprint, a checksum, and one tensor of each state's rows.
//
// Thread safety: pure functions apart from the file.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "core/runtime/snapshot.h"

namespace rullama {

// Tells models apart, with all of their configuration that changes the numbers in a cache and is
// not seen in the types of the states.
using ModelFingerprint = std::array<uint64_t, 2>;

struct StoredSnapshot {
  Snapshot snapshot;
  std::vector<int32_t> tokens;  // those before its position
  ModelFingerprint model = {};
};

// Writes a complete snapshot; the file appears under its name once it is whole, and replaces an
// older one. Errors: session.internal if the snapshot is not complete or there are not
// `position` tokens; io.*.
Status WriteSnapshot(const StoredSnapshot& stored, const std::filesystem::path& path);

// Errors: io.*, gguf.*; snapshot.file (kModelFile) for a file that is not a snapshot, of another
// version, or damaged; snapshot.memory. Whether it fits a session is for
// Session::Restore to say, and whether it is of the same model for the caller.
Result<StoredSnapshot> ReadSnapshot(const std::filesystem::path& path);
Result<StoredSnapshot> ParseSnapshot(const GgufFile& file);

}  // namespace rullama
