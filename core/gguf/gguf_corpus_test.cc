// Generates the seeds of the fuzzer and checks that the committed ones are the same. After a change
// here, copy BUILD/gguf_corpus/* to tests/fuzz/corpus/gguf/.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "core/gguf/gguf.h"
#include "core/gguf/gguf_test_bytes.h"
#include "core/gguf/quant_vectors_test_util.h"

namespace rullama {
namespace {

const std::filesystem::path kCommitted = RULLAMA_SOURCE_DIR "/tests/fuzz/corpus/gguf";
const std::filesystem::path kGenerated = RULLAMA_BINARY_DIR "/gguf_corpus";
constexpr size_t kMaxSeedBytes = 2048;

// One block of each of `types`.
GgufBytes Blocks(std::initializer_list<DType> types) {
  GgufBytes bytes;
  bytes.Header(types.size(), 0);
  uint64_t offset = 0;
  for (const DType type : types) {
    bytes.Tensor(NameOf(type), {InfoOf(type).block_elements}, static_cast<uint32_t>(type), offset);
    offset += (InfoOf(type).block_bytes + 31) / 32 * 32;
  }
  return bytes.PadTo(32).Data(offset);
}

std::map<std::string, GgufBytes> Seeds() {
  return {
      {"empty_v3", GgufBytes().Header(0, 0)},
      {"small_v2", SmallValidGguf(2)},
      {"small_v3", SmallValidGguf(3)},
      {"blocks_32", Blocks({DType::kF32, DType::kF16, DType::kBF16, DType::kI8, DType::kI64,
                            DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                            DType::kIQ4_NL, DType::kMXFP4, DType::kNVFP4})},
      {"blocks_256", Blocks({DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K,
                             DType::kIQ4_XS})},
      {"vocabulary", GgufBytes()
                         .Header(0, 3)
                         .StringsEntry("tokenizer.ggml.tokens", {"<pad>", "<eos>", "a", "b", "ab"})
                         .StringsEntry("tokenizer.ggml.merges", {"a b"})
                         .ArrayEntry<float>("tokenizer.ggml.scores", {0, 0, -1, -2, -3})},
      {"split",
       GgufBytes().Header(0, 2).Entry("split.no", uint16_t{0}).Entry("split.count", uint16_t{2})},
      {"nested_array", GgufBytes()
                           .Header(0, 1)
                           .Key("k", GgufType::kArray)
                           .Put(GgufType::kArray)
                           .Put(uint64_t{1})
                           .Put(GgufType::kU8)
                           .Put(uint64_t{1})
                           .Put(uint8_t{1})},
      {"overlap",
       GgufBytes().Header(2, 0).Tensor("a", {16}, 0, 0).Tensor("b", {8}, 0, 32).PadTo(32).Data(64)},
      {"aligned_64", GgufBytes()
                         .Header(1, 1)
                         .Entry("general.alignment", uint32_t{64})
                         .Tensor("a", {3, 2, 2, 1}, 0, 0)
                         .PadTo(64)
                         .Data(48)},
      {"not_gguf", GgufBytes().PutText("version https://git-lfs.github.com/spec/v1\n")},
  };
}

TEST(GgufCorpusTest, CommittedSeedsAreTheGeneratedOnes) {
  std::filesystem::create_directories(kGenerated);
  for (const auto& [name, seed] : Seeds()) {
    EXPECT_LT(seed.size(), kMaxSeedBytes) << name;
    std::ofstream(kGenerated / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(seed.bytes().data()),
               static_cast<std::streamsize>(seed.size()));
    EXPECT_TRUE(std::ranges::equal(ReadBytes(kCommitted / name), seed.bytes()))
        << "copy " << kGenerated / name << " to " << kCommitted;
  }
}

TEST(GgufCorpusTest, SeedsReachBothOutcomes) {
  const auto seeds = Seeds();
  for (const char* name : {"empty_v3", "small_v2", "small_v3", "blocks_32", "blocks_256",
                           "vocabulary", "aligned_64"}) {
    EXPECT_TRUE(GgufFile::Parse(seeds.at(name).bytes())) << name;
  }
  for (const char* name : {"split", "nested_array", "overlap", "not_gguf"}) {
    EXPECT_FALSE(GgufFile::Parse(seeds.at(name).bytes())) << name;
  }
}

}  // namespace
}  // namespace rullama
