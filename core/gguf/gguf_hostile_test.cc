// Hostile, damaged and mistaken files: each row is one input and the id it must be answered with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "core/base/mmap_file.h"
#include "core/gguf/gguf.h"
#include "core/gguf/gguf_parse.h"
#include "core/gguf/gguf_test_bytes.h"

namespace rullama {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ8_0 = 8;
constexpr uint32_t kF64 = 28;
constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

struct HostileCase {
  std::string name;
  GgufBytes bytes;
  std::string id;
  std::string says;  // a part of the message
};

void PrintTo(const HostileCase& test, std::ostream* out) { *out << test.name; }

GgufBytes Text(std::string_view text) { return GgufBytes().PutText(text); }
GgufBytes OneKey() { return GgufBytes().Header(0, 1); }
// The header, then one array key whose element type, count and content follow.
GgufBytes ArrayKey() { return OneKey().Key("k", GgufType::kArray); }
// Two f32 tensors of 8 elements at the given offsets and 64 bytes of data.
GgufBytes TwoTensors(uint64_t first, uint64_t second) {
  return GgufBytes()
      .Header(2, 0)
      .Tensor("a", {8}, kF32, first)
      .Tensor("b", {8}, kF32, second)
      .PadTo(32)
      .Data(64);
}
GgufBytes OneTensor(std::initializer_list<uint64_t> dims, uint32_t type, uint64_t offset = 0) {
  return GgufBytes().Header(1, 0).Tensor("x", dims, type, offset).PadTo(32).Data(64);
}
GgufBytes Rank(uint32_t rank) {
  return GgufBytes().Header(1, 0).PutString("x").Put(rank).Data(200);
}

std::vector<HostileCase> NotGguf() {
  const std::string_view json = "{\"x\":{\"dtype\":\"F32\",\"shape\":[1]}}";
  const GgufBytes safetensors = GgufBytes().Put(uint64_t{json.size()}).PutText(json);
  return {
      {"Empty", {}, "gguf.too_short", "0 bytes"},
      {"MagicOnly", Text("GGUF"), "gguf.too_short", "4 bytes"},
      {"TwentyThreeBytes", Text("GGUF...................").PutText(""), "gguf.too_short", "23"},
      {"Safetensors", safetensors, "gguf.bad_magic", "safetensors"},
      {"Zip", Text("PK\x03\x04 and much more than 24 bytes"), "gguf.bad_magic", "ZIP"},
      {"Html", Text("\n <!DOCTYPE html><html>sign in</html>"), "gguf.bad_magic", "web page"},
      {"HtmlWithoutDoctype", Text("<HTML><body>sign in, please"), "gguf.bad_magic", "web page"},
      {"LfsPointer", Text("version https://git-lfs.github.com/spec/v1\noid sha256:00"),
       "gguf.bad_magic", "git lfs pull"},
      {"Xml", Text("<?xml version=\"1.0\"?><Error>AccessDenied</Error>"), "gguf.bad_magic", "XML"},
      {"Json", Text("{\"error\": \"repository not found\"}"), "gguf.bad_magic", "JSON"},
      {"OldGgml", Text("tjgg then anything longer than 24"), "gguf.bad_magic", "older than GGUF"},
      {"Zeros", GgufBytes().PadTo(1).Put(uint64_t{0}).Put(uint64_t{0}).Put(uint64_t{0}),
       "gguf.bad_magic", "zeros"},
      {"Text", Text("Dear reader, this is a letter."), "gguf.bad_magic", "a text file"},
      {"Noise", Text("\x01\x02\x03\x04\x05 and some more noise \x06"), "gguf.bad_magic",
       "01 02 03 04"},
  };
}

std::vector<HostileCase> Headers() {
  return {
      {"Version0", GgufBytes().Header(0, 0, 0), "gguf.version", "version 0, expected 2 or 3"},
      {"Version1", GgufBytes().Header(0, 0, 1), "gguf.version", "version 1, expected 2 or 3"},
      {"Version4", GgufBytes().Header(0, 0, 4), "gguf.version", "newer rullama"},
      {"BigEndian", GgufBytes().Header(0, 0, 0x03000000), "gguf.version", "big-endian"},
      {"Tensors2To63", GgufBytes().Header(uint64_t{1} << 63, 0), "gguf.count", "tensors"},
      {"Tensors2To32", GgufBytes().Header(uint64_t{1} << 32, 0), "gguf.count", "tensors"},
      {"TensorsMoreThanFit", GgufBytes().Header(5000, 0).Data(5000), "gguf.count", "at most 151"},
      {"Keys2To63", GgufBytes().Header(0, uint64_t{1} << 63), "gguf.count", "metadata entries"},
      {"Keys2To32", GgufBytes().Header(0, uint64_t{1} << 32), "gguf.count", "metadata entries"},
      {"KeysMoreThanFit", GgufBytes().Header(0, 5000).Data(140), "gguf.count", "at most 10"},
      {"KeyMissing", GgufBytes().Header(0, 2).Entry("k", true), "gguf.truncated", "metadata key"},
  };
}

std::vector<HostileCase> Values() {
  std::vector<HostileCase> cases = {
      {"KeyLengthMax", OneKey().Put(kMax).Data(64), "gguf.string_length", "at most 65535"},
      {"KeyOver64KiB", OneKey().Put(uint64_t{65536}).Data(70000), "gguf.string_length", "65536"},
      {"StringLengthMax", OneKey().Key("k", GgufType::kString).Put(kMax), "gguf.string_length",
       "18446744073709551615"},
      {"StringLongerThanFile", OneKey().Key("k", GgufType::kString).Put(uint64_t{1} << 20).Data(9),
       "gguf.string_length", "1048576"},
      {"StringInArrayTooLong", ArrayKey().Put(GgufType::kString).Put(uint64_t{1}).Put(kMax).Data(8),
       "gguf.string_length", "'k'"},
      {"ArrayOfArrays", ArrayKey().Put(GgufType::kArray).Put(uint64_t{1}).Data(64), "gguf.array",
       "nested arrays"},
      {"ArrayCountWraps", ArrayKey().Put(GgufType::kU64).Put((uint64_t{1} << 61) + 1).Data(64),
       "gguf.array", "2^64"},
      {"StringArrayCountWraps", ArrayKey().Put(GgufType::kString).Put(kMax).Data(64), "gguf.array",
       "2^64"},
      {"ArrayLongerThanFile", ArrayKey().Put(GgufType::kU8).Put(uint64_t{1} << 40).Data(64),
       "gguf.truncated", "array"},
      {"ArrayElementType255", ArrayKey().Put(uint32_t{255}).Put(uint64_t{1}).Data(64), "gguf.array",
       "255"},
      {"ArrayBool7", ArrayKey().Put(GgufType::kBool).Put(uint64_t{2}).Put(true).Put(uint8_t{7}),
       "gguf.array", "is 7, expected 0 or 1"},
      {"Bool7", OneKey().Key("k", GgufType::kBool).Put(uint8_t{7}), "gguf.value", "is 7"},
      {"ValueType13", OneKey().PutString("k").Put(uint32_t{13}).Data(8), "gguf.value", "13"},
      {"KeyTwice", GgufBytes().Header(0, 2).Entry("k", true).Entry("k", true), "gguf.key",
       "'k' is given twice"},
      {"KeyEmpty", OneKey().Entry("", true), "gguf.key", "empty"},
      {"KeyWithNul", OneKey().Entry(std::string_view("a\0b", 3), true), "gguf.key", "NUL"},
      {"KeyNotUtf8", OneKey().Entry("a\xff", true), "gguf.key", "UTF-8"},
      {"AlignmentString", OneKey().Entry("general.alignment", std::string_view("32")),
       "gguf.key_type", "found string, expected u32"},
      {"AlignmentNegative", OneKey().Entry("general.alignment", int32_t{-32}), "gguf.key_type",
       "value -32"},
      {"AlignmentArray", OneKey().ArrayEntry<uint32_t>("general.alignment", {32}), "gguf.key_type",
       "array of 1 u32"},
  };
  GgufBytes nested = OneKey();
  nested.Key("k", GgufType::kArray);
  for (int i = 0; i < 1000; ++i) nested.Put(GgufType::kArray).Put(uint64_t{1});
  cases.push_back({"ArrayNested1000", nested, "gguf.array", "nested"});
  for (const uint32_t alignment : {0u, 3u, 4u, 24u, 1u << 31}) {
    cases.push_back({"Alignment" + std::to_string(alignment),
                     OneKey().Entry("general.alignment", alignment), "gguf.alignment",
                     "is " + std::to_string(alignment)});
  }
  return cases;
}

std::vector<HostileCase> Tensors() {
  const uint64_t half = uint64_t{1} << 63;
  return {
      {"Rank0", Rank(0), "gguf.dims", "0 dimensions"},
      {"Rank5", Rank(5), "gguf.dims", "5 dimensions"},
      {"RankMax", Rank(0xFFFFFFFF), "gguf.dims", "4294967295"},
      {"Dim0", OneTensor({8, 0}, kF32), "gguf.dims", "dimension 1 is 0"},
      {"Dim2To63", OneTensor({half}, kF32), "gguf.dims", "2^63"},
      {"DimsWrap", OneTensor({uint64_t{1} << 32, uint64_t{1} << 32}, kF32), "gguf.dims",
       "the product of the dimensions 4294967296 x 4294967296 is 2^63"},
      {"DimsWrapToSmall", OneTensor({half, 2, 1, 4}, kF32), "gguf.dims", "2^63"},
      {"BytesWrap", OneTensor({uint64_t{1} << 62}, kF64), "gguf.dims", "2^64 bytes"},
      {"NotWholeBlocks", OneTensor({33}, kQ8_0), "gguf.dims", "multiple of 32 for type q8_0"},
      {"RemovedType4", OneTensor({32}, 4), "gguf.type", "q4_k"},
      {"UnknownType200", OneTensor({32}, 200), "gguf.type", "type 200"},
      {"OffsetUnaligned", TwoTensors(0, 33), "gguf.tensor_out_of_file", "alignment 32"},
      {"OffsetEndWraps", OneTensor({16}, kF32, kMax - 31), "gguf.tensor_out_of_file", "wraps"},
      {"OffsetBeyondFile", TwoTensors(0, 4096), "gguf.tensor_out_of_file", "'b' lies at"},
      {"EndBeyondFile", TwoTensors(0, 64), "gguf.tensor_out_of_file", "'b' lies at"},
      {"TensorLargerThanFile", OneTensor({1024}, kF32), "gguf.truncated", "expected 4160"},
      {"OffsetInsideHeader", OneTensor({8}, kF32, kMax - 63), "gguf.tensor_overlap", "header"},
      {"Overlap", TwoTensors(0, 0), "gguf.tensor_overlap", "inside tensor"},
      {"PartialOverlap",
       GgufBytes()
           .Header(2, 0)
           .Tensor("a", {16}, kF32, 0)
           .Tensor("b", {8}, kF32, 32)
           .PadTo(32)
           .Data(64),
       "gguf.tensor_overlap", "'b' begins"},
      {"SameName",
       GgufBytes()
           .Header(2, 0)
           .Tensor("a", {8}, kF32, 0)
           .Tensor("a", {8}, kF32, 32)
           .PadTo(32)
           .Data(64),
       "gguf.tensor_duplicate", "'a' is given twice"},
      {"TotalWraps",
       GgufBytes()
           .Header(2, 0)
           .Tensor("a", {uint64_t{1} << 61}, kF32, 0)
           .Tensor("b", {uint64_t{1} << 61}, kF32, half)
           .PadTo(32),
       "gguf.total_size", "2^64"},
      {"PaddingOfTotalWraps",
       GgufBytes().Header(1, 0).Tensor("a", {(uint64_t{1} << 61) - 1, 1, 1, 2}, kF32, 0).PadTo(32),
       "gguf.total_size", "2^64"},
      {"NameTooLong", GgufBytes().Header(1, 0).Tensor(std::string(65, 'n'), {1}, kF32, 0).Data(64),
       "gguf.string_length", "at most 64"},
      {"NameEmpty", GgufBytes().Header(1, 0).Tensor("", {1}, kF32, 0).Data(64), "gguf.tensor_name",
       "empty"},
      {"NameNotUtf8", GgufBytes().Header(1, 0).Tensor("\xc3", {1}, kF32, 0).Data(64),
       "gguf.tensor_name", "UTF-8"},
      {"SplitPart",
       GgufBytes().Header(0, 2).Entry("split.no", uint16_t{1}).Entry("split.count", uint16_t{3}),
       "gguf.split", "part 2 of 3"},
      {"SplitWithoutCount", OneKey().Entry("split.tensors.count", int32_t{7}), "gguf.split",
       "split.count is missing"},
      {"SplitBeyondCount",
       GgufBytes().Header(0, 2).Entry("split.no", uint16_t{3}).Entry("split.count", uint16_t{3}),
       "gguf.split", "split.no is 3"},
      {"SplitCountOfAnotherType",
       GgufBytes().Header(0, 2).Entry("split.no", uint16_t{0}).Entry("split.count", 2.0f),
       "gguf.key_type", "split.count"},
  };
}

std::vector<HostileCase> AllCases() {
  std::vector<HostileCase> all;
  for (const auto& group : {NotGguf(), Headers(), Values(), Tensors()}) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

class HostileGgufTest : public ::testing::TestWithParam<HostileCase> {};

TEST_P(HostileGgufTest, IsAnsweredWithItsId) {
  const HostileCase& test = GetParam();
  const auto file = GgufFile::Parse(test.bytes.bytes());
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().id, test.id) << file.error().message;
  EXPECT_EQ(file.error().kind, ErrorKind::kModelFile);
  EXPECT_THAT(file.error().message, HasSubstr(test.says));
}

INSTANTIATE_TEST_SUITE_P(Table, HostileGgufTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& row) { return row.param.name; });

