#include "cli/chat/chat_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace rullama::cli {
namespace {

// The messages that lines become; one that is left open at the end does not count.
std::vector<std::string> Messages(const std::vector<std::string>& lines) {
  MessageAssembler assembler;
  std::vector<std::string> messages;
  for (const std::string& line : lines) {
    if (auto message = assembler.Add(line)) messages.push_back(*std::move(message));
  }
  return messages;
}

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ChatInput, ALineIsAMessage) {
  EXPECT_THAT(Messages({"a", "", " b "}), ElementsAre("a", "", " b "));
  EXPECT_THAT(Messages({"pasted\nlines"}), ElementsAre("pasted\nlines"));
}

TEST(ChatInput, ABackslashContinues) {
  EXPECT_THAT(Messages({"a\\", "b\\", "c", "d"}), ElementsAre("a\nb\nc", "d"));
  EXPECT_THAT(Messages({"C:\\\\", "b"}), ElementsAre("C:\\\\", "b"));
  EXPECT_THAT(Messages({"\\", "b"}), ElementsAre("\nb"));
  EXPECT_THAT(Messages({"a\\"}), IsEmpty());
}

TEST(ChatInput, ThreeQuotesHoldSeveralLines) {
  EXPECT_THAT(Messages({"\"\"\"", "a", "", "b\\", "\"\"\"", "c"}), ElementsAre("a\n\nb\\", "c"));
  EXPECT_THAT(Messages({"\"\"\"a", "b\"\"\" "}), ElementsAre("a\nb"));
  EXPECT_THAT(Messages({"\"\"\"a\"\"\""}), ElementsAre("a"));
  EXPECT_THAT(Messages({"\"\"\"\na\nb\n\"\"\""}), ElementsAre("a\nb"));
  EXPECT_THAT(Messages({"\"\"\"\"\"\""}), ElementsAre(""));
  EXPECT_THAT(Messages({"\"\"\"a", "b"}), IsEmpty());
  EXPECT_THAT(Messages({"say \"\"\""}), ElementsAre("say \"\"\""));
}

TEST(ChatInput, WhatWasBegunCanBeForgotten) {
  MessageAssembler assembler;
  EXPECT_EQ(assembler.Add("\"\"\"a"), std::nullopt);
  EXPECT_TRUE(assembler.open());
  assembler.Clear();
  EXPECT_FALSE(assembler.open());
  EXPECT_EQ(assembler.Add("b"), "b");
}

TEST(ChatInput, CommandsAreSingleWordsAfterASlash) {
  const auto command = [](std::string_view text) {
    const auto parsed = ParseChatCommand(text);
    return parsed ? std::string(parsed->name) + "|" + std::string(parsed->argument) : "message";
  };
  EXPECT_EQ(command("/help"), "help|");
  EXPECT_EQ(command("/?"), "?|");
  EXPECT_EQ(command("/set  system  Be brief. "), "set|system  Be brief.");
  EXPECT_EQ(command("/frobnicate"), "frobnicate|");
  for (const char* message : {"", "/", "// comment", "/ x", " /help", "/etc/hosts is a file",
                              "help", "/set system a\nb", "/1"}) {
    EXPECT_EQ(command(message), "message") << message;
  }
}

TEST(ChatInput, BlankLinesAreRecognised) {
  EXPECT_TRUE(IsBlank(""));
  EXPECT_TRUE(IsBlank(" \t\n"));
  EXPECT_FALSE(IsBlank(" x "));
}

}  // namespace
}  // namespace rullama::cli
