// One kernel per block type, for finite values of at most kHalfMax. Internal to core/gguf; use
// Quantize.
#pragma once

#include <cstddef>

namespace rullama::gguf_internal {

// Encodes count * (elements per block) floats into `count` consecutive blocks. `weights`: how much
// the squared error of each counts; null: all the same. Types that only round do not read them.
using QuantizeKernel = void (*)(const float* values, const float* weights, size_t count,
                                std::byte* blocks);

// Blocks of 32 (quantize_block32.cc).
void QuantizeQ4_0(const float* values, const float* weights, size_t count, std::byte* blocks);
void QuantizeQ4_1(const float* values, const float* weights, size_t count, std::byte* blocks);
void QuantizeQ5_0(const float* values, const float* weights, size_t count, std::byte* blocks);
void QuantizeQ5_1(const float* values, const float* weights, size_t count, std::byte* blocks);
void QuantizeQ8_0(const float* values, const float* weights, size_t count, std::byte* blocks);

// Codes of a table of points (quantize_lookup.cc).
void QuantizeIq4Nl(const float* values, const float* weights, size_t count, std::byte* blocks);
void QuantizeIq4Xs(const float* values, const float* weights, size_t count, std::byte* blocks);
void QuantizeMxfp4(const float* values, const float* weights, size_t count, std::byte* blocks);

// Super-blocks of 256 (quantize_block256.cc).
void QuantizeQ2K(const float* values, const float* weights, size_t count, std::byte* blocks);
void QuantizeQ3K(const float* values, const float* weights, size_t count, std::byte* blocks);
void QuantizeQ4K(const float* values, const float* weights, size_t count, std::byte* blocks);
void QuantizeQ5K(const float* values, const float* weights, size_t count, std::byte* blocks);
void QuantizeQ6K(const float* values, const float* weights, size_t count, std::byte* blocks);

}  // namespace rullama::gguf_internal
