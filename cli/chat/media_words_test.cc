#include "cli/chat/media_words.h"

#include <gmock/gmock.h>

namespace rullama::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

bool Everything(const std::string& /*path*/) { return true; }

NamedMedium Picture(const std::string& path) { return {FileKind::kPicture, path}; }

TEST(KindOfFileName, FollowsTheEnding) {
  EXPECT_EQ(KindOfFileName("/a/cat.PNG"), FileKind::kPicture);
  EXPECT_EQ(KindOfFileName("cat.jpeg"), FileKind::kPicture);
  EXPECT_EQ(KindOfFileName("talk.Mp3"), FileKind::kSound);
  EXPECT_EQ(KindOfFileName("clip.webm"), FileKind::kVideo);
  EXPECT_EQ(KindOfFileName("/a.png/notes.txt"), std::nullopt);
  EXPECT_EQ(KindOfFileName("png"), std::nullopt);
}

TEST(UnquotedWord, IsReadAsByAShell) {
  EXPECT_EQ(UnquotedWord("'/a b.png'"), "/a b.png");
  EXPECT_EQ(UnquotedWord("\"/a b.png\""), "/a b.png");
  EXPECT_EQ(UnquotedWord("/a\\ b\\(1\\).png"), "/a b(1).png");
  EXPECT_EQ(UnquotedWord("'"), "'");
}

TEST(TakeDroppedMedia, TakesPathsOutOfTheText) {
  const auto found = TakeDroppedMedia("/a/cat.png What is this?", Everything);
  EXPECT_EQ(found.text, "What is this?");
  EXPECT_THAT(found.media, ElementsAre(Picture("/a/cat.png")));

  const auto quoted = TakeDroppedMedia("Compare '/a b.png' and /c\\ d.wav.", Everything);
  EXPECT_EQ(quoted.text, "Compare  and /c\\ d.wav.");
  EXPECT_THAT(quoted.media, ElementsAre(Picture("/a b.png")));

  const auto both = TakeDroppedMedia("/c\\ d.wav \"/a.gif\" ", Everything);
  EXPECT_THAT(both.text, IsEmpty());
  EXPECT_THAT(both.media,
              ElementsAre(NamedMedium{FileKind::kSound, "/c d.wav"}, Picture("/a.gif")));
}

TEST(TakeDroppedMedia, LeavesOtherTextAlone) {
  const auto nothing = [](const std::string& /*path*/) { return false; };
  const std::string texts[] = {"see /a/cat.png", "  don't touch 'this\n", "a\\", "'", ""};
  for (const std::string& text : texts) {
    EXPECT_EQ(TakeDroppedMedia(text, nothing).text, text);
    EXPECT_THAT(TakeDroppedMedia(text, nothing).media, IsEmpty());
  }
  // Neither relative paths nor files of other kinds.
  EXPECT_THAT(TakeDroppedMedia("cat.png /etc/hosts", Everything).media, IsEmpty());
}

}  // namespace
}  // namespace rullama::cli
