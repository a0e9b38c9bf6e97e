// How much host memory pictures and sounds take from the time at which they are decoded to the one
// at which they are encoded. Whoever wants more waits, in the order of asking. A request for more
// than a whole budget gets all of it.
//
// A request asks once for the memory of all its decoded media, and holds nothing before. Then it
// asks for that of decoding, for one medium after another. So those who hold memory never wait for
// each other in a circle.
//
// Thread safety: all member functions from any thread. A Part may outlive its budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <utility>

#include "core/base/status.h"

namespace rullama {

struct MediaBudgetLimits {
  // Of media while they are decoded: pictures at the size of their file. One of 64 million pixels
  // with transparency fits.
  uint64_t decoding_bytes = uint64_t{256} << 20;
  int64_t decoders = 2;  // media that are decoded at once; more would only hold up the engine
  // Of media that wait to be encoded: pictures scaled for the tower, at most 8 MB each, and sounds.
  uint64_t decoded_bytes = uint64_t{128} << 20;
};

class MediaBudget {
  class Pool;

 public:
  // Memory that is in use until the part is destroyed. Not thread-safe.
  class Part {
   public:
    Part() = default;
    Part(Part&& other) noexcept { *this = std::move(other); }
    Part& operator=(Part&& other) noexcept;
    ~Part() { Keep(0); }

    [[nodiscard]] uint64_t bytes() const { return bytes_; }
    // Gives back all but `bytes`.
    void Keep(uint64_t bytes);
    // Takes at most `bytes` of it out, as a part of its own.
    [[nodiscard]] Part Split(uint64_t bytes);

   private:
    friend class MediaBudget;
    Part(std::shared_ptr<Pool> pool, uint64_t bytes) : pool_(std::move(pool)), bytes_(bytes) {}

    std::shared_ptr<Pool> pool_;
    uint64_t bytes_ = 0;
  };

  explicit MediaBudget(const MediaBudgetLimits& limits = {});

  // Memory for one medium while it is decoded. Blocks until there is room, and a decoder is free.
  // Error run.cancelled (kRuntime) once `stop` is requested.
  Result<Part> ReserveDecoding(uint64_t bytes, const std::stop_token& stop);
  // Memory for the decoded media of a request. Blocks and fails alike.
  Result<Part> ReserveDecoded(uint64_t bytes, const std::stop_token& stop);
  // How many calls of ReserveDecoding() have found no room and wait.
  [[nodiscard]] size_t waiting_to_decode() const;

 private:
  std::shared_ptr<Pool> decoding_;
  std::shared_ptr<Pool> decoded_;
};

}  // namespace rullama
