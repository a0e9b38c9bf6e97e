// Reader of GGUF model files, versions 2 and 3.
//
// Opening makes one pass over the header that checks every length, count, offset and product
// against the size of the file; after that, no accessor can leave the file. Metadata and tensors
// are views into the mapping, so opening costs neither copies of strings nor reads of weights.
// Where files cannot be mapped, the header and small tensors are read, and others when they are
// asked for.
//
// Ownership: a GgufFile from Open owns its mapping, or what it has read; one from Parse borrows the
// caller's bytes. Every view handed out (names, strings, tensor data) lives as long as those bytes;
// moving a GgufFile keeps views valid. A model that is split into several files
// ("x-00001-of-00003.gguf") is opened by the name of any part and read as if it were one file, with
// the metadata of the first part. Thread safety: immutable after Open; any thread may read. Errors:
// kind kModelFile with ids gguf.* unless stated otherwise; each says what was found, what was
// expected and what to do.
//
// The folder: gguf_writer.h writes such files through atomic_file.h, as every command does;
// dequantize.h decodes their block types with the decoders of the SDK, which plugins use as well;
// quantize.h encodes the common ones.
#pragma once

#include <rullama/sdk/dtype.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/mmap_file.h"
#include "core/base/range_reader.h"
#include "core/base/status.h"
#include "core/gguf/gguf_value.h"

namespace rullama {

// Limits of the format.
inline constexpr uint32_t kGgufMagic = 0x46554747;  // "GGUF"
inline constexpr size_t kGgufMaxRank = 4;
inline constexpr size_t kGgufMaxKeyBytes = 65535;
inline constexpr size_t kGgufMaxTensorNameBytes = 64;
inline constexpr uint32_t kGgufDefaultAlignment = 32;
inline constexpr uint32_t kGgufMinAlignment = 8;
// A huge page; nothing gains from more.
inline constexpr uint32_t kGgufMaxAlignment = uint32_t{1} << 21;

// Limits of this reader, far above every real model. A sparse file may claim any size while it
// takes no space, so counts that fit the file can still ask for more memory than there is.
inline constexpr uint64_t kGgufMaxArrayElements = uint64_t{1} << 24;
inline constexpr uint64_t kGgufMaxStringBytes = uint64_t{1} << 28;
inline constexpr uint64_t kGgufMaxHeaderBytes = uint64_t{1} << 30;  // metadata and tensor table

// Scales, norms and numbers of layers, which models look at when they are opened.
inline constexpr uint64_t kGgufSmallTensorBytes = uint64_t{1} << 16;

[[nodiscard]] constexpr bool IsGgufAlignment(uint32_t alignment) {
  return std::has_single_bit(alignment) && alignment >= kGgufMinAlignment &&
         alignment <= kGgufMaxAlignment;
}

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

struct TensorInfo {
  std::string_view name;
  DType dtype = DType::kF32;
  uint32_t rank = 0;                             // 1..4
  std::array<uint64_t, kGgufMaxRank> dims = {};  // fastest first; 1 beyond `rank`
  uint64_t offset = 0;                           // from the start of its part, aligned
  uint64_t bytes = 0;                            // inside the part
  uint32_t part = 0;                             // the file it lies in, of a split model

  [[nodiscard]] uint64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
};

// What a part of a split model says about itself.
struct GgufSplit {
  uint64_t part = 0;  // counted from 0
  uint64_t parts = 1;
  std::optional<uint64_t> tensors;  // of all parts
};

// The content of a file after validation; filled by ParseGguf, read through GgufFile.
struct GgufContents {
  uint32_t version = 0;
  uint32_t alignment = kGgufDefaultAlignment;
  uint64_t data_offset = 0;        // where tensor data begins, from the start of the file
  std::optional<GgufSplit> split;  // set in one of several parts
  std::vector<GgufEntry> metadata;
  std::vector<TensorInfo> tensors;
  // Indices into the two vectors, sorted by name. A sorted index instead of a hash table: a hostile
  // file cannot choose names that make it slow.
  std::vector<uint32_t> keys_by_name;
  std::vector<uint32_t> tensors_by_name;
};

class GgufFile {
 public:
  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  // Any part of a split model opens all of them. Errors besides gguf.*: io.open (no such file),
  // io.permission, io.mmap.
  static Result<GgufFile> Open(const std::filesystem::path& path);
  // A file that is read by ranges. Errors: gguf.*, io.read; gguf.split for a part of a split model.
  static Result<GgufFile> Read(std::unique_ptr<RangeReader> reader);
  // `bytes` must outlive the GgufFile. Error gguf.split for a part of a split model.
  static Result<GgufFile> Parse(std::span<const std::byte> bytes);