TEST(TruncatedGgufTest, EveryByteOfAValidFile) {
  size_t data_offset = 0;
  const GgufBytes file = SmallValidGguf(3, &data_offset);
  ASSERT_TRUE(GgufFile::Parse(file.bytes()));
  for (size_t length = 0; length < file.size(); ++length) {
    // A copy of exact size, so that AddressSanitizer sees a read past the end.
    const std::vector<std::byte> cut(file.bytes().begin(),
                                     file.bytes().begin() + static_cast<std::ptrdiff_t>(length));
    const auto parsed = GgufFile::Parse(cut);
    ASSERT_FALSE(parsed) << length;
    EXPECT_EQ(parsed.error().id, length < 24 ? "gguf.too_short" : "gguf.truncated")
        << length << ": " << parsed.error().message;
    if (length >= data_offset) {
      EXPECT_THAT(parsed.error().message, HasSubstr("expected " + std::to_string(file.size())));
    }
  }
}

// Flipping any single bit of the header may change the values, but never the bytes that are
// touched.
TEST(FlippedGgufTest, EveryBitOfAValidHeader) {
  size_t data_offset = 0;
  const GgufBytes file = SmallValidGguf(3, &data_offset);
  size_t refused = 0;
  for (size_t bit = 0; bit < data_offset * 8; ++bit) {
    std::vector<std::byte> bytes(file.bytes().begin(), file.bytes().end());
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    const auto parsed = GgufFile::Parse(bytes);
    if (!parsed) {
      EXPECT_EQ(parsed.error().kind, ErrorKind::kModelFile);
      ++refused;
      continue;
    }
    for (const TensorInfo& tensor : parsed->tensors()) {
      EXPECT_LE(tensor.offset + tensor.bytes, bytes.size());
    }
  }
  EXPECT_GT(refused, data_offset);
}

