#include "backends/gpu/weights.h"

#include <rullama/sdk/dequantize_codebook.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "backends/gpu/in_parallel.h"

namespace rullama::gpu {
namespace {

constexpr uint64_t kVector = 16;           // bytes a shader reads at once
constexpr uint64_t kDecodedElements = 32;  // elements it decodes at once
constexpr uint64_t kParallelBytes = uint64_t{8}
                                    << 20;  // smallest weight repacked on several threads
constexpr uint64_t kStagedBytes = uint64_t{64} << 20;  // repacked before they are copied
constexpr unsigned kMaxThreads = 16;

// A field of a block in the file. Each field has a plane of its own in the device's row.
struct Piece {
  uint32_t from, bytes;
  uint32_t room = bytes;  // in the plane
};

// The fields of a block in the order of their planes. Empty: blocks keep the file's layout.
std::vector<Piece> PiecesOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      return {{2, 16}, {0, 2}};  // quants; scale
    case DType::kQ4_1:
      return {{4, 16}, {0, 4}};  // quants; scale and minimum
    case DType::kQ5_0:
      return {{6, 16}, {2, 4}, {0, 2}};  // quants; high bits; scale
    case DType::kQ5_1:
      return {{8, 16}, {4, 4}, {0, 4}};
    case DType::kQ8_0:
      return {{2, 32}, {0, 2}};
    case DType::kNVFP4:
      return {{4, 32}, {0, 4}};  // quants; four scales
    case DType::kQ2_K:
      return {{16, 64}, {0, 16}, {80, 4}};  // quants; scales and minima; their factors
    case DType::kQ3_K:
      return {{0, 32}, {32, 64}, {96, 14, 16}};  // high bits; quants; scales and factor, one vector
    case DType::kQ6_K:
      return {{0, 208}, {208, 2}};  // quants, high bits and scales; factor
    case DType::kIQ4_XS:
      return {{8, 128}, {0, 8}};
    default:
      return {};
  }
}

bool IsPlain(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// The scale of mxfp4 is 2^(e - 127), which is the upper half of an f32; e = 0 is 2^-127.
uint16_t PowerOfTwo(uint8_t exponent) {
  return exponent == 0 ? uint16_t{0x0040} : static_cast<uint16_t>(exponent << 7);
}

void RepackMxfp4(const WeightShape& shape, const std::byte* row, std::byte* out) {
  for (uint64_t block = 0; block < shape.blocks; ++block) {
    const std::byte* source = row + block * 17;
    std::memcpy(out + block * 16, source + 1, 16);
    const uint16_t scale = PowerOfTwo(static_cast<uint8_t>(source[0]));
    std::memcpy(out + shape.blocks * 16 + block * 2, &scale, sizeof(scale));
  }
}

// How the codes of levels lie on the device: the planes of LoadTwoBits and LoadFourBits
// (blocks.kernel), in bytes for each block.
struct LevelPlanes {
  uint32_t codes;   // two or four bits of each of 256 codes
  uint32_t third;   // their third bits
  uint32_t scales;  // of four bits
  [[nodiscard]] uint32_t bytes() const { return codes + third + scales + 4; }
};

LevelPlanes PlanesOf(DType dtype) {
  if (dtype == DType::kIQ3_XXS || dtype == DType::kIQ3_S) return {128, 0, 4};
  const bool ternary = dtype == DType::kTQ1_0 || dtype == DType::kTQ2_0;
  return {64, ternary ? 0u : 32u, 8};
}

bool HasLevels(DType dtype) { return sdk::FindLevelReader(dtype) != nullptr; }

// Of each 32 codes, four with two bits each in the lowest bits of four bytes, the next four in the
// bits above; the first 16 in one word, the others in the next. Third bits likewise in one word.
void PackTwoBits(const sdk::LevelBlock& block, std::byte* codes, std::byte* third) {
  for (size_t i = 0; i < 256; ++i) {
    const size_t word = i / 16, quad = i % 16 / 4, byte = i % 4;
    codes[word * 4 + byte] |= static_cast<std::byte>((block.codes[i] & 3) << (2 * quad));
    if (third == nullptr) continue;
    const size_t quad_of_32 = i % 32 / 4;
    third[i / 32 * 4 + byte] |= static_cast<std::byte>((block.codes[i] >> 2) << quad_of_32);
  }
}

void PackFourBits(const sdk::LevelBlock& block, std::byte* codes) {
  for (size_t i = 0; i < 256; ++i) {
    const size_t shift = i % 32 < 16 ? 0 : 4;
    codes[i / 32 * 16 + i % 16] |= static_cast<std::byte>(block.codes[i] << shift);
  }
}

void RepackLevels(const WeightShape& shape, const std::byte* row, std::byte* out) {
  const LevelPlanes planes = PlanesOf(shape.dtype);
  const sdk::LevelReader read = sdk::FindLevelReader(shape.dtype);
  const bool two_bits = planes.codes == 64;
  for (uint64_t i = 0; i < shape.blocks; ++i) {
    sdk::LevelBlock block;
    read(row + i * InfoOf(shape.dtype).block_bytes, block);
    std::byte* codes = out + i * planes.codes;
    std::byte* third = out + shape.blocks * planes.codes + i * planes.third;
    if (two_bits) {
      PackTwoBits(block, codes, planes.third == 0 ? nullptr : third);
    } else {
      PackFourBits(block, codes);
    }
    std::byte* header =
        out + shape.blocks * (planes.codes + planes.third) + i * (planes.scales + 4);
    // Four-bit codes have one scale for 32 weights.
    const size_t step = two_bits ? 1 : 2;
    for (size_t run = 0; run < 16 / step; ++run) {
      header[run / 2] |= static_cast<std::byte>(block.scales[run * step] << (run % 2 * 4));
    }
    std::memcpy(header + planes.scales, &block.d, sizeof(block.d));
  }
}

void RepackRow(const WeightShape& shape, const std::vector<Piece>& pieces, const std::byte* row,
               std::byte* out) {
  const uint64_t block_bytes = shape.blocks == 0 ? 0 : shape.file_row / shape.blocks;
  std::byte* plane = out;
  for (const Piece& piece : pieces) {
    for (uint64_t block = 0; block < shape.blocks; ++block) {
      std::memcpy(plane + block * piece.room, row + block * block_bytes + piece.from, piece.bytes);
    }
    plane += shape.blocks * piece.room;
  }
}

}  // namespace

