// Any bytes give a snapshot, or a slot, or an error; what was read fits its description.
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/base/check.h"
#include "core/base/sha256.h"
#include "core/gguf/gguf.h"
#include "core/runtime/slot_file.h"
#include "core/runtime/snapshot_file.h"

namespace {

void CheckSizes(const rullama::Snapshot& snapshot) {
  uint64_t bytes = 0;
  for (const rullama::SnapshotPart& part : snapshot.info().parts) bytes += part.bytes();
  RL_CHECK(bytes == snapshot.bytes());
}

void ReadSnapshotOf(std::span<const std::byte> bytes) {
  const auto file = rullama::GgufFile::Parse(bytes);
  if (!file) return;
  const auto stored = rullama::ParseSnapshot(*file);
  if (!stored) {
    RL_CHECK(!stored.error().id.empty() && !stored.error().message.empty());
    return;
  }
  RL_CHECK(std::ssize(stored->tokens) == stored->snapshot.position());
  CheckSizes(stored->snapshot);
}

void ReadSlotOf(std::span<const std::byte> bytes) {
  const auto slot = rullama::ParseSlotFile(bytes);
  if (!slot) {
    RL_CHECK(!slot.error().id.empty() && !slot.error().message.empty());
    return;
  }
  RL_CHECK(slot->all->position() == std::ssize(slot->tokens));
  RL_CHECK(rullama::SlotFileWriter(*slot).file_bytes() == bytes.size());
  CheckSizes(*slot->all);
  for (const auto& rings : slot->rings) CheckSizes(*rings);
}

// With the size and the sum that the file of a slot has to have, so that its header is read.
std::vector<std::byte> WithSizeAndSum(std::span<const std::byte> bytes) {
  constexpr size_t kSize = 16;  // its place
  std::vector<std::byte> fixed(bytes.begin(), bytes.end());
  const size_t sum = fixed.size() - sizeof(rullama::Sha256Digest);
  const uint64_t size = fixed.size();
  std::memcpy(fixed.data() + kSize, &size, sizeof(size));
  const rullama::Sha256Digest digest = rullama::Sha256(std::span(fixed).first(sum));
  std::memcpy(fixed.data() + sum, digest.data(), digest.size());
  return fixed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  ReadSnapshotOf(bytes);
  ReadSlotOf(bytes);
  constexpr size_t kLeast = 24 + sizeof(rullama::Sha256Digest);
  if (size >= kLeast) ReadSlotOf(WithSizeAndSum(bytes));
  return 0;
}
