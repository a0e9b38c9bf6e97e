// Any bytes give a snapshot or an error; one that is read says the same once it is written again.
#include <cstdint>
#include <span>

#include "core/base/check.h"
#include "core/gguf/gguf.h"
#include "core/runtime/snapshot_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = rullama::GgufFile::Parse(std::as_bytes(std::span(data, size)));
  if (!file) return 0;
  const auto stored = rullama::ParseSnapshot(*file);
  if (!stored) {
    RL_CHECK(!stored.error().id.empty() && !stored.error().message.empty());
    return 0;
  }
  const rullama::SnapshotInfo& info = stored->snapshot.info();
  RL_CHECK(std::ssize(stored->tokens) == info.position);
  uint64_t bytes = 0;
  for (const rullama::SnapshotPart& part : info.parts) bytes += part.bytes();
  RL_CHECK(bytes == stored->snapshot.bytes());
  return 0;
}
