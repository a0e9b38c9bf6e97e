#include "core/safetensors/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file of this header and `data` zero bytes.
std::vector<std::byte> FileOf(const std::string& header, size_t data) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < 8; ++i) bytes.push_back(static_cast<std::byte>(header.size() >> (8 * i)));
  for (const char c : header) bytes.push_back(static_cast<std::byte>(c));
  bytes.resize(bytes.size() + data);
  return bytes;
}

std::string ErrorOf(const std::vector<std::byte>& bytes) {
  const auto file = SafetensorsFile::Parse(bytes);
  return file ? "no error" : file.error().ToString();
}

std::string Tensor(const std::string& name, const std::string& rest) {
  return "\"" + name + "\":{" + rest + "}";
}

TEST(Safetensors, WhatIsWrittenIsRead) {
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<float> b = {-0.5F};
  const auto bytes = EncodeSafetensors({{"b \"quoted\"", {1}, b}, {"a", {2, 3}, a}},
                                       {{"format", "pt"}, {"rank", "4"}});
  EXPECT_EQ(std::to_integer<int>(bytes[0]) % 8, 0);
  EXPECT_TRUE(SafetensorsFile::LooksLike(bytes));
  const auto file = SafetensorsFile::Parse(bytes);
  ASSERT_TRUE(file) << file.error().ToString();
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->tensors()[0].name, "a");
  EXPECT_THAT(file->tensors()[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(*file->Floats(file->tensors()[0]), a);
  EXPECT_EQ(file->tensors()[1].name, "b \"quoted\"");
  EXPECT_EQ(*file->Floats(file->tensors()[1]), b);
  EXPECT_EQ(file->metadata().at("rank"), "4");
}

TEST(Safetensors, HalfTypesAreDecoded) {
  auto bytes = FileOf("{" + Tensor("h", R"("dtype":"F16","shape":[1],"data_offsets":[0,2])") + "," +
                          Tensor("b", R"("dtype":"BF16","shape":[1],"data_offsets":[2,4])") + "}",
                      4);
  bytes[bytes.size() - 3] = std::byte{0x3C};  // 1.0 in f16
  bytes[bytes.size() - 1] = std::byte{0x40};  // 2.0 in bf16
  const auto file = SafetensorsFile::Parse(bytes);
  ASSERT_TRUE(file) << file.error().ToString();
  EXPECT_THAT(*file->Floats(file->tensors()[0]), ElementsAre(1.0F));
  EXPECT_THAT(*file->Floats(file->tensors()[1]), ElementsAre(2.0F));
}

TEST(Safetensors, OtherTypesAreNoFloats) {
  const auto bytes =
      FileOf("{" + Tensor("i", R"("dtype":"I32","shape":[1],"data_offsets":[0,4])") + "}", 4);
  const auto file = SafetensorsFile::Parse(bytes);
  ASSERT_TRUE(file) << file.error().ToString();
  const auto values = file->Floats(file->tensors()[0]);
  ASSERT_FALSE(values);
  EXPECT_THAT(values.error().ToString(), HasSubstr("'i' has type I32"));
}

struct Hostile {
  const char* name;
  std::string header;
  size_t data;
  const char* expected;
};

TEST(Safetensors, DamagedFilesAreErrors) {
  const std::string f32 = R"("dtype":"F32","shape":[1],"data_offsets":)";
  const Hostile cases[] = {
      {"no JSON", "{", 0, "safetensors.header"},
      {"a list", "[]", 0, "safetensors.header"},
      {"deep", R"({"a":{"shape":[[[[]]]]}})", 0, "safetensors.header"},
      {"twice", "{" + Tensor("a", f32 + "[0,4]") + "," + Tensor("a", f32 + "[4,8]") + "}", 8,
       "'a' occurs twice"},
      {"member twice", R"({"a":{"dtype":"F32","dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4,
       "'dtype' occurs twice"},
      {"metadata", R"({"__metadata__":{"a":1}})", 0, "expected a string"},
      {"metadata list", R"({"__metadata__":[]})", 0, "__metadata__ is not an object"},
      {"no shape", R"({"a":{"dtype":"F32","x":[1],"data_offsets":[0,4]}})", 4, "has no shape"},
      {"negative", R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "has no shape"},
      {"fraction", R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4,
       "has no shape"},
      {"more members", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"z":0}})", 4,
       "other members"},
      {"dtype", R"({"a":{"dtype":"Q4","shape":[1],"data_offsets":[0,4]}})", 4, "type 'Q4'"},
      {"dtype number", R"({"a":{"dtype":4,"shape":[1],"data_offsets":[0,4]}})", 4, "has no dtype"},
      {"one offset", "{" + Tensor("a", f32 + "[0]") + "}", 4, "has no data_offsets"},
      {"backwards", "{" + Tensor("a", f32 + "[4,0]") + "}", 4, "bytes 4 to 0 of 4"},
      {"beyond", "{" + Tensor("a", f32 + "[0,4]") + "}", 3, "bytes 0 to 4 of 3"},
      {"huge offset", "{" + Tensor("a", f32 + "[0,18446744073709551615]") + "}", 4,
       "has no data_offsets"},
      {"wrong size", "{" + Tensor("a", f32 + "[0,8]") + "}", 8, "has 8 bytes of data, expected 4"},
      {"wraps", R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0,
       "more than 2^64"},
      {"overlap", "{" + Tensor("a", f32 + "[0,4]") + "," + Tensor("b", f32 + "[0,4]") + "}", 4,
       "safetensors.layout"},
      {"hole", "{" + Tensor("a", f32 + "[0,4]") + "," + Tensor("b", f32 + "[8,12]") + "}", 12,
       "begins at byte 8, expected 4"},
      {"after", "{" + Tensor("a", f32 + "[0,4]") + "}", 5, "the file has 5 bytes of data"},
  };
  for (const Hostile& row : cases) {
    EXPECT_THAT(ErrorOf(FileOf(row.header, row.data)), HasSubstr(row.expected)) << row.name;
  }
}

TEST(Safetensors, EveryPrefixIsAnError) {
  const std::vector<float> values = {1, 2, 3, 4};
  const auto bytes = EncodeSafetensors({{"a", {4}, values}}, {{"format", "pt"}});
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(ErrorOf({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}),
                HasSubstr("safetensors."))
        << size;
  }
}

TEST(Safetensors, ALongHeaderIsRefusedBeforeItIsRead) {
  std::vector<std::byte> bytes(16, std::byte{0xFF});
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("18446744073709551615 bytes"));
}

}  // namespace
}  // namespace rullama
