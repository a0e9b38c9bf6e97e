#include "core/plugin/blob_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

namespace rullama {
namespace {

namespace fs = std::filesystem;

// Bump the last character when the layout changes: old files then are misses.
constexpr std::array<char, 8> kMagic = {'R', 'L', 'B', 'L', 'O', 'B', '0', '1'};

struct Header {
  std::array<char, 8> magic;
  uint64_t key_bytes;
  uint64_t data_bytes;
  uint64_t checksum;  // of key and data
};

// Larger files are not pipelines; a bound keeps a damaged directory from filling the memory.
constexpr uint64_t kMaxBlobBytes = uint64_t{256} << 20;

// FNV-1a, 64 bits: short, stable across builds and machines. It guards against accidents, not
// attacks: who can write the cache directory of a user can do worse.
constexpr uint64_t kFnvOffset = 0xCBF29CE484222325U;
constexpr uint64_t kFnvPrime = 0x100000001B3U;

uint64_t Hash(std::string_view bytes, uint64_t hash = kFnvOffset) {
  for (const char c : bytes) {
    hash ^= static_cast<unsigned char>(c);
    hash *= kFnvPrime;
  }
  return hash;
}

std::string_view Chars(std::span<const std::byte> data) {
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

fs::path AbsoluteFromEnvironment(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr) return {};
  fs::path path(value);
  return path.is_absolute() ? path : fs::path();
}

bool WriteAll(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// A file of the cache.
struct CacheFile {
  fs::path path;
  uint64_t bytes;
  fs::file_time_type used;
};

// The blobs, and the files that processes left which ended while they wrote:
// <name>.blob.<six letters>. Files that another process removes meanwhile are left out.
std::vector<CacheFile> FilesOf(const fs::path& directory) {
  std::vector<CacheFile> files;
  std::error_code code;
  for (fs::directory_iterator at(directory, code), end; !code && at != end; at.increment(code)) {
    if (at->path().filename().string().find(".blob") == std::string::npos) continue;
    std::error_code no_size, no_time;
    const CacheFile file{at->path(), at->file_size(no_size), at->last_write_time(no_time)};
    if (!no_size && !no_time) files.push_back(file);
  }
  return files;
}

}  // namespace

BlobCache::BlobCache(fs::path directory, std::function<void(const std::string&)> notice,
                     uint64_t max_bytes)
    : directory_(std::move(directory)), notice_(std::move(notice)), max_bytes_(max_bytes) {}

fs::path BlobCache::DefaultDirectory() {
  if (fs::path cache = AbsoluteFromEnvironment("XDG_CACHE_HOME"); !cache.empty()) {
    return cache / "rullama";
  }
  if (fs::path home = AbsoluteFromEnvironment("HOME"); !home.empty()) {
    return home / ".cache" / "rullama";
  }
  return {};
}

fs::path BlobCache::PathOf(std::string_view key) const {
  return directory_ / fmt::format("{:016x}.blob", Hash(key));
}

std::optional<std::vector<std::byte>> BlobCache::Get(std::string_view key) const {
  if (directory_.empty() || key.size() > kMaxKeyBytes) return std::nullopt;
  const fs::path path = PathOf(key);
  std::error_code code;
  const uintmax_t file_bytes = fs::file_size(path, code);
  std::ifstream file(path, std::ios::binary);
  Header header{};
  if (code || !file.read(reinterpret_cast<char*>(&header), sizeof(header)) ||
      header.magic != kMagic || header.key_bytes != key.size() ||
      header.data_bytes > kMaxBlobBytes ||
      file_bytes != sizeof(header) + header.key_bytes + header.data_bytes) {
    return std::nullopt;
  }
  std::string stored_key(key.size(), '\0');
  file.read(stored_key.data(), static_cast<std::streamsize>(stored_key.size()));
  if (!file || stored_key != key) return std::nullopt;
  std::vector<std::byte> data(static_cast<size_t>(header.data_bytes));
  file.read(reinterpret_cast<char*>(data.data()), static_cast<std::streamsize>(data.size()));
  if (!file || Hash(Chars(data), Hash(key)) != header.checksum) return std::nullopt;
  // In a directory that cannot be written, nothing is removed either.
  fs::last_write_time(path, fs::file_time_type::clock::now(), code);
  return data;
}

bool BlobCache::Put(std::string_view key, std::span<const std::byte> data) {
  if (off_.load(std::memory_order_relaxed)) return false;
  if (key.empty() || key.size() > kMaxKeyBytes || data.empty() || data.size() > kMaxBlobBytes) {
    return false;
  }
  std::string reason;
  if (Store(key, data, &reason)) {
    RemoveOldest(PathOf(key));
    return true;
  }
  if (!off_.exchange(true)) {
    notice_(fmt::format("compiled programs are not kept for the next run: {}", reason));
  }
  return false;
}

void BlobCache::RemoveOldest(const fs::path& kept) const {
  std::vector<CacheFile> files = FilesOf(directory_);
  uint64_t bytes = 0;
  for (const CacheFile& file : files) bytes += file.bytes;
  std::ranges::sort(files, {}, &CacheFile::used);
  for (const CacheFile& file : files) {
    if (bytes <= max_bytes_) return;
    std::error_code code;
    if (file.path == kept || !fs::remove(file.path, code)) continue;
    bytes -= file.bytes;
  }
}

bool BlobCache::Store(std::string_view key, std::span<const std::byte> data,
                      std::string* reason) const {
  if (directory_.empty()) {
    *reason = "neither XDG_CACHE_HOME nor HOME names a directory";
    return false;
  }
  std::error_code code;
  fs::create_directories(directory_, code);
  const fs::path path = PathOf(key);
  std::string temporary = path.string() + ".XXXXXX";
  const int file = ::mkstemp(temporary.data());
  if (file < 0) {
    *reason = fmt::format("cannot write in '{}': {}", directory_.string(), std::strerror(errno));
    return false;
  }
  const Header header{kMagic, key.size(), data.size(), Hash(Chars(data), Hash(key))};
  const std::string_view head(reinterpret_cast<const char*>(&header), sizeof(header));
  // No fsync: after a crash the checksum turns a torn file into a miss, which is cheap.
  bool stored = WriteAll(file, head) && WriteAll(file, key) && WriteAll(file, Chars(data));
  int error = errno;
  if (::close(file) != 0 && stored) {
    stored = false;
    error = errno;
  }
  if (stored && std::rename(temporary.c_str(), path.c_str()) != 0) {
    stored = false;
    error = errno;
  }
  if (!stored) {
    ::unlink(temporary.c_str());
    *reason = fmt::format("cannot write '{}': {}", path.string(), std::strerror(error));
  }
  return stored;
}

}  // namespace rullama
