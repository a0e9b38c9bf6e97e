// The bytes of a tensor, or of a part of it, released at the end of a scope: for those who read a
// tensor once, whatever its size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "core/base/status.h"
#include "core/gguf/gguf.h"

namespace rullama {

class LoadedTensor {
 public:
  // `count` bytes of the tensor from its byte `first` on. `file` must outlive the result. Errors:
  // those of GgufFile::Load.
  static Result<LoadedTensor> Load(const GgufFile& file, const TensorInfo& tensor, uint64_t first,
                                   uint64_t count) {
    RL_ASSIGN_OR_RETURN(const auto bytes, file.Load(tensor, first, count));
    return LoadedTensor(file, bytes);
  }
  static Result<LoadedTensor> Load(const GgufFile& file, const TensorInfo& tensor) {
    return Load(file, tensor, 0, tensor.bytes);
  }
  LoadedTensor(LoadedTensor&& other) noexcept
      : file_(std::exchange(other.file_, nullptr)), bytes_(other.bytes_) {}
  LoadedTensor& operator=(LoadedTensor&&) = delete;
  ~LoadedTensor() {
    if (file_ != nullptr) file_->Release(bytes_);
  }

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  LoadedTensor(const GgufFile& file, std::span<const std::byte> bytes)
      : file_(&file), bytes_(bytes) {}

  const GgufFile* file_;
  std::span<const std::byte> bytes_;
};

}  // namespace rullama
