#include "core/ollama/name.h"

#include <gtest/gtest.h>

namespace rullama {
namespace {

std::string Parts(std::string_view text) {
  const auto name = ParseOllamaName(text);
  if (!name) return name.error().id;
  return name->host + " " + name->name_space + " " + name->model + " " + name->tag;
}

TEST(OllamaNameTest, PartsAndDefaults) {
  EXPECT_EQ(Parts("gemma4"), "registry.ollama.ai library gemma4 latest");
  EXPECT_EQ(Parts("gemma4:e2b"), "registry.ollama.ai library gemma4 e2b");
  EXPECT_EQ(Parts("ada/gemma4:e2b"), "registry.ollama.ai ada gemma4 e2b");
  EXPECT_EQ(Parts("hf.co/ada/gemma-4-E2B:Q4_K_M"), "hf.co ada gemma-4-E2B Q4_K_M");
  EXPECT_EQ(Parts("localhost:5000/ada/gemma4"), "localhost:5000 ada gemma4 latest");
  EXPECT_EQ(Parts("https://registry.ollama.ai/library/gemma4:e2b"),
            "registry.ollama.ai library gemma4 e2b");
  EXPECT_EQ(Parts("http://host:1/a/b:c"), "host:1 a b c");
  EXPECT_EQ(Parts("_a/_b:_c"), "registry.ollama.ai _a _b _c");
}

TEST(OllamaNameTest, ShortFormAlwaysShowsTheTag) {
  EXPECT_EQ(ParseOllamaName("gemma4")->ToString(), "gemma4:latest");
  EXPECT_EQ(ParseOllamaName("ada/gemma4:x")->ToString(), "ada/gemma4:x");
  EXPECT_EQ(ParseOllamaName("hf.co/library/gemma4")->ToString(), "hf.co/library/gemma4:latest");
}

TEST(OllamaNameTest, PathsAndTricksAreNoNames) {
  for (const std::string_view text :
       {"",        ":",           "a:",      ":tag",          "/a",       "/etc/passwd",
        "../a",    "a/../b",      "..",      "a/..",          "a/b/..:c", "a:..",
        "a:../x",  "a%2fb",       "a%2e%2e", "./a",           "~/a",      "a//b",
        "a/b/c/d", "ftp://a/b/c", "a b",     "a\\b",          "a.b/c",    "host/a.b/c",
        "-a",      ".a",          "a:-t",    "gemma4@sha256", "a\n"}) {
    EXPECT_EQ(Parts(text), "store.name") << text;
  }
  EXPECT_EQ(Parts(std::string_view("a\0b", 3)), "store.name");
  EXPECT_EQ(ParseOllamaName("../a").error().kind, ErrorKind::kModelFile);
}

TEST(OllamaNameTest, Lengths) {
  const std::string longest(80, 'a');
  EXPECT_NE(Parts(longest + "/" + longest + ":" + longest), "store.name");
  EXPECT_EQ(Parts(longest + "a"), "store.name");
  EXPECT_EQ(Parts("a:" + longest + "a"), "store.name");
  EXPECT_NE(Parts(std::string(350, 'h') + "/a/b"), "store.name");
  EXPECT_EQ(Parts(std::string(351, 'h') + "/a/b"), "store.name");
}

TEST(OllamaNameTest, WhatLooksLikeAName) {
  EXPECT_TRUE(LooksLikeOllamaName("gemma4:e2b"));
  EXPECT_TRUE(LooksLikeOllamaName("gemma4"));
  EXPECT_FALSE(LooksLikeOllamaName("gemma4.gguf"));
  EXPECT_FALSE(LooksLikeOllamaName("models/gemma4.gguf"));
  EXPECT_FALSE(LooksLikeOllamaName("./gemma4"));
  EXPECT_FALSE(LooksLikeOllamaName("/models/gemma4"));
}

}  // namespace
}  // namespace rullama
