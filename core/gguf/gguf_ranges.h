// A GGUF file that is read by ranges: what of it is in memory. Internal to core/gguf; use GgufFile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <vector>

#include "core/base/range_reader.h"
#include "core/base/status.h"
#include "core/gguf/gguf.h"

namespace rullama {

// Thread safety: ReadHeader() and ReadSmallTensors() come first; the others from any thread.
class GgufFile::Ranges {
 public:
  explicit Ranges(std::unique_ptr<RangeReader> reader) : reader_(std::move(reader)) {}

  [[nodiscard]] const RangeReader& reader() const { return *reader_; }
  // Errors: those of GgufFile::Read, naming the file.
  Result<GgufContents> ReadHeader();
  [[nodiscard]] std::span<const std::byte> header() const { return header_; }
  Status ReadSmallTensors(std::span<const TensorInfo> tensors);

  // A small tensor.
  [[nodiscard]] std::span<const std::byte> Small(const TensorInfo& tensor) const;
  Result<std::span<const std::byte>> Load(uint64_t offset, uint64_t count);
  void Release(std::span<const std::byte> range);

 private:
  // Aligned as kernels read vectors, and as a mapping would be.
  struct Delete {
    void operator()(std::byte* bytes) const {
      ::operator delete[](bytes, std::align_val_t{kGgufDefaultAlignment});
    }
  };
  using Memory = std::unique_ptr<std::byte[], Delete>;

  [[nodiscard]] tl::unexpected<Error> NoMemory(uint64_t bytes) const;
  // Reads on to `size` bytes. Errors: io.read, memory.host.
  Status GrowHeader(uint64_t size);
  // Errors: io.read, memory.host.
  Result<Memory> ReadAligned(uint64_t offset, uint64_t count) const;

  std::unique_ptr<RangeReader> reader_;
  std::vector<std::byte> header_;
  std::map<uint64_t, Memory> small_;  // by their offsets
  std::mutex mutex_;                  // guards loaded_
  std::map<const std::byte*, Memory> loaded_;
};

}  // namespace rullama
