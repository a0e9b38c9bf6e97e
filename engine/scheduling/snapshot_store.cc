#include "engine/scheduling/snapshot_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <random>
#include <system_error>
#include <utility>

#include "core/base/alternate_stack.h"
#include "core/base/clock.h"
#include "core/base/printable.h"
#include "core/gguf/atomic_file.h"
#include "engine/media/soft_row_ids.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".slot";
constexpr size_t kHexDigits = 16;  // of a number of 64 bits
constexpr size_t kSecretBytes = 64;
// For the files "lock" and "secret", and what folders take.
constexpr uint64_t kOwnBytes = 4096;

tl::unexpected<Error> FolderError(std::string_view action, const fs::path& path) {
  return MakeError(ErrorKind::kIo, "io.open", "cannot {} '{}': {}; check server.prefix_cache_path",
                   action, ShownName(path.string()), std::strerror(errno));
}

uint64_t ModelOf(const SnapshotStore::Owner& owner) {
  return XXH3_64bits(owner.fingerprints.data(),
                     owner.fingerprints.size() * sizeof(ModelFingerprint));
}

// The fingerprints of a file with these tokens.
std::vector<ModelFingerprint> FingerprintsFor(const SnapshotStore::Owner& owner,
                                              std::span<const int32_t> tokens) {
  std::vector<ModelFingerprint> all = owner.fingerprints;
  if (owner.towers && std::ranges::any_of(tokens, IsSoftRow)) all.push_back(*owner.towers);
  return all;
}

// Hashes the tokens of an owner's prompt as they come. The part before the first picture or sound
// has the same hash as a prompt without them.
class KeyHash {
 public:
  explicit KeyHash(const SnapshotStore::Owner& owner) : towers_(owner.towers) {
    XXH3_128bits_reset_withSeed(&state_, ModelOf(owner));
    XXH3_128bits_update(&state_, owner.client.data(), owner.client.size());
  }
  void Add(std::span<const int32_t> tokens) {
    const auto soft = towers_ ? std::ranges::find_if(tokens, IsSoftRow) : tokens.end();
    const auto before = static_cast<size_t>(soft - tokens.begin());
    Update(tokens.first(before));
    if (soft == tokens.end()) return;
    XXH3_128bits_update(&state_, towers_->data(), sizeof(*towers_));
    towers_.reset();
    Update(tokens.subspan(before));
  }
  [[nodiscard]] PromptKey key() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(&state_);
    return {hash.high64, hash.low64};
  }

 private:
  void Update(std::span<const int32_t> tokens) {
    XXH3_128bits_update(&state_, tokens.data(), tokens.size_bytes());
  }

  std::optional<ModelFingerprint> towers_;  // none: they are in the hash, or not needed
  XXH3_state_t state_ = {};
};

std::string FileName(const PromptKey& key, uint64_t model) {
  return fmt::format("{:016x}-{:016x}{:016x}{}", model, key[0], key[1], kSuffix);
}

struct NamedFile {
  uint64_t model = 0;
  PromptKey key = {};
};

// The model and the key in the name of a file; nothing for any other name.
std::optional<NamedFile> ParseName(std::string_view name) {
  NamedFile out;
  const auto number = [&name](size_t at, uint64_t& value) {
    const char* begin = name.data() + at;
    const auto [end, failure] = std::from_chars(begin, begin + kHexDigits, value, 16);
    return failure == std::errc() && end == begin + kHexDigits;
  };
  const bool whole = name.size() == 3 * kHexDigits + 1 + kSuffix.size() && number(0, out.model) &&
                     number(kHexDigits + 1, out.key[0]) && number(2 * kHexDigits + 1, out.key[1]) &&
                     name == FileName(out.key, out.model);
  return whole ? std::optional(out) : std::nullopt;
}

SnapshotStore::Time TimeOf(const timespec& time) {
  return SnapshotStore::Time(std::chrono::duration_cast<SnapshotStore::Time::duration>(
      std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec)));
}

void SetTime(const fs::path& path, SnapshotStore::Time time) {
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch());
  const timespec stamp{.tv_sec = since.count() / 1'000'000'000,
                       .tv_nsec = static_cast<long>(since.count() % 1'000'000'000)};
  const timespec both[2] = {stamp, stamp};
  static_cast<void>(::utimensat(AT_FDCWD, path.c_str(), both, AT_SYMLINK_NOFOLLOW));
}

// A file that only its owner may read, made if it is not there.
Result<int> OpenPrivate(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  if (fd < 0) return FolderError("open", path);
  return fd;
}

}  // namespace

SnapshotStore::SnapshotStore(fs::path folder, uint64_t max_bytes,
                             std::function<void(std::string_view text)> warn)
    : folder_(std::move(folder)),
      max_bytes_(max_bytes - std::min(max_bytes, kOwnBytes)),
      warn_(std::move(warn)) {
  stats_.limit_bytes = max_bytes;
}

