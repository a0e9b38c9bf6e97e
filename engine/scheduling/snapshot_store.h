// Snapshots of prompts in files of a folder, for later starts of the program: the longer memory of
// PrefixCache. One store serves all models of the process.
//
// A file is that of a slot (core/runtime/slot_file.h) with one snapshot, after the cut point of a
// prompt. Its name is a hash of the model with its configuration, and one of the client and the
// tokens. The time of its last use is that of its last change. Beyond the limit those of models
// that are not open go first, then those that were used least recently. A thread of its own writes.
//
// The folder also has the file "lock", which the process holds, and "secret", by which keys of
// clients without names are told apart. Files with other names are left alone.
//
// Thread safety: all member functions from any thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/base/sha256.h"
#include "core/base/status.h"
#include "core/runtime/slot_file.h"
#include "engine/api/stats.h"

namespace rullama {

// The part of a file's name that tells prompts apart.
using PromptKey = std::array<uint64_t, 2>;

struct SnapshotStoreStats {
  uint64_t limit_bytes = 0;
  uint64_t bytes = 0;
  int64_t files = 0;
  uint64_t hits = 0;    // prompts of which a part was read from a file
  uint64_t misses = 0;  // prompts of which neither memory nor a file had a part
  uint64_t evictions = 0;
  uint64_t errors = 0;  // files that were damaged, or could not be written or read
  Histogram read = {};  // seconds
  Histogram write = {};
};

class SnapshotStore {
 public:
  using Time = std::chrono::system_clock::time_point;

  // Whose snapshots they are: of a client, by a name that stays the same, with a model.
  struct Owner {
    std::vector<ModelFingerprint> fingerprints;
    Sha256Digest client = {};
    // One more from the first picture or sound of a prompt on; none for prompts without.
    std::optional<ModelFingerprint> towers = {};
  };
  // A snapshot after the last of `tokens`.
  struct Prompt {
    std::shared_ptr<const Owner> owner;
    std::vector<int32_t> tokens;
    std::shared_ptr<const Snapshot> snapshot;
    Time used = {};
  };

  // Makes the folder if it is not there. `warn` is told once of files that are damaged and once of
  // files that cannot be written. Errors: server.cache_locked if another process uses it; io.*.
  static Result<std::shared_ptr<SnapshotStore>> Open(
      const std::filesystem::path& folder, uint64_t max_bytes,
      std::function<void(std::string_view text)> warn);
  SnapshotStore(const SnapshotStore&) = delete;
  SnapshotStore& operator=(const SnapshotStore&) = delete;
  // Writes what was handed over.
  ~SnapshotStore();

  // Random bytes that stay the same as long as the folder.
  [[nodiscard]] const std::string& secret() const { return secret_; }

  static PromptKey KeyOf(const Owner& owner, std::span<const int32_t> tokens);
  // Files of the owner's model are of use from now on.
  void Expect(const Owner& owner);
  // Whether there is a file.
  [[nodiscard]] bool Has(const PromptKey& key) const;
  // Memory has the snapshot, or has it no more.
  void SetInMemory(const PromptKey& key, bool is);

  // Reads the longest beginning of the prompt that ends at one of `cuts`; nothing if there is no
  // file, or memory has one that is as long. At least one token of the prompt follows it. A file
  // that is damaged is removed.
  std::optional<Prompt> Load(const std::shared_ptr<const Owner>& owner,
                             std::span<const int32_t> prompt, std::span<const int64_t> cuts);

  // Whether Write() would begin at once.
  [[nodiscard]] bool idle() const;
  // Hands a complete snapshot over to be written.
  void Write(Prompt prompt);
  // Waits until all is written.
  void Flush();
  // Removes the files of all beginnings of these tokens.
  void Erase(const Owner& owner, std::span<const int32_t> tokens);
  // Removes the file after these tokens, which is of no use. Does not wait for one that is written.
  void Discard(const Owner& owner, std::span<const int32_t> tokens);

  // From now on snapshots are kept until this time only.
  void FinishBy(std::chrono::steady_clock::time_point time);
  [[nodiscard]] bool is_late() const;

  [[nodiscard]] SnapshotStoreStats stats() const;

 private:
  struct File {
    uint64_t model = 0;
    uint64_t bytes = 0;
    Time used = {};
  };
  using Files = std::map<PromptKey, File>;

  SnapshotStore(std::filesystem::path folder, uint64_t max_bytes,
                std::function<void(std::string_view text)> warn);
  Status Prepare();
  Status Lock();
  Status ReadSecret();
  void FindFiles();
  [[nodiscard]] std::filesystem::path PathOf(const PromptKey& key, uint64_t model) const;
  void WriteAll();
  void WriteOne(const Prompt& prompt);
  // Makes room for a file of a model; false if all others are worth more.
  bool MakeRoom(uint64_t bytes, Time used);
  std::optional<Prompt> Read(const std::shared_ptr<const Owner>& owner, const PromptKey& key,
                             std::span<const int32_t> tokens);
  void Remove(Files::iterator file);
  void CountError(const Error& error);

  const std::filesystem::path folder_;
  const uint64_t max_bytes_;
  const std::function<void(std::string_view text)> warn_;
  std::string secret_;
  int lock_ = -1;             // descriptor
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  Files files_;
  uint64_t bytes_ = 0;
  std::set<uint64_t> models_;  // that are open
  std::multiset<PromptKey> in_memory_;
  std::optional<Prompt> next_;  // to be written
  bool writing_ = false;
  bool stopping_ = false;
  bool warned_ = false;
  std::optional<std::chrono::steady_clock::time_point> end_;
  SnapshotStoreStats stats_;
  std::thread writer_;
};

}  // namespace rullama
