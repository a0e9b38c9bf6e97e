#include "core/ollama/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

namespace rullama {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// A store in a temporary folder. Digests are made up: nothing here computes SHA-256.
class OllamaStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(base_);
    // The tests of permissions give up root; everything not locked must stay readable then.
    ::umask(022);
    fs::create_directories(root_ / "blobs");
  }
  void TearDown() override { fs::remove_all(base_); }

  static void Write(const fs::path& path, const std::string& content) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
  }
  static std::string Hex(char digit) { return std::string(64, digit); }
  fs::path BlobPath(char digit) const { return root_ / "blobs" / ("sha256-" + Hex(digit)); }
  // Writes a blob and returns the layer that names it.
  Json AddLayer(const std::string& kind, char digit, const std::string& content) const {
    Write(BlobPath(digit), content);
    return {{"mediaType", "application/vnd.ollama.image." + kind},
            {"digest", "sha256:" + Hex(digit)},
            {"size", content.size()}};
  }
  void AddManifest(const std::vector<Json>& layers, const std::string& tag = "e2b") const {
    Write(BlobPath('c'), R"({"model_format":"gguf","model_type":"5.1B"})");
    Write(ManifestPath(tag),
          Json{{"config", {{"digest", "sha256:" + Hex('c')}, {"size", 1}}}, {"layers", layers}}
              .dump());
  }
  fs::path ManifestPath(const std::string& tag) const {
    return root_ / "manifests/registry.ollama.ai/library/gemma4" / tag;
  }
  Result<OllamaModel> Resolve(std::string_view name = "gemma4:e2b") const {
    return ResolveOllamaModel(name, {{base_ / "no_such_root", root_}});
  }
  Error ResolveError(std::string_view name = "gemma4:e2b") const {
    const auto model = Resolve(name);
    return model ? Error{} : model.error();
  }

  const fs::path base_ = fs::path(::testing::TempDir()) / "ollama_store_test";
  const fs::path root_ = base_ / "models";
};

// Acts as a user without privileges while in scope, so that file modes apply.
class WithoutRoot {
 public:
  WithoutRoot() {
    constexpr uid_t kNobody = 65534;
    if (was_root_) {
      EXPECT_EQ(::seteuid(kNobody), 0);
    }
  }
  ~WithoutRoot() {
    if (was_root_) {
      EXPECT_EQ(::seteuid(0), 0);
    }
  }

 private:
  const bool was_root_ = ::geteuid() == 0;
};

TEST_F(OllamaStoreTest, FindsTheModelAndWhatBelongsToIt) {
  AddManifest({AddLayer("model", 'a', "GGUF..."), AddLayer("projector", 'b', "tower"),
               AddLayer("params", 'd', R"({"top_k":64,"stop":["<turn|>"]})"),
               AddLayer("license", 'e', "free")});
  const auto model = Resolve();
  ASSERT_TRUE(model) << model.error().ToString();
  EXPECT_EQ(model->model, fs::canonical(BlobPath('a')));
  EXPECT_EQ(model->projector, fs::canonical(BlobPath('b')));
  EXPECT_TRUE(model->adapters.empty());
  EXPECT_EQ(model->name.ToString(), "gemma4:e2b");
  EXPECT_EQ(model->model_type, "5.1B");
  EXPECT_EQ(model->params.top_k, 64);
  EXPECT_THAT(model->params.stop, ElementsAre("<turn|>"));
  EXPECT_EQ(model->params_json, R"({"top_k":64,"stop":["<turn|>"]})");
}

TEST_F(OllamaStoreTest, AdaptersAndDraftsAreNamed) {
  AddManifest({AddLayer("model", 'a', "GGUF"), AddLayer("adapter", 'b', "1"),
               AddLayer("adapter", 'd', "2"), AddLayer("draft", 'e', "3")});
  const auto model = Resolve();
  ASSERT_TRUE(model) << model.error().ToString();
  EXPECT_THAT(model->adapters,
              ElementsAre(fs::canonical(BlobPath('b')), fs::canonical(BlobPath('d'))));
  EXPECT_EQ(model->draft, fs::canonical(BlobPath('e')));
}