bool IsMatrixType(DType dtype) {
  return IsPlain(dtype) || dtype == DType::kMXFP4 || dtype == DType::kQ4_K ||
         dtype == DType::kQ5_K || HasLevels(dtype) || !PiecesOf(dtype).empty();
}

WeightShape ShapeOf(DType dtype, std::span<const int64_t> dims) {
  WeightShape shape;
  shape.dtype = dtype;
  shape.columns = static_cast<uint64_t>(dims.back());
  for (const int64_t dim : dims.first(dims.size() - 1)) shape.rows *= static_cast<uint64_t>(dim);
  shape.file_row = RowBytes(dtype, shape.columns);
  shape.stride = shape.file_row;
  if (IsBlockType(dtype)) {
    shape.blocks = shape.columns / InfoOf(dtype).block_elements;
    uint64_t bytes = shape.file_row;
    if (dtype == DType::kMXFP4) bytes = shape.blocks * 18;
    if (HasLevels(dtype)) bytes = shape.blocks * PlanesOf(dtype).bytes();
    if (const auto pieces = PiecesOf(dtype); !pieces.empty()) {
      bytes = 0;
      for (const Piece& piece : pieces) bytes += shape.blocks * piece.room;
    }
    shape.stride = RoundUp(bytes, kVector);
  } else if (IsPlain(dtype) && dims.size() > 1) {
    // Products read rows in whole chunks, and multiply what is beyond the end with zeros.
    shape.stride = RowBytes(dtype, RoundUp(shape.columns, kDecodedElements));
  }
  return shape;
}

void Repack(const WeightShape& shape, const std::byte* file, uint64_t first, uint64_t count,
            std::byte* out) {
  const std::vector<Piece> pieces = PiecesOf(shape.dtype);
  for (uint64_t i = 0; i < count; ++i) {
    const std::byte* row = file + (first + i) * shape.file_row;
    std::byte* to = out + i * shape.stride;
    std::memset(to, 0, shape.stride);
    if (shape.dtype == DType::kMXFP4) {
      RepackMxfp4(shape, row, to);
    } else if (HasLevels(shape.dtype)) {
      RepackLevels(shape, row, to);
    } else if (!pieces.empty()) {
      RepackRow(shape, pieces, row, to);
    } else {
      std::memcpy(to, row, shape.file_row);
    }
  }
}

std::vector<WeightRows> PiecesOf(const WeightShape& shape, uint64_t max_bytes) {
  // Prefer pieces that are a multiple of the GEMM tile height.
  constexpr uint64_t kTile = 256;
  if (shape.bytes() <= max_bytes) return {{0, shape.rows}};
  uint64_t count = std::max<uint64_t>(max_bytes / shape.stride, 1);
  if (count > kTile) count -= count % kTile;
  std::vector<WeightRows> pieces;
  for (uint64_t first = 0; first < shape.rows; first += count) {
    pieces.push_back({first, std::min(count, shape.rows - first)});
  }
  return pieces;
}

void RepackAll(const WeightShape& shape, const std::byte* file, std::byte* mapped,
               const std::function<void(uint64_t offset, std::span<const std::byte>)>& write) {
  const uint64_t row = std::max<uint64_t>(shape.stride, 1);
  const uint64_t rows_at_once =
      mapped != nullptr ? shape.rows : std::max<uint64_t>(1, kStagedBytes / row);
  // Repack() fills each row with zeros first, in all threads: one thread would take longer for it
  // than all of them need for the rest.
  std::unique_ptr<std::byte[]> staged;
  if (mapped == nullptr) {
    staged = std::make_unique_for_overwrite<std::byte[]>(std::min(rows_at_once, shape.rows) * row);
  }
  for (uint64_t first = 0; first < shape.rows; first += rows_at_once) {
    const uint64_t count = std::min(rows_at_once, shape.rows - first);
    std::byte* out = mapped != nullptr ? mapped : staged.get();
    const unsigned cores = std::clamp(std::thread::hardware_concurrency(), 1u, kMaxThreads);
    const uint64_t parts = count * row < kParallelBytes ? 1 : std::min<uint64_t>(cores, count);
    InParallel(parts, [&](size_t i) {
      const uint64_t begin = count * i / parts, end = count * (i + 1) / parts;
      Repack(shape, file, first + begin, end - begin, out + begin * row);
    });
    if (mapped == nullptr) write(first * row, {out, count * row});
  }
}

}  // namespace rullama::gpu
