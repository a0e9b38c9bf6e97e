#include "backends/vulkan/join_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <vector>

// Written at build time: the code of each shader.
#include "spirv.h"

namespace rullama::vulkan {
namespace {

// A host whose cache is in memory.
struct CacheHost {
  std::map<std::string, std::vector<std::byte>> blobs;
  size_t puts = 0;
  bool keeps = true;
  rl_host_v1 table{};

  CacheHost() {
    table.struct_size = sizeof(table);
    table.context = this;
    table.blob_get = [](void* context, rl_str key, void* data, uint64_t capacity) -> uint64_t {
      const auto& all = static_cast<CacheHost*>(context)->blobs;
      const auto blob = all.find({key.data, key.size});
      if (blob == all.end()) return 0;
      const uint64_t copied = std::min<uint64_t>(capacity, blob->second.size());
      if (copied > 0) std::memcpy(data, blob->second.data(), copied);
      return blob->second.size();
    };
    table.blob_put = [](void* context, rl_str key, const void* data, uint64_t size) -> int32_t {
      auto& self = *static_cast<CacheHost*>(context);
      ++self.puts;
      if (!self.keeps) return RL_UNAVAILABLE;
      const auto* bytes = static_cast<const std::byte*>(data);
      self.blobs[{key.data, key.size}].assign(bytes, bytes + size);
      return RL_OK;
    };
  }
};

class JoinCache : public testing::Test {
 protected:
  static constexpr std::array<uint32_t, 3> kScan = {128, 1, 0};
  static constexpr std::array<uint32_t, 3> kOtherScan = {128, 2, 0};
  static constexpr std::array<uint32_t, 2> kRows = {128, 3};

  static std::vector<TaskSource> Tasks() {
    return {{"scan", kScanTask, kScan}, {"rows", kRowsTask, kRows}};
  }
  Joined Join(const std::vector<TaskSource>& tasks) {
    return JoinWithCache(sdk::Host(host_.table), kPersistentTask, tasks);
  }
  static void ExpectEqual(const Joined& a, const Joined& b) {
    EXPECT_EQ(a.code, b.code);
    EXPECT_EQ(a.shared_bytes, b.shared_bytes);
  }

  CacheHost host_;
};

TEST_F(JoinCache, KeepsWhatWasJoined) {
  const Joined joined = JoinSources(kPersistentTask, Tasks());
  ExpectEqual(Join(Tasks()), joined);
  EXPECT_EQ(host_.puts, 1U);
  ASSERT_EQ(host_.blobs.size(), 1U);
  ExpectEqual(Join(Tasks()), joined);
  EXPECT_EQ(host_.puts, 1U);
}

TEST_F(JoinCache, DoesNotNeedTheCache) {
  host_.keeps = false;
  ExpectEqual(Join(Tasks()), JoinSources(kPersistentTask, Tasks()));
  EXPECT_EQ(host_.puts, 1U);
}

TEST_F(JoinCache, TellsTasksApart) {
  std::vector<std::vector<TaskSource>> all(4, Tasks());
  all[1][0].constants = kOtherScan;
  std::ranges::reverse(all[2]);
  all[3].pop_back();
  for (const auto& tasks : all) Join(tasks);
  EXPECT_EQ(host_.blobs.size(), all.size());
  for (const auto& tasks : all) ExpectEqual(Join(tasks), JoinSources(kPersistentTask, tasks));
  EXPECT_EQ(host_.puts, all.size());
}

// The other code stands for a shader of the same name in another build.
TEST_F(JoinCache, ReplacesABlobOfOtherCode) {
  std::vector<TaskSource> other = Tasks();
  other[1].code = kScanTask;
  other[1].constants = kRows;
  Join(other);
  ExpectEqual(Join(Tasks()), JoinSources(kPersistentTask, Tasks()));
  EXPECT_EQ(host_.puts, 2U);
  EXPECT_EQ(host_.blobs.size(), 1U);
}

TEST_F(JoinCache, ReplacesABlobThatIsNotWhole) {
  const Joined joined = Join(Tasks());
  std::vector<std::byte>& blob = host_.blobs.begin()->second;
  const std::vector<std::byte> whole = blob;
  size_t puts = 1;
  for (const size_t size : {size_t{0}, size_t{3}, size_t{16}, whole.size() - 4, whole.size() - 1}) {
    blob.resize(size);
    ExpectEqual(Join(Tasks()), joined);
    EXPECT_EQ(host_.puts, ++puts) << size;
    EXPECT_EQ(blob, whole);
  }
}

}  // namespace
}  // namespace rullama::vulkan
