// Writer of GGUF version 3 files.
//
//   GgufWriter writer;
//   writer.Set("general.architecture", "gemma4");
//   writer.AddTensor("token_embd.weight", DType::kF16, dims);
//   auto output = writer.Begin(path);       // the header is complete from here on
//   output->Append(bytes);                  // as often as needed, tensors in declared order
//   output->Finish();                       // the file appears under its name
//
// Tensor data is streamed, so a model of any size is written with a buffer of a megabyte.
//
// Ownership: copies metadata; tensor data is never kept. Thread safety: one thread at a time.
// Errors: gguf.write_* (kind kRuntime) for calls that would make an invalid file; io.* from
// writing.
#pragma once

#include <rullama/sdk/dtype.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/atomic_file.h"
#include "core/gguf/gguf.h"
#include "core/gguf/gguf_value.h"

namespace rullama {

// The data section of a file being written.
class GgufOutput {
 public:
  // The next bytes of the current tensor; the next tensor becomes current when its bytes are
  // complete. `bytes` must not reach beyond the current tensor (gguf.write_order).
  Status Append(std::span<const std::byte> bytes);
  // Error gguf.write_order if data of some tensor is missing; then no file appears.
  Status Finish();

 private:
  friend class GgufWriter;
  struct Tensor {
    std::string name;
    uint64_t bytes;
  };
  GgufOutput(AtomicFile file, std::vector<Tensor> tensors, uint32_t alignment)
      : file_(std::move(file)), tensors_(std::move(tensors)), alignment_(alignment) {}

  AtomicFile file_;
  std::vector<Tensor> tensors_;
  uint32_t alignment_;
  size_t current_ = 0;
  uint64_t written_ = 0;  // of the current tensor
};

class GgufWriter {
 public:
  // Metadata. A key that is already present is replaced in its place. Error gguf.write_key for an
  // empty, too long or invalid key. general.alignment must be a u32 power of two from 8 to 2^21.
  template <GgufScalar T>
  Status Set(std::string_view key, T value) {
    return SetRaw(key, Scalar(*kGgufTypeOf<T>, std::as_bytes(std::span(&value, 1))));
  }
  Status Set(std::string_view key, std::string_view text) {
    return SetRaw(key, Scalar(GgufType::kString, std::as_bytes(std::span(text))));
  }
  // Without this overload a literal would convert to bool.
  Status Set(std::string_view key, const char* text) { return Set(key, std::string_view(text)); }

  template <GgufScalar T>
  Status SetArray(std::string_view key, std::span<const T> values) {
    return SetRaw(key, Array(*kGgufTypeOf<T>, values.size(), std::as_bytes(values)));
  }
  // `strings`: any range of things that convert to string_view.
  template <typename Range>
  Status SetStrings(std::string_view key, const Range& strings) {
    std::vector<std::byte> packed;
    uint64_t count = 0;
    for (const std::string_view text : strings) {
      PackString(text, packed);
      ++count;
    }
    return SetRaw(key, Array(GgufType::kString, count, packed));
  }
  // Copies a value as it is, for instance from a GgufFile.
  Status SetRaw(std::string_view key, const GgufValue& value);
  void Remove(std::string_view key);

  // Declares the next tensor. `dims` fastest first, 1 to 4 of them, the first a multiple of the
  // block length. Errors: gguf.write_tensor (bad or repeated name, bad dims).
  Status AddTensor(std::string_view name, DType dtype, std::span<const uint64_t> dims);

  // The bytes before the data section, padded to the alignment. Error gguf.write_size if the
  // tensors add up to more than 2^64 bytes.
  [[nodiscard]] Result<std::vector<std::byte>> EncodeHeader() const;
  // Writes the header to a new output file, or to one that the caller has created.
  [[nodiscard]] Result<GgufOutput> Begin(const std::filesystem::path& path) const;
  [[nodiscard]] Result<GgufOutput> Begin(AtomicFile file) const;

 private:
  struct Entry {
    std::string key;
    GgufType type;
    GgufType element_type;
    uint64_t count;
    std::vector<std::byte> bytes;
  };
  struct Tensor {
    std::string name;
    DType dtype;
    std::vector<uint64_t> dims;
    uint64_t bytes;
  };

  static GgufValue Scalar(GgufType type, std::span<const std::byte> bytes);
  static GgufValue Array(GgufType element, uint64_t count, std::span<const std::byte> bytes);
  static void PackString(std::string_view text, std::vector<std::byte>& packed);

  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> entry_index_;
  std::vector<Tensor> tensors_;
  std::unordered_map<std::string, size_t> tensor_index_;
  uint32_t alignment_ = kGgufDefaultAlignment;
};

}  // namespace rullama
