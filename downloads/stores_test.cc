// Models on the disk: found, listed and removed, in stores that other programs share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "downloads/hub_cache.h"
#include "downloads/ollama_remove.h"

namespace rullama::downloads {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::string kCommit(40, 'c');

std::string Sum(char digit) { return std::string(64, digit); }

class StoresTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "rullama_stores_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    places_.cache = folder_ / "hub";
    repo_ = places_.FolderOf("a/b");
  }
  void TearDown() override { fs::remove_all(folder_); }

  static void Put(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  // A file of the repository as huggingface_hub keeps it.
  void AddHubFile(const std::string& path, char digit, const std::string& commit = kCommit) {
    Put(repo_ / "blobs" / Sum(digit), "GGUF");
    Put(repo_ / "refs/main", commit);
    const fs::path link = repo_ / "snapshots" / commit / path;
    fs::create_directories(link.parent_path());
    const fs::path up = path.find('/') == std::string::npos ? "../.." : "../../..";
    fs::create_symlink(up / "blobs" / Sum(digit), link);
  }
  std::vector<std::string> Blobs() const {
    std::vector<std::string> names;
    if (!fs::exists(repo_ / "blobs")) return names;
    for (const auto& entry : fs::directory_iterator(repo_ / "blobs")) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }
  Status Remove(const std::string& name) {
    return RemoveFromHubCache(*ParseHubName(name), places_, hooks_);
  }

  fs::path folder_;
  HubPlaces places_;
  fs::path repo_;
  PullHooks hooks_{.cancelled = [] { return false; }};
};

TEST_F(StoresTest, TheCacheOfTheHubIsFoundAndListed) {
  AddHubFile("m-Q4_K_M.gguf", '1');
  AddHubFile("mmproj-m-f16.gguf", '2');
  AddHubFile("BF16/m-BF16-00001-of-00002.gguf", '3');
  const auto find = [&](const std::string& name) {
    const HubName parsed = *ParseHubName(name);
    return FindInHubCache(parsed, "main", {.quant = parsed.quant}, places_);
  };
  const fs::path snapshot = repo_ / "snapshots" / kCommit;
  ASSERT_TRUE(find("a/b"));
  EXPECT_EQ(find("a/b")->model, snapshot / "m-Q4_K_M.gguf");
  EXPECT_EQ(find("a/b")->projector, snapshot / "mmproj-m-f16.gguf");
  EXPECT_FALSE(find("a/b:BF16")) << "a part is missing";
  EXPECT_FALSE(find("a/other"));
  AddHubFile("BF16/m-BF16-00002-of-00002.gguf", '4');
  ASSERT_TRUE(find("a/b:bf16"));
  fs::remove(repo_ / "blobs" / Sum('4'));
  EXPECT_FALSE(find("a/b:bf16")) << "its link leads nowhere";

  const auto models = ListHubCache(places_);
  ASSERT_EQ(models.size(), 1U);
  EXPECT_EQ(models[0].name.ToString(), "hf.co/a/b:Q4_K_M");
  EXPECT_EQ(models[0].bytes, 4U);
}

TEST_F(StoresTest, OfTheHubGoesWhatNoOtherLinkLeadsTo) {
  const std::string other(40, 'd');
  AddHubFile("m-Q4_K_M.gguf", '1');
  AddHubFile("m-Q8_0.gguf", '2');
  AddHubFile("config.json", '3');
  AddHubFile("copy-Q4_K_M.gguf", '1', other);
  ASSERT_TRUE(Remove("a/b:Q8_0"));
  EXPECT_THAT(Blobs(), ElementsAre(Sum('1'), Sum('3')));
  EXPECT_EQ(Remove("a/b:Q8_0").error().id, "rm.not_found");
  ASSERT_TRUE(Remove("a/b"));
  EXPECT_THAT(Blobs(), ElementsAre(Sum('3'))) << "files that are not models stay";
  EXPECT_EQ(Remove("a/b").error().id, "rm.not_found");
}

TEST_F(StoresTest, OfTheHubNothingIsLeftOfModelsAndPartsOfThem) {
  AddHubFile("BF16/m-BF16.gguf", '1');
  ASSERT_TRUE(Remove("a/b"));
  EXPECT_FALSE(fs::exists(repo_));
  Put(repo_ / "blobs" / (Sum('2') + kHubPartialSuffix), "GG");
  Put(repo_ / "blobs" / (Sum('2') + kHubPartialSuffix + ".json"), "{}");
  ASSERT_TRUE(Remove("a/b"));
  EXPECT_FALSE(fs::exists(repo_));
}

TEST_F(StoresTest, OfOllamaGoesWhatNoOtherManifestNames) {
  const fs::path store = folder_ / "ollama";
  const fs::path models = store / "manifests/registry.ollama.ai/library";
  const auto add = [&](const std::string& model, char config, char layer) {
    for (const char digit : {config, layer}) Put(store / "blobs" / ("sha256-" + Sum(digit)), "x");
    Put(models / model / "latest", R"({"config":{"digest":"sha256:)" + Sum(config) +
                                       R"("},"layers":[{"digest":"sha256:)" + Sum(layer) + "\"}]}");
  };
  add("one", '1', '3');
  add("two", '2', '3');
  const auto has = [&](char digit) {
    return fs::exists(store / "blobs" / ("sha256-" + Sum(digit)));
  };
  ASSERT_TRUE(RemoveFromOllamaStore(*ParseOllamaName("one"), store, hooks_));
  EXPECT_FALSE(has('1'));
  EXPECT_TRUE(has('2') && has('3'));
  EXPECT_FALSE(fs::exists(models / "one"));
  EXPECT_EQ(RemoveFromOllamaStore(*ParseOllamaName("one"), store, hooks_).error().id,
            "rm.not_found");
  // A manifest that cannot be read may need any blob.
  Put(models / "broken" / "latest", "{");
  ASSERT_TRUE(RemoveFromOllamaStore(*ParseOllamaName("two"), store, hooks_));
  EXPECT_TRUE(has('2') && has('3'));
}

}  // namespace
}  // namespace rullama::downloads
