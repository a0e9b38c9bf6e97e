// Tells whether two processes compute the same bytes of a prompt.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/snapshot_file.h"
#include "engine/model_session.h"

namespace rullama {

// Hashes of all bytes of the model file and of what else changes the numbers in the caches: the
// version of rullama, adapters, backend, device and driver, the backend's options, the length of a
// chunk. Each is of one thing: the model, then the others in the order of FingerprintName().
// Reads the whole file, at the speed of memory once it is cached. Safe from any thread while the
// session exists. Errors: io.mapped_file_changed; io.read and memory.host of a file that is read by
// ranges.
Result<std::vector<ModelFingerprint>> FingerprintsOf(const ModelSession& session);
// A hash of the file: of all its bytes, or of its header and tensors where it is read by ranges.
// Errors: those of GgufFile::Load.
Result<ModelFingerprint> FingerprintOf(const GgufFile& file, uint64_t seed);
// The place of that of the adapters.
inline constexpr size_t kAdapterFingerprint = 1;
// One hash of them all.
ModelFingerprint Joined(std::span<const ModelFingerprint> parts);
// The thing that has this place among them, for messages.
std::string_view FingerprintName(size_t index);
// One more for prompts with pictures or sounds: of `model` and the file of the towers, unless they
// are in the model file. Errors and cost as those of FingerprintsOf().
Result<ModelFingerprint> FingerprintWithTowers(const ModelSession& session,
                                               const ModelFingerprint& model);

}  // namespace rullama
