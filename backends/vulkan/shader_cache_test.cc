#include "backends/vulkan/shader_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <vector>

// Written at build time: the code of each shader.
#include "spirv.h"

namespace rullama::vulkan {
namespace {

constexpr std::array<uint32_t, 3> kScan = {128, 1, 0};
constexpr std::array<uint32_t, 3> kOtherScan = {128, 2, 0};

TaskSource Scan() { return {"scan", kScanPlain, kScan}; }
TaskSource OtherScan() { return {"scan", kScanPlain, kOtherScan}; }
Spirv Made(const TaskSource& source) { return WithConstants(source.code, source.constants); }

// A cache that was given these bytes.
ShaderCache& Load(ShaderCache& cache, const std::vector<std::byte>& bytes) {
  cache.Load(bytes);
  return cache;
}

TEST(ShaderCache, KeepsWhatWasMade) {
  ShaderCache cache;
  EXPECT_TRUE(cache.Save().empty());
  EXPECT_EQ(cache.Get(Scan()), Made(Scan()));
  EXPECT_EQ(cache.Get(OtherScan()), Made(OtherScan()));
  const std::vector<std::byte> saved = cache.Save();
  EXPECT_GT(saved.size(), (Made(Scan()).size() + Made(OtherScan()).size()) * sizeof(uint32_t));
  ShaderCache again;
  EXPECT_EQ(Load(again, saved).Save(), saved);
  EXPECT_EQ(again.Get(Scan()), Made(Scan()));
  EXPECT_EQ(again.Save(), saved) << "nothing was made";
}

// Code that another build has kept under the name and constants of a shader.
TEST(ShaderCache, TakesNothingOfAnotherBuild) {
  ShaderCache other;
  other.Get({"scan", kRowsPlain, kScan});
  ShaderCache cache;
  EXPECT_EQ(Load(cache, other.Save()).Get(Scan()), Made(Scan()));
  EXPECT_NE(cache.Save(), other.Save()) << "it is replaced";
}

TEST(ShaderCache, GivesWhatItHasKept) {
  ShaderCache other;
  other.Get(Scan());
  std::vector<std::byte> saved = other.Save();
  saved.back() ^= std::byte{1};
  ShaderCache cache;
  EXPECT_NE(Load(cache, saved).Get(Scan()), Made(Scan())) << "it was made again";
}

TEST(ShaderCache, TakesWhatIsWhole) {
  ShaderCache cache;
  cache.Get(Scan());
  const size_t whole = cache.Save().size();
  cache.Get(OtherScan());
  const std::vector<std::byte> saved = cache.Save();
  for (const size_t size : {saved.size() - 1, whole + 1, whole}) {
    ShaderCache again;
    again.Load(std::span(saved).first(size));
    EXPECT_EQ(again.Save().size(), whole) << size;
  }
  ShaderCache none;
  none.Load(std::span(saved).first(whole - 1));
  EXPECT_TRUE(none.Save().empty());
}

TEST(ShaderCache, PrefersWhatIsUsed) {
  ShaderCache both;
  both.Get(Scan());
  both.Get(OtherScan());
  const size_t one = Made(OtherScan()).size() * sizeof(uint32_t);
  ShaderCache small(one + one / 2);
  small.Load(both.Save());
  small.Get(OtherScan());
  ShaderCache cache, expected;
  expected.Get(OtherScan());
  cache.Load(small.Save());
  EXPECT_EQ(cache.Save(), expected.Save());
}

}  // namespace
}  // namespace rullama::vulkan