class NoFileTest : public ::testing::Test {
 protected:
  static Error OpenError(const std::filesystem::path& path) {
    const auto file = GgufFile::Open(path);
    return file ? Error{} : file.error();
  }
};

TEST_F(NoFileTest, DirectoriesFifosAndDevicesAreNoModelFiles) {
  const auto fifo = std::filesystem::path(::testing::TempDir()) / "gguf_hostile_test_fifo";
  std::filesystem::remove(fifo);
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::pair<std::filesystem::path, std::string> cases[] = {
      {::testing::TempDir(), "directory"}, {fifo, "FIFO"}, {"/dev/zero", "device"}};
  for (const auto& [path, what] : cases) {
    const Error error = OpenError(path);
    EXPECT_EQ(error.id, "gguf.not_a_file") << path;
    EXPECT_EQ(error.kind, ErrorKind::kModelFile);
    EXPECT_THAT(error.message, HasSubstr(what));
  }
}

TEST_F(NoFileTest, AMissingFileIsAnIoError) {
  const Error error = OpenError(std::filesystem::path(::testing::TempDir()) / "no_such.gguf");
  EXPECT_EQ(error.id, "io.open");
  EXPECT_EQ(error.kind, ErrorKind::kIo);
}

// A sparse file has any size and takes no space, so what fits the file may still be far too much.
class SparseGgufTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  // The error of a file of 16 GiB that begins with `header` and is zero from there on.
  Error ErrorOf(const GgufBytes& header) {
    const auto bytes = header.bytes();
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    std::filesystem::resize_file(path_, uint64_t{16} << 30);
    const auto file = GgufFile::Open(path_);
    return file ? Error{} : file.error();
  }

  std::filesystem::path path_ =
      std::filesystem::path(::testing::TempDir()) / "gguf_hostile_test_sparse.gguf";
};