Result<std::shared_ptr<SnapshotStore>> SnapshotStore::Open(
    const fs::path& folder, uint64_t max_bytes, std::function<void(std::string_view text)> warn) {
  std::shared_ptr<SnapshotStore> store(new SnapshotStore(folder, max_bytes, std::move(warn)));
  RL_RETURN_IF_ERROR(store->Prepare());
  store->writer_ = std::thread([&one = *store] {
    const AlternateStack stack;
    one.WriteAll();
  });
  return store;
}

SnapshotStore::~SnapshotStore() {
  if (writer_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    writer_.join();
  }
  if (lock_ >= 0) ::close(lock_);
}

Status SnapshotStore::Prepare() {
  if (::mkdir(folder_.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return FolderError("make the folder", folder_);
  }
  RL_RETURN_IF_ERROR(Lock());
  RL_RETURN_IF_ERROR(ReadSecret());
  FindFiles();
  return OkStatus();
}

Status SnapshotStore::Lock() {
  RL_ASSIGN_OR_RETURN(lock_, OpenPrivate(folder_ / "lock"));
  if (::flock(lock_, LOCK_EX | LOCK_NB) == 0) return OkStatus();
  return MakeError(ErrorKind::kIo, "server.cache_locked",
                   "another process uses the folder '{}' of server.prefix_cache_path; end it, or "
                   "name another folder",
                   ShownName(folder_.string()));
}

Status SnapshotStore::ReadSecret() {
  const fs::path path = folder_ / "secret";
  RL_ASSIGN_OR_RETURN(const int fd, OpenPrivate(path));
  std::array<char, kSecretBytes> bytes = {};
  const bool found = ::read(fd, bytes.data(), bytes.size()) == std::ssize(bytes);
  ::close(fd);
  if (!found) {
    std::random_device random;
    std::ranges::generate(bytes, [&random] { return static_cast<char>(random()); });
    RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path, AtomicFile::Temporary::kPrivate));
    RL_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(bytes))));
    RL_RETURN_IF_ERROR(file.Commit());
  }
  secret_.assign(bytes.begin(), bytes.end());
  return OkStatus();
}

void SnapshotStore::FindFiles() {
  std::error_code code;
  for (fs::directory_iterator entry(folder_, code), end; !code && entry != end;
       entry.increment(code)) {
    const auto named = ParseName(entry->path().filename().string());
    struct stat info {};
    if (!named || ::lstat(entry->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    const auto bytes = static_cast<uint64_t>(info.st_size);
    files_[named->key] = {named->model, bytes, TimeOf(info.st_mtim)};
    bytes_ += bytes;
  }
}

fs::path SnapshotStore::PathOf(const PromptKey& key, uint64_t model) const {
  return folder_ / FileName(key, model);
}

PromptKey SnapshotStore::KeyOf(const Owner& owner, std::span<const int32_t> tokens) {
  KeyHash hash(owner);
  hash.Add(tokens);
  return hash.key();
}

void SnapshotStore::Expect(const Owner& owner) {
  const std::lock_guard lock(mutex_);
  models_.insert(ModelOf(owner));
}

bool SnapshotStore::Has(const PromptKey& key) const {
  const std::lock_guard lock(mutex_);
  return files_.contains(key);
}

void SnapshotStore::SetInMemory(const PromptKey& key, bool is) {
  const std::lock_guard lock(mutex_);
  if (is) {
    in_memory_.insert(key);
  } else if (const auto found = in_memory_.find(key); found != in_memory_.end()) {
    in_memory_.erase(found);
  }
}

std::optional<SnapshotStore::Prompt> SnapshotStore::Load(const std::shared_ptr<const Owner>& owner,
                                                         std::span<const int32_t> prompt,
                                                         std::span<const int64_t> cuts) {
  KeyHash hash(*owner);
  std::vector<std::pair<PromptKey, size_t>> prefixes;  // and their lengths
  size_t hashed = 0;
  for (const int64_t cut : cuts) {
    if (cut >= std::ssize(prompt)) break;
    const auto length = static_cast<size_t>(cut);
    hash.Add(prompt.subspan(hashed, length - hashed));
    hashed = length;
    prefixes.emplace_back(hash.key(), length);
  }
  for (auto prefix = prefixes.rbegin(); prefix != prefixes.rend(); ++prefix) {
    {
      const std::lock_guard lock(mutex_);
      if (in_memory_.contains(prefix->first)) return std::nullopt;
      if (!files_.contains(prefix->first)) continue;
    }
    if (auto found = Read(owner, prefix->first, prompt.first(prefix->second))) return found;
  }
  const std::lock_guard lock(mutex_);
  ++stats_.misses;
  return std::nullopt;
}

std::optional<SnapshotStore::Prompt> SnapshotStore::Read(const std::shared_ptr<const Owner>& owner,
                                                         const PromptKey& key,
                                                         std::span<const int32_t> tokens) {
  const fs::path path = PathOf(key, ModelOf(*owner));
  const Clock::time_point begin = Clock::now();
  auto stored = ReadSlotFile(path);
  const Time now = std::chrono::system_clock::now();
  const std::lock_guard lock(mutex_);
  stats_.read.Observe(SecondsSince(begin));
  const auto file = files_.find(key);
  if (!stored) {
    if (stored.error().kind == ErrorKind::kOutOfMemory) return std::nullopt;
    // The file may have given way to others since it was found.
    if (stored.error().id != "slot.not_found") CountError(stored.error());
    if (file != files_.end()) Remove(file);
    return std::nullopt;
  }
  const bool same = std::ranges::equal(stored->tokens, tokens) &&
                    stored->fingerprints == FingerprintsFor(*owner, tokens) &&
                    stored->owner == owner->client;
  if (!same) return std::nullopt;  // hashes that are equal by chance
  ++stats_.hits;
  if (file != files_.end()) file->second.used = now;
  SetTime(path, now);
  return Prompt{owner, std::move(stored->tokens), std::move(stored->all), now};
}

bool SnapshotStore::idle() const {
  const std::lock_guard lock(mutex_);
  return !next_ && !writing_;
}

void SnapshotStore::Write(Prompt prompt) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !next_; });
    next_ = std::move(prompt);
  }
  changed_.notify_all();
}

