// Checks where the tensors of a file lie.
#include <algorithm>
#include <numeric>

#include "core/base/checked_math.h"
#include "core/gguf/gguf_parse.h"

namespace rullama::gguf_internal {
namespace {

// Offsets become absolute. The end of the file is not looked at yet.
Status MakeAbsolute(GgufContents& contents) {
  for (TensorInfo& tensor : contents.tensors) {
    if (tensor.offset % contents.alignment != 0) {
      return MakeError(ErrorKind::kModelFile, "gguf.tensor_out_of_file",
                       "tensor '{}' has offset {}, expected a multiple of the alignment {}; the "
                       "file is corrupt",
                       tensor.name, tensor.offset, contents.alignment);
    }
    const auto relative_end = CheckedAdd(tensor.offset, tensor.bytes);
    const auto start = CheckedAdd(contents.data_offset, tensor.offset);
    if (relative_end && !start) {
      return MakeError(ErrorKind::kModelFile, "gguf.tensor_overlap",
                       "tensor '{}' has offset {}, which wraps around to inside the header; the "
                       "file is corrupt or hostile",
                       tensor.name, tensor.offset);
    }
    if (!relative_end || !CheckedAdd(*start, tensor.bytes)) {
      return MakeError(ErrorKind::kModelFile, "gguf.tensor_out_of_file",
                       "tensor '{}' of {} bytes has offset {}, and its end wraps around 2^64; the "
                       "file is corrupt or hostile",
                       tensor.name, tensor.bytes, tensor.offset);
    }
    tensor.offset = *start;
  }
  return OkStatus();
}

}  // namespace

Status PlaceTensors(uint64_t file_bytes, GgufContents& contents) {
  RL_RETURN_IF_ERROR(MakeAbsolute(contents));
  std::vector<uint32_t> order(contents.tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return contents.tensors[a].offset < contents.tensors[b].offset;
  });

  const TensorInfo* beyond = nullptr;  // the first tensor that leaves the file
  bool gapless = true;                 // each tensor begins where the one before it ends
  uint64_t end = contents.data_offset;
  const TensorInfo* before = nullptr;
  for (const uint32_t index : order) {
    const TensorInfo& tensor = contents.tensors[index];
    if (tensor.offset < end) {
      return MakeError(ErrorKind::kModelFile, "gguf.tensor_overlap",
                       "tensor '{}' begins at byte {}, inside tensor '{}', which ends at byte {}; "
                       "the file is corrupt or hostile",
                       tensor.name, tensor.offset, before->name, end);
    }
    const auto expected = CheckedAlignUp<uint64_t>(end, contents.alignment);
    gapless = gapless && expected == tensor.offset;
    end = tensor.offset + tensor.bytes;  // checked by MakeAbsolute
    if (beyond == nullptr && end > file_bytes) beyond = &tensor;
    before = &tensor;
  }
  if (beyond == nullptr) return OkStatus();
  // A consistent layout that needs more bytes than there are is a file that was cut off.
  if (gapless) {
    return MakeError(ErrorKind::kModelFile, "gguf.truncated",
                     "the file has {} bytes, expected {}: tensor '{}' at offset {} is cut off; the "
                     "download is incomplete, fetch the file again",
                     file_bytes, end, beyond->name, beyond->offset);
  }
  return MakeError(ErrorKind::kModelFile, "gguf.tensor_out_of_file",
                   "tensor '{}' lies at bytes {} to {}, but the file has {} bytes; the file is "
                   "corrupt or cut off, fetch it again",
                   beyond->name, beyond->offset, beyond->offset + beyond->bytes, file_bytes);
}

}  // namespace rullama::gguf_internal
