// Model files whose weights have another type than their data.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace rullama {

// A GGUF file in which a tensor is of type `type` (core/abi/dtypes.def), whose blocks take no more
// bytes than those of the old one. The data stays as it was.
inline std::string WithTensorType(std::string file, std::string_view tensor, uint32_t type) {
  const uint64_t length = tensor.size();
  std::string name(sizeof(length), '\0');
  std::memcpy(name.data(), &length, sizeof(length));
  name += tensor;
  const size_t at = file.find(name);
  if (at == std::string::npos) {
    ADD_FAILURE() << "no tensor " << tensor;
    return file;
  }
  uint32_t rank = 0;
  const size_t end = at + name.size();
  std::memcpy(&rank, file.data() + end, sizeof(rank));
  std::memcpy(file.data() + end + sizeof(rank) + rank * sizeof(uint64_t), &type, sizeof(type));
  return file;
}

}  // namespace rullama
