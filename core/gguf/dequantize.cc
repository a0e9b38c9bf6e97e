#include "core/gguf/dequantize.h"

#include <rullama/sdk/dequantize.h>

namespace rullama {

bool CanDequantize(DType dtype) { return sdk::FindDequantizer(dtype) != nullptr; }

std::string DequantizableTypes() {
  std::string names;
  for (const DTypeInfo& info : kDTypes) {
    if (!CanDequantize(info.dtype)) continue;
    if (!names.empty()) names += ' ';
    names += info.name;
  }
  return names;
}

Status Dequantize(DType dtype, std::span<const std::byte> blocks, std::span<float> out) {
  const sdk::Dequantizer decode = sdk::FindDequantizer(dtype);
  const DTypeInfo& info = InfoOf(dtype);
  if (decode == nullptr) {
    return MakeError(
        ErrorKind::kModelFile, "gguf.type",
        "weights of type {} cannot be decoded, expected one of: {}; quantise the model "
        "to one of these",
        info.name, DequantizableTypes());
  }
  if (out.size() % info.block_elements != 0 || RowBytes(dtype, out.size()) != blocks.size()) {
    return MakeError(ErrorKind::kRuntime, "gguf.dequantize_size",
                     "{} bytes of type {} do not hold {} values ({} values per {} bytes)",
                     blocks.size(), info.name, out.size(), info.block_elements, info.block_bytes);
  }
  decode(blocks.data(), out.size() / info.block_elements, out.data());
  return OkStatus();
}

}  // namespace rullama
