#include "engine/loading/model_fingerprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/base/must_test_util.h"
#include "core/base/range_reader.h"
#include "core/gguf/gguf.h"

namespace rullama {
namespace {

constexpr const char* kModel = RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf";

ModelFingerprint ReadByRanges(const std::string& path) {
  const GgufFile file = Must(GgufFile::Read(Must(OpenRangeReader(path))));
  return Must(FingerprintOf(file, 1));
}

// Two models with the same header must not share snapshots, however their files are read.
TEST(ModelFingerprintTest, DependsOnTheLastByteOfTheLargestTensor) {
  const std::string changed = testing::TempDir() + "/model_fingerprint_test.gguf";
  std::filesystem::copy_file(kModel, changed, std::filesystem::copy_options::overwrite_existing);
  std::filesystem::permissions(changed, std::filesystem::perms::owner_write,
                               std::filesystem::perm_options::add);
  const GgufFile model = Must(GgufFile::Open(kModel));
  const auto large = std::ranges::max_element(model.tensors(), {}, &TensorInfo::bytes);
  ASSERT_GT(large->bytes, kGgufSmallTensorBytes);
  const auto at = static_cast<std::streamoff>(large->offset + large->bytes - 1);
  std::fstream file(changed, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(at);
  const int last = file.get();
  file.seekp(at);
  file.put(static_cast<char>(last ^ 1));
  file.close();
  EXPECT_EQ(ReadByRanges(kModel), ReadByRanges(kModel));
  EXPECT_NE(ReadByRanges(kModel), ReadByRanges(changed));
  const GgufFile mapped = Must(GgufFile::Open(changed));
  EXPECT_NE(Must(FingerprintOf(mapped, 1)), Must(FingerprintOf(model, 1)));
  std::filesystem::remove(changed);
}

}  // namespace
}  // namespace rullama