TEST_F(OllamaStoreTest, TheFirstRootThatHasTheModelWins) {
  AddManifest({AddLayer("model", 'a', "GGUF")}, "latest");
  const fs::path copy = base_ / "copy";
  fs::copy(root_, copy, fs::copy_options::recursive);
  const auto model = ResolveOllamaModel("gemma4", {{copy, root_}});
  ASSERT_TRUE(model) << model.error().ToString();
  EXPECT_EQ(model->model.parent_path(), fs::canonical(copy / "blobs"));
}

TEST_F(OllamaStoreTest, UnknownModelsAreNamedWithWhereWasSearched) {
  const Error error = ResolveError("gemma4:nope");
  EXPECT_EQ(error.id, "store.not_found");
  EXPECT_EQ(error.kind, ErrorKind::kModelFile);
  EXPECT_THAT(error.message, HasSubstr(root_.string()));
  EXPECT_THAT(error.message, HasSubstr("rullama pull gemma4:nope"));
  // Names of the Hub have no tag to complete.
  EXPECT_THAT(ResolveError("hf.co/some/one").message, HasSubstr("rullama pull hf.co/some/one'"));
}

TEST_F(OllamaStoreTest, NamesAreCheckedBeforeTheDiskIsTouched) {
  EXPECT_EQ(ResolveError("../gemma4").id, "store.name");
  EXPECT_EQ(ResolveError("/etc/passwd").id, "store.name");
  EXPECT_EQ(ResolveError("gemma4%2f..").id, "store.name");
}

TEST_F(OllamaStoreTest, HostileDigestsBecomeNoPaths) {
  Json layer = AddLayer("model", 'a', "GGUF");
  layer["digest"] = "sha256-../../../etc/passwd";
  AddManifest({layer});
  const Error error = ResolveError();
  EXPECT_EQ(error.id, "store.digest");
  EXPECT_THAT(error.message, HasSubstr("gemma4:e2b"));
}

TEST_F(OllamaStoreTest, HugeManifestsAreNotRead) {
  Write(ManifestPath("e2b"), "{}");
  fs::resize_file(ManifestPath("e2b"), uint64_t{200} << 20);
  const Error error = ResolveError();
  EXPECT_EQ(error.id, "store.manifest");
  EXPECT_THAT(error.message, HasSubstr("209715200 bytes"));
}

TEST_F(OllamaStoreTest, ManifestThatIsADirectory) {
  fs::create_directories(ManifestPath("e2b"));
  EXPECT_EQ(ResolveError().id, "store.manifest");
}

TEST_F(OllamaStoreTest, MissingAndShortBlobs) {
  AddManifest({AddLayer("model", 'a', "GGUF")});
  fs::resize_file(BlobPath('a'), 3);
  Error error = ResolveError();
  EXPECT_EQ(error.id, "store.blob_missing");
  EXPECT_THAT(error.message, HasSubstr("has 3 bytes, but the manifest says 4"));
  fs::remove(BlobPath('a'));
  error = ResolveError();
  EXPECT_EQ(error.id, "store.blob_missing");
  EXPECT_THAT(error.message, HasSubstr(BlobPath('a').filename().string()));
}

TEST_F(OllamaStoreTest, MlxBuildsAreNoGguf) {
  AddManifest({AddLayer("tensor", 'a', "x")});
  EXPECT_EQ(ResolveError().id, "store.not_gguf");
}

