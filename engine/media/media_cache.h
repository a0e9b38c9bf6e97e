// The soft tokens of recent pictures and sounds in host memory, for prompts of the same client that
// bring a medium again. The medium used longest ago goes first.
//
// Ownership: shares the soft tokens with the prompts that read them. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "engine/api/stats.h"
#include "engine/media/media_encoder.h"
#include "media/media_hash.h"

namespace rullama {

class MediaCache {
 public:
  // `limit`: bytes of host memory; 0 keeps nothing.
  explicit MediaCache(uint64_t limit) : limit_(limit) {}

  // The soft tokens of a medium that a prompt of the client had; null if they are not there.
  [[nodiscard]] std::shared_ptr<const SoftTokens> Find(uint64_t client, const MediaHash& hash);
  // Keeps soft tokens, which are not there, unless they alone are larger than the limit.
  void Keep(uint64_t client, std::shared_ptr<const SoftTokens> soft);

  // Adds what it holds.
  void AddTo(EngineStats& stats) const;

 private:
  struct Entry {
    uint64_t client = 0;
    std::shared_ptr<const SoftTokens> soft;

    [[nodiscard]] uint64_t bytes() const { return soft->values.size() * sizeof(float); }
  };

  uint64_t limit_;
  std::list<Entry> entries_;  // the one used last first
  uint64_t bytes_ = 0;
};

}  // namespace rullama
