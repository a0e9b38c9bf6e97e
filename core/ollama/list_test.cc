#include "core/ollama/list.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

namespace rullama {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class OllamaListTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::remove_all(base_); }
  void TearDown() override { fs::remove_all(base_); }

  void Add(const std::string& root, const std::string& name, std::time_t modified) const {
    const fs::path path = base_ / root / "manifests" / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "{}";
    const timespec times[2] = {{modified, 0}, {modified, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  std::vector<std::string> Names(const std::vector<std::string>& roots) const {
    OllamaStoreOptions options;
    for (const std::string& root : roots) options.roots.push_back(base_ / root);
    const auto models = ListOllamaModels(options);
    EXPECT_TRUE(models);
    std::vector<std::string> names;
    for (const OllamaEntry& entry : *models) names.push_back(entry.name.ToString());
    return names;
  }

  const fs::path base_ = fs::path(::testing::TempDir()) / "ollama_list_test";
};

TEST_F(OllamaListTest, NamesAreShortAndTheNewestComesFirst) {
  Add("a", "registry.ollama.ai/library/gemma4/e2b", 1000);
  Add("a", "registry.ollama.ai/someone/gemma4/latest", 3000);
  Add("a", "hf.co/google/gemma/Q4_K_M", 2000);
  EXPECT_THAT(Names({"a"}),
              ElementsAre("someone/gemma4:latest", "hf.co/google/gemma:Q4_K_M", "gemma4:e2b"));
}

TEST_F(OllamaListTest, OtherFilesAndMissingRootsArePassedOver) {
  Add("a", "registry.ollama.ai/library/gemma4/e2b", 1000);
  Add("a", ".DS_Store", 1000);
  Add("a", "registry.ollama.ai/library/gemma4/.hidden", 1000);
  Add("a", "registry.ollama.ai/library/too/deep/tag", 1000);
  EXPECT_THAT(Names({"none", "a"}), ElementsAre("gemma4:e2b"));
  EXPECT_THAT(Names({"none"}), IsEmpty());
}

TEST_F(OllamaListTest, AModelOfTwoRootsIsListedOnce) {
  Add("a", "registry.ollama.ai/library/gemma4/e2b", 1000);
  Add("b", "registry.ollama.ai/library/gemma4/e2b", 2000);
  EXPECT_THAT(Names({"a", "b"}), ElementsAre("gemma4:e2b"));
}

}  // namespace
}  // namespace rullama