  [[nodiscard]] uint32_t version() const { return contents_.version; }
  [[nodiscard]] uint32_t alignment() const { return contents_.alignment; }
  // Of the first part.
  [[nodiscard]] uint64_t data_offset() const { return contents_.data_offset; }
  // The metadata in the order of the file, of the first part without its split.* keys.
  [[nodiscard]] std::span<const GgufEntry> metadata() const { return contents_.metadata; }
  [[nodiscard]] std::span<const TensorInfo> tensors() const { return contents_.tensors; }
  // The whole file, or the first part; of a file that is read by ranges, its header.
  [[nodiscard]] std::span<const std::byte> bytes() const { return parts_.front(); }
  // All parts of a split model in order; else the file alone, as in bytes().
  [[nodiscard]] std::span<const std::span<const std::byte>> parts() const { return parts_; }
  // Bytes of all parts.
  [[nodiscard]] uint64_t total_bytes() const;
  // The path of the file, or of the first part; empty if it was parsed from memory.
  [[nodiscard]] std::string path() const;
  // The paths of all parts; none if the file was parsed from memory.
  [[nodiscard]] std::vector<std::string> paths() const;

  [[nodiscard]] bool Has(std::string_view key) const { return Find(key) != nullptr; }
  // Returns null if there is no such tensor.
  [[nodiscard]] const GgufValue* Find(std::string_view key) const;
  [[nodiscard]] const TensorInfo* FindTensor(std::string_view name) const;

  // The bytes of a tensor of a file that is mapped or was parsed. In one that is read by ranges
  // only tensors of at most kGgufSmallTensorBytes have any, so code for every file uses Load().
  [[nodiscard]] std::span<const std::byte> data(const TensorInfo& tensor) const;
  // `count` bytes of a tensor from its byte `first` on: in place, or read into memory that stays
  // until they are released. Error io.read.
  [[nodiscard]] Result<std::span<const std::byte>> Load(const TensorInfo& tensor, uint64_t first,
                                                        uint64_t count) const;
  // All bytes of a tensor. Small ones are there already.
  [[nodiscard]] Result<std::span<const std::byte>> Load(const TensorInfo& tensor) const;

  // Copies bytes of a tensor from its byte `first` on. Error io.read.
  [[nodiscard]] Status Copy(const TensorInfo& tensor, uint64_t first,
                            std::span<std::byte> to) const;
  // Whether Load() reads bytes into memory.
  [[nodiscard]] bool is_read_by_ranges() const { return ranges_ != nullptr; }

  // Frees bytes that Load() read: they are not to be used any more. For others
  // MmapFile::Release. Nothing for bytes that no file has.
  void Release(std::span<const std::byte> range) const;

  // Typed access. GetX requires the key (gguf.key_missing); FindX gives nothing when it is absent.
  // A key that is present with another type is gguf.key_type in both. Integers are accepted in any
  // width and signedness that holds the value, floats in both widths.
  [[nodiscard]] Result<uint32_t> GetU32(std::string_view key) const;
  [[nodiscard]] Result<uint64_t> GetU64(std::string_view key) const;
  [[nodiscard]] Result<float> GetF32(std::string_view key) const;
  [[nodiscard]] Result<bool> GetBool(std::string_view key) const;
  [[nodiscard]] Result<std::string_view> GetString(std::string_view key) const;
  [[nodiscard]] Result<GgufStrings> GetStrings(std::string_view key) const;
  [[nodiscard]] Result<GgufNumbers<float>> GetF32Array(std::string_view key) const;
  [[nodiscard]] Result<std::vector<int32_t>> GetI32Array(std::string_view key) const;

  [[nodiscard]] Result<std::optional<uint32_t>> FindU32(std::string_view key) const;
  [[nodiscard]] Result<std::optional<float>> FindF32(std::string_view key) const;
  [[nodiscard]] Result<std::optional<bool>> FindBool(std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::string_view>> FindString(std::string_view key) const;
  [[nodiscard]] Result<std::optional<GgufStrings>> FindStrings(std::string_view key) const;
  [[nodiscard]] Result<std::optional<GgufNumbers<float>>> FindF32Array(std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::vector<int32_t>>> FindI32Array(
      std::string_view key) const;

  // Hyperparameters that converters write either once for all layers or as one value per layer:
  // always `count` values. Error model.array_length for an array of another length.
  [[nodiscard]] Result<std::vector<uint32_t>> GetU32PerLayer(std::string_view key,
                                                             size_t count) const;
  [[nodiscard]] Result<std::vector<bool>> GetBoolPerLayer(std::string_view key, size_t count) const;

  // Error io.mapped_file_changed (kind kIo) if a file shrank or grew since Open. Reading weights
  // from a mapping of a shrunken file would raise SIGBUS.
  [[nodiscard]] Status CheckUnchanged() const;

 private:
  class Ranges;  // of a file that is read by ranges

  GgufFile();

  std::vector<MmapFile> files_;  // by part; none without a mapping
  std::unique_ptr<Ranges> ranges_;
  std::vector<std::span<const std::byte>> parts_;  // at least one
  GgufContents contents_;
};

}  // namespace rullama
