#include "core/base/status.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "core/base/error_of.h"

namespace rullama {
namespace {

Result<int> Half(int value) {
  if (value % 2 != 0) {
    return MakeError(ErrorKind::kUsage, "test.odd", "found {}, expected an even number", value);
  }
  return value / 2;
}

Result<int> Quarter(int value) {
  RL_ASSIGN_OR_RETURN(const int half, Half(value));
  return Half(half);
}

Status CheckQuarter(int value) {
  RL_RETURN_IF_ERROR(Quarter(value));
  return OkStatus();
}

TEST(Status, ValuesPassThroughMacros) {
  EXPECT_EQ(Quarter(12).value(), 3);
  EXPECT_TRUE(CheckQuarter(12));
}

TEST(Status, TheHintIsAfterTheLastSemicolonOutsideQuotes) {
  const auto parts = [](std::string message) {
    const Error error{.kind = ErrorKind::kIo, .id = "io.open", .message = std::move(message)};
    return std::pair(std::string(error.finding()), std::string(error.hint()));
  };
  EXPECT_EQ(parts("no such file"), std::pair(std::string("no such file"), std::string()));
  EXPECT_EQ(parts("cannot open 'a; b'"),
            std::pair(std::string("cannot open 'a; b'"), std::string()));
  EXPECT_EQ(parts("it's 'a; b'; no; check it"),
            std::pair(std::string("it's 'a; b'; no"), std::string("check it")));
  EXPECT_EQ(parts("l'\xC3\xA9t\xC3\xA9; d'\xC3\xA9t\xC3\xA9").second, "d'\xC3\xA9t\xC3\xA9");
  EXPECT_EQ(parts(""), std::pair(std::string(), std::string()));
}

TEST(Status, ErrorsKeepKindIdAndMessage) {
  const Status status = CheckQuarter(6);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::kUsage);
  EXPECT_EQ(status.error().ToString(), "found 3, expected an even number [test.odd]");
}

using Empty = ErrorOf<ErrorKind::kModelFile, "test.empty">;

TEST(Status, ErrorsOfOneIdBecomeAnyResult) {
  const Result<std::string> text = Empty("'{}' has {} bytes", "a", 0);
  const Result<bool> flag = Empty("nothing");
  const Status status = Empty("{}", std::string("moved"));
  EXPECT_EQ(text.error().ToString(), "'a' has 0 bytes [test.empty]");
  EXPECT_EQ(flag.error().kind, ErrorKind::kModelFile);
  EXPECT_EQ(flag.error().ToString(), "nothing [test.empty]");
  EXPECT_EQ(status.error().message, "moved");
}

TEST(Status, ContextIsPrepended) {
  Error error = std::move(CheckQuarter(6)).error();
  EXPECT_EQ(std::move(error).WithContext("row 2").ToString(),
            "row 2: found 3, expected an even number [test.odd]");
}

}  // namespace
}  // namespace rullama