void SnapshotStore::Flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !next_ && !writing_; });
}

void SnapshotStore::WriteAll() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return next_ || stopping_; });
    if (!next_) return;
    const Prompt prompt = *std::exchange(next_, std::nullopt);
    writing_ = true;
    lock.unlock();
    changed_.notify_all();
    WriteOne(prompt);
    lock.lock();
    writing_ = false;
    changed_.notify_all();
  }
}

void SnapshotStore::WriteOne(const Prompt& prompt) {
  StoredSlot slot;
  slot.fingerprints = FingerprintsFor(*prompt.owner, prompt.tokens);
  slot.owner = prompt.owner->client;
  slot.tokens = prompt.tokens;
  slot.chunked = std::ssize(prompt.tokens);
  slot.all = prompt.snapshot;
  const SlotFileWriter writer(slot);
  const uint64_t bytes = writer.file_bytes();
  const uint64_t model = ModelOf(*prompt.owner);
  const PromptKey key = KeyOf(*prompt.owner, prompt.tokens);
  {
    const std::lock_guard lock(mutex_);
    if (files_.contains(key) || !MakeRoom(bytes, prompt.used)) return;
    bytes_ += bytes;  // so that the limit holds while it is written
  }
  const Clock::time_point begin = Clock::now();
  const fs::path path = PathOf(key, model);
  const Status written = writer.Write(path);
  if (written) SetTime(path, prompt.used);
  const std::lock_guard lock(mutex_);
  stats_.write.Observe(SecondsSince(begin));
  if (written) {
    files_[key] = {model, bytes, prompt.used};
  } else {
    bytes_ -= bytes;
    CountError(written.error());
  }
}

bool SnapshotStore::MakeRoom(uint64_t bytes, Time used) {
  // Those of other models first, then by time.
  const auto worth = [this](const Files::value_type& file) {
    return std::pair(models_.contains(file.second.model), file.second.used);
  };
  while (bytes_ + bytes > max_bytes_) {
    const auto least = std::ranges::min_element(files_, {}, worth);
    if (bytes > max_bytes_ || least == files_.end() || worth(*least) > std::pair(true, used)) {
      return false;
    }
    Remove(least);
    ++stats_.evictions;
  }
  return true;
}

void SnapshotStore::Remove(Files::iterator file) {
  ::unlink(PathOf(file->first, file->second.model).c_str());
  bytes_ -= file->second.bytes;
  files_.erase(file);
}

void SnapshotStore::CountError(const Error& error) {
  ++stats_.errors;
  if (std::exchange(warned_, true) || !warn_) return;
  warn_(fmt::format("a file of the prefix cache on disk cannot be used: {}", error.ToString()));
}

void SnapshotStore::Erase(const Owner& owner, std::span<const int32_t> tokens) {
  Flush();
  KeyHash hash(owner);
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < tokens.size(); ++i) {
    hash.Add(tokens.subspan(i, 1));
    if (const auto file = files_.find(hash.key()); file != files_.end()) Remove(file);
  }
}

void SnapshotStore::Discard(const Owner& owner, std::span<const int32_t> tokens) {
  const PromptKey key = KeyOf(owner, tokens);
  const std::lock_guard lock(mutex_);
  if (const auto file = files_.find(key); file != files_.end()) Remove(file);
}

void SnapshotStore::FinishBy(std::chrono::steady_clock::time_point time) {
  const std::lock_guard lock(mutex_);
  end_ = time;
}

bool SnapshotStore::is_late() const {
  const std::lock_guard lock(mutex_);
  return end_ && std::chrono::steady_clock::now() >= *end_;
}

SnapshotStoreStats SnapshotStore::stats() const {
  const std::lock_guard lock(mutex_);
  SnapshotStoreStats stats = stats_;
  stats.bytes = bytes_;
  stats.files = std::ssize(files_);
  return stats;
}

}  // namespace rullama
