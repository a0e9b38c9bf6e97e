// Packing of weight rows into groups of sixteen (packed_rows.h), and dequantisation of packed rows.
// Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/dequantize_rows.h"
#include "backends/cpu/kernels/packed_rows.h"

namespace rullama::cpu {
namespace {

// The inverse of SourceWord(): the packed position of each GGUF word.
template <DType T>
struct PackedPositions {
  constexpr PackedPositions() : of_word{} {
    for (size_t position = 0; position < kWords<T>; ++position)
      of_word[PackedBlock<T>::SourceWord(position)] = position;
  }
  size_t of_word[kWords<T>];
};

// Bytes of the words of a chunk, rounded up to whole vectors.
template <DType T>
constexpr size_t kStagedBytes = (kChunk / kBlockElements<T> * kWords<T> * 4 + 63) / 64 * 64;

// Changes word 0 of a GGUF block by `change`, where packing does not keep that word's bits in
// order.
template <DType T, typename F>
RL_INLINE void ChangeFirstWord(uint8_t* words, F change) {
  if constexpr (T == DType::kQ5_0) {
    const uint32_t word = change(LoadU32(words));
    std::memcpy(words, &word, sizeof(word));
  }
}

// Packs blocks [block, block + blocks) of sixteen rows, at most a chunk.
template <DType T>
void PackBlocks(const uint8_t* rows, size_t row_bytes, size_t block, size_t blocks, uint8_t* d,
                uint8_t* words) {
  constexpr PackedPositions<T> kPositions;
  constexpr size_t kBytes = BlockType<T>::kBlockBytes;
  alignas(64) uint8_t staged[kLanes][kStagedBytes<T>];
  for (size_t r = 0; r < kLanes; ++r) {
    const uint8_t* from = rows + r * row_bytes + block * kBytes;
    for (size_t b = 0; b < blocks; ++b, from += kBytes) {
      std::memcpy(d + (b * kLanes + r) * kDBytes<T>, from + PackedBlock<T>::kDOffset, kDBytes<T>);
      std::memcpy(staged[r] + b * kWords<T> * 4, from + kWordsOffset<T>, kWords<T> * 4);
      ChangeFirstWord<T>(staged[r] + b * kWords<T> * 4, [](uint32_t word) {
        return PackedBlock<DType::kQ5_0>::TransposeHighBits(word);
      });
    }
  }
  const size_t count = blocks * kWords<T>;
  for (size_t first = 0; first < count; first += 16) {
    U8x64 sixteen[kLanes];
    for (size_t r = 0; r < kLanes; ++r) sixteen[r] = LoadBytes(staged[r] + 4 * first);
    alignas(64) uint8_t transposed[16][64];
    StoreTransposed(sixteen, transposed[0], 64);
    const size_t here = count - first < 16 ? count - first : 16;
    for (size_t i = 0; i < here; ++i) {
      const size_t b = (first + i) / kWords<T>, word = (first + i) % kWords<T>;
      StoreBytes(words + (b * kWords<T> + kPositions.of_word[word]) * 64, LoadBytes(transposed[i]));
    }
  }
}

template <DType T>
void PackRows(const void* rows, size_t row_bytes, size_t k, void* out) {
  constexpr size_t kBlocksPerChunk = kChunk / kBlockElements<T>;
  const PackedRows<T> packed(out, k);
  const size_t blocks = k / kBlockElements<T>;
  for (size_t block = 0; block < blocks; block += kBlocksPerChunk) {
    const size_t left = blocks - block;
    PackBlocks<T>(static_cast<const uint8_t*>(rows), row_bytes, block,
                  left < kBlocksPerChunk ? left : kBlocksPerChunk,
                  const_cast<uint8_t*>(packed.D(block)), const_cast<uint8_t*>(packed.Words(block)));
  }
}

template <DType T>
void DequantizePackedRow(const void* group, size_t row, size_t k, size_t first, size_t count,
                         float* out) {
  using P = PackedBlock<T>;
  constexpr size_t kElements = kBlockElements<T>;
  const PackedRows<T> packed(group, k);
  for (size_t done = 0; done < count; done += kElements, out += kElements) {
    const size_t block = (first + done) / kElements;
    uint8_t bytes[kChunkBytes<T>] = {};
    std::memcpy(bytes + P::kDOffset, packed.D(block) + row * kDBytes<T>, kDBytes<T>);
    for (size_t w = 0; w < kWords<T>; ++w) {
      std::memcpy(bytes + kWordsOffset<T> + 4 * P::SourceWord(w),
                  packed.Words(block) + (w * kLanes + row) * 4, 4);
    }
    ChangeFirstWord<T>(bytes + kWordsOffset<T>, [](uint32_t word) {
      return PackedBlock<DType::kQ5_0>::RestoreHighBits(word);
    });
    DequantizeChunk<T>(bytes, kElements, out);
  }
}

}  // namespace
}  // namespace rullama::cpu
