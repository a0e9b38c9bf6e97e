#include "engine/media/media_cache.h"

#include <algorithm>
#include <utility>

namespace rullama {

std::shared_ptr<const SoftTokens> MediaCache::Find(uint64_t client, const MediaHash& hash) {
  const auto found = std::ranges::find_if(entries_, [&](const Entry& entry) {
    return entry.client == client && entry.soft->hash == hash;
  });
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return found->soft;
}

void MediaCache::Keep(uint64_t client, std::shared_ptr<const SoftTokens> soft) {
  Entry entry{client, std::move(soft)};
  if (entry.bytes() > limit_) return;
  bytes_ += entry.bytes();
  entries_.push_front(std::move(entry));
  while (bytes_ > limit_) {
    bytes_ -= entries_.back().bytes();
    entries_.pop_back();
  }
}

void MediaCache::AddTo(EngineStats& stats) const {
  stats.media_bytes = static_cast<int64_t>(bytes_);
  stats.media_entries = std::ssize(entries_);
}

}  // namespace rullama
