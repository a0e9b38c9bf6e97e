// float32 to GGUF block types, the way back from Dequantize. Scales are found by least squares, so
// that the squared error of a block is close to the smallest that its layout allows. Every value of
// a block counts the same, or as much as the activations that it is multiplied with.
//
// The bytes depend on the values and their importance alone. Thread safety: pure functions.
#pragma once

#include <rullama/sdk/dtype.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/base/status.h"

namespace rullama {

// Whether Quantize can write `dtype`: f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k and
// q6_k.
[[nodiscard]] bool CanQuantize(DType dtype);

// Names of all types that CanQuantize, separated by spaces, for messages.
[[nodiscard]] std::string QuantizableTypes();

// Encodes whole blocks: blocks.size() is exactly RowBytes(dtype, values.size()).
// `importance`: for each value the mean square of its activations, not negative; empty: unknown.
// Errors: gguf.quantize_value (kind kModelFile) for a value that is not finite or, unless the type
// is f32 or bf16, beyond what f16 scales reach, named by its index; gguf.quantize_type and
// gguf.quantize_size (kRuntime) for a wrong call.
// `first_element` is the index of values[0] in its tensor, for messages.
Status Quantize(DType dtype, std::span<const float> values, std::span<std::byte> blocks,
                uint64_t first_element = 0, std::span<const float> importance = {});

}  // namespace rullama