TEST_F(SparseGgufTest, CountsAndLengthsThatFitTheFileHaveLimits) {
  constexpr uint64_t kTooMany = kGgufMaxArrayElements + 1;
  GgufBytes long_string = ArrayKey();
  long_string.Put(GgufType::kString).Put(uint64_t{2}).PutString("x").Put(kGgufMaxStringBytes + 1);
  const HostileCase cases[] = {
      {"Strings", ArrayKey().Put(GgufType::kString).Put(uint64_t{1} << 30), "gguf.array",
       "1073741824 elements, expected at most 16777216"},
      {"StringsOneTooMany", ArrayKey().Put(GgufType::kString).Put(kTooMany), "gguf.array",
       "16777217"},
      {"Numbers", ArrayKey().Put(GgufType::kU64).Put(kTooMany), "gguf.array", "16777217"},
      {"String", OneKey().Key("k", GgufType::kString).Put(uint64_t{1} << 33), "gguf.string_length",
       "8589934592, expected at most 268435456"},
      {"StringInArray", long_string, "gguf.string_length", "268435457"},
  };
  for (const HostileCase& hostile : cases) {
    const Error error = ErrorOf(hostile.bytes);
    EXPECT_EQ(error.id, hostile.id) << hostile.name;
    EXPECT_EQ(error.kind, ErrorKind::kModelFile) << hostile.name;
    EXPECT_THAT(error.message, HasSubstr(hostile.says)) << hostile.name;
  }
}

