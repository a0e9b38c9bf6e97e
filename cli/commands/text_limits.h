// The limits of texts that commands read in chunks, and the default length of these.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rullama::cli {

inline constexpr size_t kMaxTextBytes = size_t{1} << 30;
inline constexpr int64_t kDefaultChunkTokens = 512;

}  // namespace rullama::cli
