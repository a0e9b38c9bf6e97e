#include "core/config/value_codec.h"

#include <gtest/gtest.h>

#include <limits>
#include <locale>

namespace rullama {
namespace {

YamlNode Scalar(std::string_view text, bool quoted = false) {
  YamlNode node;
  node.kind = YamlNode::Kind::kScalar;
  node.text = text;
  node.quoted = quoted;
  return node;
}

TEST(IntegerCodec, AcceptsDecimalNumbersInRange) {
  const IntegerCodec codec{-1, std::numeric_limits<int64_t>::max()};
  EXPECT_EQ(codec.Parse(Scalar("0"), {}), 0);
  EXPECT_EQ(codec.Parse(Scalar("-1"), {}), -1);
  EXPECT_EQ(codec.Parse(Scalar("9223372036854775807"), {}), 9223372036854775807);
}

TEST(AutoCodec, TheWordIsNoValue) {
  const AutoCodec<IntegerCodec> codec{{1, 100}};
  EXPECT_EQ(codec.Describe(), "auto, or a whole number from 1 to 100");
  const auto word = codec.Parse(Scalar("auto"), {});
  ASSERT_TRUE(word.has_value());
  EXPECT_EQ(*word, std::nullopt);
  EXPECT_EQ(codec.Print(*word), "auto");
  const auto number = codec.Parse(Scalar("7"), {});
  ASSERT_TRUE(number.has_value());
  EXPECT_EQ(*number, 7);
  EXPECT_EQ(codec.Print(*number), "7");
  for (const char* text : {"0", "Auto", "automatic", ""}) {
    const YamlNode node = Scalar(text);
    const auto value = codec.Parse(node, {});
    ASSERT_FALSE(value.has_value()) << text;
    EXPECT_EQ(value.error().expected, codec.Describe()) << text;
  }
}

TEST(IntegerCodec, RefusesEverySpellingThatIsNotOneDecimalNumber) {
  const IntegerCodec codec{1, 100};
  for (const char* text : {"0",
                           "101",
                           "-5",
                           "1e18",
                           "1e1",
                           "0x10",
                           "0b1",
                           "0o7",
                           "010",
                           "-0",
                           "+5",
                           "5.0",
                           ".5",
                           "5 ",
                           "5k",
                           "5_0",
                           "5,0",
                           "nan",
                           ".inf",
                           "-inf",
                           "NaN",
                           "9223372036854775808",
                           "99999999999999999999999999"}) {
    const YamlNode node = Scalar(text);
    const auto value = codec.Parse(node, {});
    ASSERT_FALSE(value.has_value()) << text;
    EXPECT_EQ(value.error().kind, ValueFault::Kind::kRange) << text;
    EXPECT_EQ(value.error().expected, "a whole number from 1 to 100");
    EXPECT_EQ(value.error().node, &node);
  }
  for (const char* text : {"", "many", "true", "-", ".", "--5"}) {
    const YamlNode node = Scalar(text);
    const auto value = codec.Parse(node, {});
    ASSERT_FALSE(value.has_value()) << text;
    EXPECT_EQ(value.error().kind, ValueFault::Kind::kType) << text;
  }
  const YamlNode quoted = Scalar("5", true);
  const auto value = codec.Parse(quoted, {});
  ASSERT_FALSE(value.has_value());
  EXPECT_EQ(value.error().kind, ValueFault::Kind::kType);
  EXPECT_EQ(value.error().hint, "remove the quotes");
}

TEST(RealCodec, AcceptsDecimalNumbersInRange) {
  const RealCodec codec{-1, 1e6};
  EXPECT_EQ(codec.Parse(Scalar("0.7"), {}), 0.7);
  EXPECT_EQ(codec.Parse(Scalar("1"), {}), 1.0);
  EXPECT_EQ(codec.Parse(Scalar("1e-3"), {}), 1e-3);
  EXPECT_EQ(codec.Parse(Scalar("-.5"), {}), -0.5);
}

TEST(RealCodec, RefusesWhatIsNotAFiniteDecimalNumber) {
  const RealCodec codec{0, 1};
  for (const char* text : {"nan", ".nan", "inf", "-inf", ".Inf", "2", "-0.1", "0,5", "0x1p-1",
                           "0.5f", "1e999", "0.5 0.5"}) {
    const YamlNode node = Scalar(text);
    const auto value = codec.Parse(node, {});
    ASSERT_FALSE(value.has_value()) << text;
    EXPECT_EQ(value.error().kind, ValueFault::Kind::kRange) << text;
    EXPECT_EQ(value.error().expected, "a number from 0 to 1");
  }
}

// A locale with a decimal comma and grouped thousands, as on a German or French machine.
class CommaPunctuation : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(NumberCodecs, DoNotDependOnTheLocale) {
  const std::locale before =
      std::locale::global(std::locale(std::locale::classic(), new CommaPunctuation));
  const auto value = RealCodec{0, 1e6}.Parse(Scalar("1234.5"), {});
  const std::string real = RealCodec{0, 1e6}.Print(1234.5);
  const std::string integer = IntegerCodec{0, 1000000}.Print(123456);
  const std::string range = IntegerCodec{0, 1000000}.Describe();
  std::locale::global(before);
  EXPECT_EQ(value, 1234.5);
  EXPECT_EQ(real, "1234.5");
  EXPECT_EQ(integer, "123456");
  EXPECT_EQ(range, "a whole number from 0 to 1000000");
}

TEST(BoolCodec, KnowsTwoWords) {
  EXPECT_EQ(BoolCodec{}.Parse(Scalar("true"), {}), true);
  EXPECT_EQ(BoolCodec{}.Parse(Scalar("false"), {}), false);
  for (const char* text : {"yes", "on", "1", "True", ""}) {
    EXPECT_FALSE(BoolCodec{}.Parse(Scalar(text), {}).has_value()) << text;
  }
  EXPECT_FALSE(BoolCodec{}.Parse(Scalar("true", true), {}).has_value());
}

TEST(TextCodecs, EmptyAndControlCharacters) {
  EXPECT_EQ(TextCodec{}.Parse(Scalar(""), {}), "");
  EXPECT_FALSE(TextCodec{.allow_empty = false}.Parse(Scalar(""), {}).has_value());
  EXPECT_EQ(NameCodec{}.Parse(Scalar("cpu"), {}), "cpu");
  EXPECT_FALSE(NameCodec{}.Parse(Scalar(""), {}).has_value());
  EXPECT_FALSE(NameCodec{}.Parse(Scalar("a\nb"), {}).has_value());
  EXPECT_EQ(OptionNameCodec{}.Parse(Scalar("max_ops2"), {}), "max_ops2");
  for (const char* text : {"", "Threads", "a.b", "a b", "null"}) {
    EXPECT_FALSE(OptionNameCodec{}.Parse(Scalar(text), {}).has_value()) << text;
  }
}

TEST(FileCodec, RelativeFilesAreRelativeToTheYamlFile) {
  const ValueContext in_configs{"configs"};
  EXPECT_EQ(FileCodec{}.Parse(Scalar("../tests/x.so"), in_configs), "tests/x.so");
  EXPECT_EQ(FileCodec{}.Parse(Scalar("/opt/x.so"), in_configs), "/opt/x.so");
  EXPECT_EQ(FileCodec{}.Parse(Scalar("x.so"), {}), "x.so");
}

TEST(ModelCodec, TellsFilesFromOllamaNames) {
  for (const char* file : {"/a/b", "./model", "../m", "x.gguf", "dir/x.gguf"}) {
    EXPECT_TRUE(LooksLikeModelFile(file)) << file;
  }
  for (const char* name : {"gemma4:e2b", "gemma4", "hf.co/someone/model-GGUF:Q4_K_M"}) {
    EXPECT_FALSE(LooksLikeModelFile(name)) << name;
    EXPECT_EQ(ModelCodec{}.Parse(Scalar(name), {"configs"}), name);
  }
  EXPECT_EQ(ModelCodec{}.Parse(Scalar("../m/x.gguf"), {"configs"}), "m/x.gguf");
  // It stays a file although neither its beginning nor its end says so any more.
  EXPECT_EQ(ModelCodec{}.Parse(Scalar("./model"), {"configs"}), "./configs/model");
}

}  // namespace
}  // namespace rullama