TEST_F(SparseGgufTest, AllMetadataTogetherHasALimit) {
  // Each string is as long as allowed; the fifth does not fit any more.
  const auto bytes = [](uint64_t count) {
    GgufBytes file = GgufBytes().Header(0, 1).Key("k", GgufType::kArray);
    return file.Put(GgufType::kString).Put(count);
  };
  // Written by hand, for the strings lie far apart.
  std::ofstream file(path_, std::ios::binary);
  const auto header = bytes(5);
  file.write(reinterpret_cast<const char*>(header.bytes().data()), std::ssize(header.bytes()));
  constexpr uint64_t kLength = kGgufMaxStringBytes;
  for (int i = 0; i < 5; ++i) {
    file.write(reinterpret_cast<const char*>(&kLength), sizeof(kLength));
    file.seekp(static_cast<std::streamoff>(kLength), std::ios::cur);
  }
  file.put('\0');
  file.close();
  const auto opened = GgufFile::Open(path_);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().id, "gguf.header_size");
  EXPECT_EQ(opened.error().kind, ErrorKind::kModelFile);
  EXPECT_THAT(opened.error().message, HasSubstr("1073741824"));
}

// Where a file is read by ranges, a length that lies beyond the limit would be waited for in vain.
TEST_F(SparseGgufTest, TheLengthOfAStringBeyondTheLimitIsNotAskedFor) {
  constexpr uint64_t kFileBytes = kGgufMaxHeaderBytes + 4096;
  constexpr uint64_t kStrings = 5;
  std::ofstream file(path_, std::ios::binary);
  GgufBytes header = GgufBytes().Header(0, 1).Key("k", GgufType::kArray);
  header.Put(GgufType::kString).Put(kStrings);
  file.write(reinterpret_cast<const char*>(header.bytes().data()), std::ssize(header.bytes()));
  // Three strings of the largest length, and a fourth that ends 4 bytes before the limit.
  uint64_t at = header.bytes().size();
  for (const uint64_t end : {kGgufMaxStringBytes, 2 * kGgufMaxStringBytes, 3 * kGgufMaxStringBytes,
                             kGgufMaxHeaderBytes - 4}) {
    const uint64_t length = end - at - sizeof(uint64_t);
    file.write(reinterpret_cast<const char*>(&length), sizeof(length));
    file.seekp(static_cast<std::streamoff>(end));
    at = end;
  }
  file.seekp(static_cast<std::streamoff>(kFileBytes - 1));
  file.put('\0');
  file.close();
  const auto mapped = MmapFile::Open(path_);
  ASSERT_TRUE(mapped);
  gguf_internal::GgufHead head{mapped->bytes().first(kGgufMaxHeaderBytes), kFileBytes};
  const auto parsed = gguf_internal::ParseGguf(head);
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().id, "gguf.header_size");
  EXPECT_EQ(head.needed, 0);
}

TEST_F(NoFileTest, ErrorsNameTheFile) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "gguf_hostile_test_empty.gguf";
  std::ofstream(path, std::ios::binary).close();
  const Error error = OpenError(path);
  EXPECT_EQ(error.id, "gguf.too_short");
  EXPECT_THAT(error.message, HasSubstr(path.string()));
}

}  // namespace
}  // namespace rullama
