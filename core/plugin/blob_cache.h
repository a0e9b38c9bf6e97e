// Compiled pipelines and programs of plugins, kept on disk between runs. A cache: every failure is
// a miss, a damaged file is a miss, and without a writable directory it is off, with one notice.
//
// Files: <directory>/<hash of the key>.blob = header, key, data. The key is stored and compared, so
// two keys of one hash never mix; a checksum catches torn and damaged files. Files are replaced by
// rename: a reader sees the old or the new one. When all files together exceed a limit, those that
// were used longest ago are removed; a file's time of modification says when it was last used.
// Thread safety: all functions may be called concurrently, also from several processes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rullama {

// Keys name plugin, version, device and driver; this is far more than that takes.
inline constexpr uint64_t kMaxKeyBytes = 4096;
// The largest size of all blobs together. Each version of a driver or of rullama makes blobs of its
// own.
inline constexpr uint64_t kMaxCacheBytes = uint64_t{512} << 20;

class BlobCache {
 public:
  // `notice` receives the reason when the cache turns itself off, once. An empty directory means
  // that there is no place for a cache at all. `max_bytes` limits the files together.
  BlobCache(std::filesystem::path directory, std::function<void(const std::string&)> notice,
            uint64_t max_bytes = kMaxCacheBytes);

  // $XDG_CACHE_HOME/rullama, else $HOME/.cache/rullama, else empty. As the XDG specification asks,
  // relative paths in these variables are ignored.
  static std::filesystem::path DefaultDirectory();

  [[nodiscard]] std::optional<std::vector<std::byte>> Get(std::string_view key) const;
  // False if it was not stored. Removes older blobs beyond the limit, never this one.
  bool Put(std::string_view key, std::span<const std::byte> data);

  [[nodiscard]] std::filesystem::path PathOf(std::string_view key) const;

 private:
  bool Store(std::string_view key, std::span<const std::byte> data, std::string* reason) const;
  void RemoveOldest(const std::filesystem::path& kept) const;

  std::filesystem::path directory_;
  std::function<void(const std::string&)> notice_;
  uint64_t max_bytes_;
  std::atomic<bool> off_ = false;
};

}  // namespace rullama
