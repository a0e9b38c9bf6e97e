#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/base/range_reader.h"
#include "core/gguf/check_numbers.h"
#include "core/gguf/gguf.h"
#include "core/gguf/gguf_writer.h"

namespace rullama {
namespace {

constexpr const char* kModel = RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf";

// Bytes in memory, whose reads are counted. Those of the byte at `broken_at` fail.
class Bytes final : public RangeReader {
 public:
  explicit Bytes(std::span<const std::byte> bytes, uint64_t broken_at = UINT64_MAX)
      : bytes_(bytes), broken_at_(broken_at) {}

  [[nodiscard]] uint64_t size() const override { return bytes_.size(); }
  [[nodiscard]] const std::string& path() const override { return path_; }
  [[nodiscard]] Status Read(uint64_t offset, std::span<std::byte> to) const override {
    const bool broken = offset <= broken_at_ && broken_at_ < offset + to.size();
    if (broken || offset + to.size() > bytes_.size()) {
      return MakeError(ErrorKind::kIo, "io.read", "cannot read '{}'", path_);
    }
    std::ranges::copy(bytes_.subspan(offset, to.size()), to.begin());
    *read_ += to.size();
    return OkStatus();
  }
  [[nodiscard]] Status CheckUnchanged() const override { return OkStatus(); }

  [[nodiscard]] std::shared_ptr<uint64_t> bytes_read() const { return read_; }

 private:
  std::span<const std::byte> bytes_;
  uint64_t broken_at_;
  std::string path_ = "bytes";
  std::shared_ptr<uint64_t> read_ = std::make_shared<uint64_t>(0);
};

TEST(GgufRangesTest, GivesWhatAMappedFileHas) {
  const GgufFile mapped = Must(GgufFile::Open(kModel));
  const GgufFile read = Must(GgufFile::Read(Must(OpenRangeReader(kModel))));
  EXPECT_EQ(read.path(), kModel);
  EXPECT_EQ(read.total_bytes(), mapped.total_bytes());
  EXPECT_EQ(read.data_offset(), mapped.data_offset());
  EXPECT_TRUE(std::ranges::equal(read.bytes(), mapped.bytes().first(mapped.data_offset())));
  ASSERT_EQ(read.tensors().size(), mapped.tensors().size());
  for (size_t i = 0; i < read.tensors().size(); ++i) {
    const TensorInfo& tensor = read.tensors()[i];
    EXPECT_EQ(tensor.name, mapped.tensors()[i].name);
    const auto expected = mapped.data(mapped.tensors()[i]);
    const auto bytes = Must(read.Load(tensor));
    EXPECT_TRUE(std::ranges::equal(bytes, expected)) << tensor.name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes.data()) % kGgufDefaultAlignment, 0u);
    read.Release(bytes);
    const uint64_t half = tensor.bytes / 2;
    const auto rest = Must(read.Load(tensor, half, tensor.bytes - half));
    EXPECT_TRUE(std::ranges::equal(rest, expected.subspan(half))) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(Must(read.Load(tensor)), expected)) << tensor.name;
  }
}

TEST(GgufRangesTest, ReadsTheHeaderAndSmallTensorsAlone) {
  const GgufFile mapped = Must(GgufFile::Open(kModel));
  uint64_t small = 0;
  for (const TensorInfo& tensor : mapped.tensors()) {
    if (tensor.bytes <= kGgufSmallTensorBytes) small += tensor.bytes;
  }
  auto reader = std::make_unique<Bytes>(mapped.bytes());
  const auto bytes_read = reader->bytes_read();
  const GgufFile read = Must(GgufFile::Read(std::move(reader)));
  // The header is looked for in the first MiB.
  EXPECT_LE(*bytes_read, std::max<uint64_t>(read.data_offset(), 1 << 20) + small);
  for (const TensorInfo& tensor : read.tensors()) {
    const uint64_t before = *bytes_read;
    if (tensor.bytes <= kGgufSmallTensorBytes) {
      EXPECT_EQ(read.data(tensor).size(), tensor.bytes);
      EXPECT_EQ(Must(read.Load(tensor)).data(), read.data(tensor).data());
      EXPECT_EQ(*bytes_read, before) << tensor.name;
    }
  }
}

TEST(GgufRangesTest, ReadsALongHeaderToItsEnd) {
  const std::string path = testing::TempDir() + "/gguf_ranges_long.gguf";
  const std::string text(5'000'000, 'x');
  GgufWriter writer;
  ASSERT_TRUE(writer.Set("long", std::string_view(text)));
  auto output = Must(writer.Begin(path));
  ASSERT_TRUE(output.Finish());
  const GgufFile read = Must(GgufFile::Read(Must(OpenRangeReader(path))));
  EXPECT_EQ(Must(read.GetString("long")), text);
  std::filesystem::remove(path);
}

TEST(GgufRangesTest, RefusesWhatParsingRefuses) {
  const GgufFile mapped = Must(GgufFile::Open(kModel));
  const std::span<const std::byte> all = mapped.bytes();
  for (const size_t size :
       {size_t{0}, size_t{23}, size_t{100}, size_t{1000}, static_cast<size_t>(mapped.data_offset()),
        all.size() / 2, all.size() - 1}) {
    const auto parsed = GgufFile::Parse(all.first(size));
    const auto read = GgufFile::Read(std::make_unique<Bytes>(all.first(size)));
    ASSERT_FALSE(parsed) << size;
    ASSERT_FALSE(read) << size;
    EXPECT_EQ(read.error().id, parsed.error().id) << size;
    EXPECT_EQ(read.error().message, "model file 'bytes': " + parsed.error().message) << size;
  }
}

// A tensor whose end cannot be read, as of a file that was removed in between.
TEST(GgufRangesTest, NumbersOfATensorThatCannotBeReadAreAnError) {
  const GgufFile mapped = Must(GgufFile::Open(kModel));
  const auto large = std::ranges::max_element(mapped.tensors(), {}, &TensorInfo::bytes);
  ASSERT_GT(large->bytes, kGgufSmallTensorBytes);
  const uint64_t broken_at = large->offset + large->bytes - 1;
  const GgufFile broken = Must(GgufFile::Read(std::make_unique<Bytes>(mapped.bytes(), broken_at)));
  const auto numbers = NumbersOf(broken, *broken.FindTensor(large->name));
  ASSERT_FALSE(numbers);
  EXPECT_EQ(numbers.error().id, "io.read");
  const GgufFile whole = Must(GgufFile::Read(std::make_unique<Bytes>(mapped.bytes())));
  EXPECT_EQ(Must(NumbersOf(whole, *whole.FindTensor(large->name))).largest,
            Must(NumbersOf(mapped, *large)).largest);
}

TEST(GgufRangesTest, SaysThatAReadFailed) {
  const GgufFile mapped = Must(GgufFile::Open(kModel));
  EXPECT_EQ(GgufFile::Read(std::make_unique<Bytes>(mapped.bytes(), 10)).error().id, "io.read");
  const auto large = std::ranges::max_element(mapped.tensors(), {}, &TensorInfo::bytes);
  ASSERT_GT(large->bytes, kGgufSmallTensorBytes);
  const uint64_t broken_at = large->offset + large->bytes - 1;
  const GgufFile read = Must(GgufFile::Read(std::make_unique<Bytes>(mapped.bytes(), broken_at)));
  const TensorInfo& tensor = *read.FindTensor(large->name);
  EXPECT_EQ(read.Load(tensor).error().id, "io.read");
  EXPECT_TRUE(read.Load(tensor, 0, tensor.bytes - 1));
}

}  // namespace
}  // namespace rullama
