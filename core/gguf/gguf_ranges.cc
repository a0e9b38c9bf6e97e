#include "core/gguf/gguf_ranges.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "core/base/check.h"
#include "core/gguf/gguf_parse.h"

namespace rullama {
namespace {

// The size of the first read. Vocabularies take some megabytes.
constexpr uint64_t kFirstBytes = uint64_t{1} << 20;

}  // namespace

Result<GgufContents> GgufFile::Ranges::ReadHeader() {
  uint64_t wanted = kFirstBytes;
  for (;;) {
    const uint64_t before = header_.size();
    const uint64_t size = std::min({wanted, reader_->size(), kGgufMaxHeaderBytes});
    if (size == before && before != 0) {
      return MakeError(ErrorKind::kModelFile, "gguf.header_size",
                       "model file '{}': the header ends beyond the first {} bytes, expected all "
                       "metadata and the tensor table within them; the file is corrupt or hostile",
                       reader_->path(), size);
    }
    RL_RETURN_IF_ERROR(GrowHeader(size));
    gguf_internal::GgufHead head{header_, reader_->size()};
    auto contents = gguf_internal::ParseGguf(head);
    if (contents) head.needed = contents->data_offset;
    if (contents && head.needed <= size) {
      header_.resize(static_cast<size_t>(contents->data_offset));
      return contents;
    }
    if (head.needed <= size) {
      return tl::unexpected(
          std::move(contents).error().WithContext(fmt::format("model file '{}'", reader_->path())));
    }
    wanted = std::max(head.needed, 2 * size);
  }
}

Status GgufFile::Ranges::GrowHeader(uint64_t size) {
  const size_t before = header_.size();
  try {
    header_.resize(static_cast<size_t>(size));
  } catch (const std::bad_alloc&) {
    return NoMemory(size);
  }
  return reader_->Read(before, std::span(header_).subspan(before));
}

Status GgufFile::Ranges::ReadSmallTensors(std::span<const TensorInfo> tensors) {
  for (const TensorInfo& tensor : tensors) {
    if (tensor.bytes > kGgufSmallTensorBytes) continue;
    RL_ASSIGN_OR_RETURN(small_[tensor.offset], ReadAligned(tensor.offset, tensor.bytes));
  }
  return OkStatus();
}

std::span<const std::byte> GgufFile::Ranges::Small(const TensorInfo& tensor) const {
  const auto found = small_.find(tensor.offset);
  RL_CHECK(found != small_.end());
  return {found->second.get(), static_cast<size_t>(tensor.bytes)};
}

Result<std::span<const std::byte>> GgufFile::Ranges::Load(uint64_t offset, uint64_t count) {
  RL_ASSIGN_OR_RETURN(Memory memory, ReadAligned(offset, count));
  const std::byte* const bytes = memory.get();
  const std::lock_guard lock(mutex_);
  loaded_.emplace(bytes, std::move(memory));
  return std::span(bytes, static_cast<size_t>(count));
}

void GgufFile::Ranges::Release(std::span<const std::byte> range) {
  const std::lock_guard lock(mutex_);
  loaded_.erase(range.data());
}

tl::unexpected<Error> GgufFile::Ranges::NoMemory(uint64_t bytes) const {
  return MakeError(ErrorKind::kOutOfMemory, "memory.host",
                   "there is not enough memory for {} bytes of '{}'", bytes, reader_->path());
}

Result<GgufFile::Ranges::Memory> GgufFile::Ranges::ReadAligned(uint64_t offset,
                                                               uint64_t count) const {
  Memory memory;
  if (count <= std::numeric_limits<size_t>::max()) {
    const auto bytes = std::max<size_t>(1, static_cast<size_t>(count));
    memory.reset(static_cast<std::byte*>(
        ::operator new[](bytes, std::align_val_t{kGgufDefaultAlignment}, std::nothrow)));
  }
  if (memory == nullptr) return NoMemory(count);
  RL_RETURN_IF_ERROR(reader_->Read(offset, {memory.get(), static_cast<size_t>(count)}));
  return memory;
}

}  // namespace rullama
