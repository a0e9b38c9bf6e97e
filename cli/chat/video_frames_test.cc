#include "cli/chat/video_frames.h"

#include <gmock/gmock.h>

#include <string>

namespace rullama::cli {
namespace {

using namespace std::string_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(TimesOfPackets, AreSecondsSinceTheFirst) {
  EXPECT_THAT(TimesOfPackets("#software: Lavf59\n#tb 0: 1/1000\n#dimensions 0: 320x240\n"
                             "0,       -400,          0,      200,     3913, 0x66d52f3e\n"
                             "0,       -200, -9223372036854775808,      200, 9, 0x1, F=0x0\n"
                             "0,        600,        400,      200,      549, 0x2\n"),
              ElementsAre(0, 0.2, 1));
  EXPECT_THAT(TimesOfPackets(""), IsEmpty());
  EXPECT_THAT(TimesOfPackets("#tb 0: 1/0\nnothing\n0\n0, x\n"), IsEmpty());
}

TEST(SampledFrames, AreAtEvenDistances) {
  EXPECT_THAT(SampledFrames(0), IsEmpty());
  EXPECT_THAT(SampledFrames(3), ElementsAre(0, 1, 2));
  const auto frames = SampledFrames(100);
  EXPECT_EQ(frames.size(), 32u);
  EXPECT_EQ(frames[1], 3);
  EXPECT_EQ(frames.back(), 96);
}

TEST(SplitPngs, TakesWholeFilesOnly) {
  const std::string head = "\x89PNG\r\n\x1a\n";
  const std::string data = "\0\0\0\2IDATxxcccc"s;
  const std::string end = "\0\0\0\0IENDcccc"s;
  const std::string file = head + data + end;
  EXPECT_THAT(SplitPngs(file + head + end), ElementsAre(file, head + end));
  EXPECT_THAT(SplitPngs(file + file.substr(0, file.size() - 1)), ElementsAre(file));
  EXPECT_THAT(SplitPngs(file + "rest"), ElementsAre(file));
  EXPECT_THAT(SplitPngs(head + "\xff\xff\xff\xffIEND"), IsEmpty());
  EXPECT_THAT(SplitPngs("no file"), IsEmpty());
}

}  // namespace
}  // namespace rullama::cli