TEST_F(OllamaStoreTest, LinksMustNotLeaveTheStore) {
  const fs::path outside = base_ / "outside";
  Write(outside, "GGUF");
  AddManifest({AddLayer("model", 'a', "GGUF")});
  fs::remove(BlobPath('a'));
  fs::create_symlink(outside, BlobPath('a'));
  EXPECT_EQ(ResolveError().id, "store.name");

  fs::remove(ManifestPath("e2b"));
  fs::create_symlink(outside, ManifestPath("e2b"));
  const Error error = ResolveError();
  EXPECT_EQ(error.id, "store.name");
  EXPECT_THAT(error.message, HasSubstr("outside the store"));
}

TEST_F(OllamaStoreTest, LinksInsideTheStoreAndToItAreFollowed) {
  AddManifest({AddLayer("model", 'a', "GGUF")});
  fs::create_symlink(ManifestPath("e2b"), ManifestPath("alias"));
  const fs::path link = base_ / "link";
  fs::create_directory_symlink(root_, link);
  const auto model = ResolveOllamaModel("gemma4:alias", {{link}});
  ASSERT_TRUE(model) << model.error().ToString();
  EXPECT_EQ(model->model, fs::canonical(BlobPath('a')));
}

TEST_F(OllamaStoreTest, UnreadableBlobsAndStoresComeWithAHint) {
  AddManifest({AddLayer("model", 'a', "GGUF")});
  fs::permissions(BlobPath('a'), fs::perms::none);
  {
    const WithoutRoot user;
    const Error error = ResolveError();
    EXPECT_EQ(error.id, "io.permission");
    EXPECT_EQ(error.kind, ErrorKind::kIo);
    EXPECT_THAT(error.message, HasSubstr("sudo -u ollama"));
  }
  fs::permissions(root_, fs::perms::none);
  {
    const WithoutRoot user;
    EXPECT_EQ(ResolveError().id, "io.permission");
  }
  fs::permissions(root_, fs::perms::all);
}

TEST_F(OllamaStoreTest, AnUnreadableStoreDoesNotHideTheNext) {
  AddManifest({AddLayer("model", 'a', "GGUF")});
  const fs::path locked = base_ / "locked";
  fs::create_directories(locked / "manifests");
  fs::permissions(locked, fs::perms::none);
  {
    const WithoutRoot user;
    EXPECT_TRUE(ResolveOllamaModel("gemma4:e2b", {{locked, root_}}));
    const auto denied = ResolveOllamaModel("gemma4:nope", {{locked, root_}});
    ASSERT_FALSE(denied);
    EXPECT_EQ(denied.error().id, "io.permission");
  }
  fs::permissions(locked, fs::perms::all);
}

TEST(OllamaStoreOptionsTest, EnvironmentDecidesTheRoots) {
  ASSERT_EQ(::setenv("HOME", "/home/ada", 1), 0);
  ASSERT_EQ(::setenv("OLLAMA_MODELS", "/big/models", 1), 0);
  EXPECT_THAT(OllamaStoreOptions::FromEnvironment().roots, ElementsAre(fs::path("/big/models")));
  ASSERT_EQ(::unsetenv("OLLAMA_MODELS"), 0);
  EXPECT_THAT(OllamaStoreOptions::FromEnvironment().roots,
              ElementsAre(fs::path("/home/ada/.ollama/models"),
                          fs::path("/usr/share/ollama/.ollama/models")));
}

TEST_F(OllamaStoreTest, SystemPromptOfTheAuthor) {
  AddManifest({AddLayer("model", 'a', "GGUF"), AddLayer("system", 'b', "You are a pirate.\n")});
  ASSERT_TRUE(Resolve()) << ResolveError().ToString();
  EXPECT_EQ(Resolve()->system, "You are a pirate.\n");
  AddManifest({AddLayer("model", 'a', "GGUF"), AddLayer("system", 'b', "")});
  EXPECT_EQ(Resolve()->system, std::nullopt);
  AddManifest({AddLayer("model", 'a', "GGUF"), AddLayer("system", 'b', "\xFF")});
  EXPECT_EQ(ResolveError().id, "store.system");
}

}  // namespace
}  // namespace rullama
