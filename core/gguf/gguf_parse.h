// The validating pass over a GGUF header. Internal to core/gguf; use GgufFile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/gguf.h"

namespace rullama::gguf_internal {

// The beginning of a file, or all of it.
struct GgufHead {
  std::span<const std::byte> bytes;
  uint64_t file_bytes = 0;  // of the whole file
  // Set by a parse that failed because `bytes` end: it needs at least as many.
  uint64_t needed = 0;
};

// The views in the result borrow `head.bytes`.
Result<GgufContents> ParseGguf(GgufHead& head);

// Sorts the index of keys, or of tensors, by name; equal names become neighbours.
void IndexKeys(GgufContents& contents);
void IndexTensors(GgufContents& contents);

// The paths of all parts of a split model, of which `named` is one ("x-00002-of-00003.gguf").
// Errors: gguf.split for a name that does not say which part it is; gguf.split_missing names the
// parts that are not there.
Result<std::vector<std::filesystem::path>> PartPaths(const std::filesystem::path& named,
                                                     const GgufSplit& split);

// One model from its parts in order: metadata of the first part, tensors of all. Errors: gguf.split
// for parts that do not belong together, gguf.tensor_duplicate.
Result<GgufContents> JoinParts(std::vector<GgufContents> parts,
                               std::span<const std::filesystem::path> paths);

// Checks where tensors lie: alignment, extent, overlap, truncation. On entry `offset` of each
// tensor is the number of the file (relative to `data_offset`); on success it is absolute.
Status PlaceTensors(uint64_t file_bytes, GgufContents& contents);

// Guesses the format of a file that is not GGUF: "a ZIP archive", "a web page (HTML)"...
// Precondition: at least 4 bytes.
std::string LooksLike(std::span<const std::byte> file);

}  // namespace rullama::gguf_internal
