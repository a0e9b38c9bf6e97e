// The text that `perplexity` and `imatrix` read, and the chunks that they cut it into.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rullama::cli {

inline constexpr size_t kMaxTextBytes = size_t{1} << 30;
inline constexpr int64_t kDefaultChunkTokens = 512;

}  // namespace rullama::cli
