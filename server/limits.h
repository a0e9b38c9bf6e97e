// The limits of the HTTP side of the server.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace rullama::server {

struct HttpLimits {
  std::chrono::milliseconds header_timeout{10'000};  // from the first byte of a request
  std::chrono::milliseconds body_timeout{60'000};    // of a whole body
  std::chrono::milliseconds idle_timeout{75'000};    // between requests
  std::chrono::milliseconds write_timeout{60'000};   // of one write
  size_t connections = 512;
  // Beyond those: connections that are told so at the same time. Further ones are closed at once.
  size_t refused_connections = 16;
  // A connection that has waited for a request this long gives its place to a new one.
  std::chrono::milliseconds idle_reuse{1'000};
  uint32_t header_bytes = 16'384;
  size_t header_fields = 100;
  size_t target_bytes = 2'048;
  uint64_t body_bytes = 64ULL << 20;
  uint64_t all_body_bytes = 256ULL << 20;  // of all requests together (body_memory.h)
  size_t chunk_extension_bytes = 256;      // of one chunk; nothing reads them
};

}  // namespace rullama::server
