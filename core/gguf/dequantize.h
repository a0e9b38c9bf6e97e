// GGUF block types to float32. These results define what a block means: backends and the reference
// interpreter are compared with them, so each formula rounds in the order of ggml's reference code
// and is bit-exact against it (tests/data/quant).
//
// Thread safety: pure functions.
#pragma once

#include <rullama/sdk/dtype.h>

#include <cstddef>
#include <span>
#include <string>

#include "core/base/status.h"

namespace rullama {

// Whether Dequantize knows the layout of `dtype`. Some types that files may carry are recognised by
// name and size only.
[[nodiscard]] bool CanDequantize(DType dtype);

// Names of all types that CanDequantize, separated by spaces, for messages.
[[nodiscard]] std::string DequantizableTypes();

// Decodes whole blocks: `out` receives out.size() values from exactly RowBytes(dtype, out.size())
// bytes. `blocks` needs no alignment. Integers and f64 are converted to the nearest float.
// Errors: gguf.type (kind kModelFile) for a type that cannot be decoded; gguf.dequantize_size if
// the sizes of the spans do not belong together.
Status Dequantize(DType dtype, std::span<const std::byte> blocks, std::span<float> out);

}  // namespace rullama
