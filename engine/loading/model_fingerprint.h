// Tells whether two processes compute the same bytes of a prompt.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/snapshot_file.h"
#include "engine/model_session.h"

namespace rullama {

// A hash of all bytes of the model file and of what else changes the numbers in the caches: the
// version of rullama, adapters, backend, device and driver, the backend's options, the length of a
// chunk.
// Reads the whole file, at the speed of memory once it is cached. Safe from any thread while the
// session exists. Error io.mapped_file_changed.
Result<ModelFingerprint> FingerprintOf(const ModelSession& session);
// The hashes of which it is made, each of one thing: the model, then the others in the order of
// FingerprintName(). Errors and cost as above.
Result<std::vector<ModelFingerprint>> FingerprintsOf(const ModelSession& session);
// The thing that has this place among them, for messages.
std::string_view FingerprintName(size_t index);
// The same for prompts with pictures or sounds: of `model` and the file of the towers, unless they
// are in the model file.
Result<ModelFingerprint> FingerprintWithTowers(const ModelSession& session,
                                               const ModelFingerprint& model);

}  // namespace rullama
