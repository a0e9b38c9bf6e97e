// Reader and writer of safetensors files: u64 length of the header, little endian; a JSON object
// {name: {dtype, shape, data_offsets}} with an optional member __metadata__ of strings; the data of
// the tensors without holes or overlaps.
//
// Ownership: a file from Open() owns its mapping, one from Parse() borrows the caller's bytes.
// Thread safety: immutable after opening.
// Errors: safetensors.header (length, JSON, a member that is missing, unknown, repeated or of a
// wrong type), safetensors.tensor (type, shape, size or place of one tensor), safetensors.layout
// (holes, overlaps, bytes after the last tensor); io.* of opening and writing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/mmap_file.h"
#include "core/base/status.h"

namespace rullama {

// The longest header that the format allows.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

struct SafetensorsTensor {
  std::string name;
  std::string dtype;           // as the file spells it: "F32", "BF16", ...
  std::vector<int64_t> shape;  // numpy order; empty for a scalar
  uint64_t begin = 0;          // bytes, from the end of the header
  uint64_t end = 0;
};

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> Open(const std::filesystem::path& path);
  static Result<SafetensorsFile> Parse(std::span<const std::byte> bytes);
  // Whether `bytes` begin like such a file: a length that fits and a '{'.
  [[nodiscard]] static bool LooksLike(std::span<const std::byte> bytes);

  // In the order of their data.
  [[nodiscard]] const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  [[nodiscard]] std::span<const std::byte> data(const SafetensorsTensor& tensor) const;
  // The values of a tensor of type F32, F16 or BF16; error safetensors.tensor for other types.
  [[nodiscard]] Result<std::vector<float>> Floats(const SafetensorsTensor& tensor) const;

 private:
  std::optional<MmapFile> mapping_;
  std::span<const std::byte> data_;
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// A tensor of f32 values to be written.
struct SafetensorsOutput {
  std::string name;
  std::vector<int64_t> shape;
  std::span<const float> values;
};

// The file's bytes, as the reference library writes them: tensors by name, the header padded with
// spaces to a multiple of eight bytes.
std::vector<std::byte> EncodeSafetensors(std::vector<SafetensorsOutput> tensors,
                                         const std::map<std::string, std::string>& metadata);

}  // namespace rullama
