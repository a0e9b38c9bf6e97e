// One kernel per block type. Internal to core/gguf; use Dequantize.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rullama::gguf_internal {

// Decodes `count` consecutive blocks into count * (elements per block) floats.
using DequantizeKernel = void (*)(const std::byte* blocks, size_t count, float* out);

// Blocks of 32 and 64 (dequantize_block32.cc).
void DequantizeQ4_0(const std::byte* blocks, size_t count, float* out);
void DequantizeQ4_1(const std::byte* blocks, size_t count, float* out);
void DequantizeQ5_0(const std::byte* blocks, size_t count, float* out);
void DequantizeQ5_1(const std::byte* blocks, size_t count, float* out);
void DequantizeQ8_0(const std::byte* blocks, size_t count, float* out);
void DequantizeIq4Nl(const std::byte* blocks, size_t count, float* out);
void DequantizeMxfp4(const std::byte* blocks, size_t count, float* out);
void DequantizeNvfp4(const std::byte* blocks, size_t count, float* out);

// Super-blocks of 256 (dequantize_block256.cc).
void DequantizeQ2K(const std::byte* blocks, size_t count, float* out);
void DequantizeQ3K(const std::byte* blocks, size_t count, float* out);
void DequantizeQ4K(const std::byte* blocks, size_t count, float* out);
void DequantizeQ5K(const std::byte* blocks, size_t count, float* out);
void DequantizeQ6K(const std::byte* blocks, size_t count, float* out);
void DequantizeIq4Xs(const std::byte* blocks, size_t count, float* out);

// The sixteen values of IQ4_NL and IQ4_XS, denser around zero where weights are.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace rullama::gguf_internal
