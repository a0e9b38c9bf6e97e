// The validating pass over a GGUF header. Internal to core/gguf; use GgufFile.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/base/status.h"
#include "core/gguf/gguf.h"

namespace rullama::gguf_internal {

// `file` is the whole file. The views in the result borrow it.
Result<GgufContents> ParseGguf(std::span<const std::byte> file);

// Checks where tensors lie: alignment, extent, overlap, truncation. On entry `offset` of each
// tensor is the number of the file (relative to `data_offset`); on success it is absolute.
Status PlaceTensors(uint64_t file_bytes, GgufContents& contents);

// Guesses the format of a file that is not GGUF: "a ZIP archive", "a web page (HTML)"...
// Precondition: at least 4 bytes.
std::string LooksLike(std::span<const std::byte> file);

}  // namespace rullama::gguf_internal
