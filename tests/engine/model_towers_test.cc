// The file that the towers of a model are read from. Needs ../shared.
#include "engine/media/model_towers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/base/must_test_util.h"
#include "engine/loading/loaded_model.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const fs::path kModels = RULLAMA_SOURCE_DIR "/../shared/models";

class KeptNotices : public Notices {
 public:
  void Note(std::string_view text) override { notes.emplace_back(text); }
  void Warn(std::string_view text) override { warnings.emplace_back(text); }
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
};

class ModelTowersTest : public ::testing::Test {
 protected:
  ModelTowersTest() { fs::create_directories(folder_); }
  ~ModelTowersTest() override { fs::remove_all(folder_); }

  Result<LoadedModel> Load(const std::string& model, const std::string& mmproj = {}) {
    LayeredConfig config;
    Set(config, "model.path", model);
    if (!mmproj.empty()) Set(config, "model.mmproj", mmproj);
    EXPECT_TRUE(config.Finish());
    return LoadModel(std::move(config), {}, notices_);
  }
  std::string LoadError(const std::string& model, const std::string& mmproj) {
    const auto loaded = Load(model, mmproj);
    return loaded ? "no error" : loaded.error().ToString();
  }
  // The towers of a text model whose Ollama manifest names this file of towers.
  ModelTowers ReadFromStore(const fs::path& projector) {
    const LoadedModel text = Must(Load("tiny-e2b-f16"));
    OllamaModel stored;
    stored.projector = projector;
    const ModelFile file{.name = "gemma4:tiny",
                         .file = std::make_unique<GgufFile>(Must(GgufFile::Open(text.file.name))),
                         .ollama = std::move(stored)};
    return Must(ReadModelTowers(text.config(), file, *text.model, {}, notices_));
  }

  static void Set(LayeredConfig& config, const char* key, const std::string& model) {
    EXPECT_TRUE(config.Set(key, (kModels / (model + ".gguf")).string(), Origin::kFlag, key));
  }

  const fs::path folder_ = fs::temp_directory_path() / fmt::format("model_towers_{}", ::getpid());
  KeptNotices notices_;
};

TEST_F(ModelTowersTest, TheFileThatTheConfigurationNames) {
  const LoadedModel e2b = Must(Load("tiny-e2b-f16", "tiny-e2b-mmproj-f16"));
  EXPECT_TRUE(e2b.towers.towers.picture);
  EXPECT_TRUE(e2b.towers.towers.sound);
  EXPECT_EQ(&e2b.tower_file(), e2b.towers.file.get());
  EXPECT_THAT(notices_.notes, ElementsAre(HasSubstr("pictures and sound: towers from '")));
  const LoadedModel dense = Must(Load("tiny-dense-f16", "tiny-dense-mmproj-f16"));
  EXPECT_TRUE(dense.towers.towers.picture);
  EXPECT_FALSE(dense.towers.towers.sound);
}

TEST_F(ModelTowersTest, TheModelsOwnFile) {
  const LoadedModel ollama = Must(Load("tiny-e2b-ollama-Q4_K_M"));
  EXPECT_TRUE(ollama.towers.towers.picture);
  EXPECT_TRUE(ollama.towers.towers.sound);
  EXPECT_EQ(&ollama.tower_file(), ollama.file.file.get());
  // The configuration outranks it.
  const LoadedModel named = Must(Load("tiny-e2b-ollama-Q4_K_M", "tiny-unified-mmproj-f16"));
  EXPECT_EQ(&named.tower_file(), named.towers.file.get());
}

TEST_F(ModelTowersTest, ModelsOfTextAlone) {
  for (const char* name : {"tiny-e2b-f16", "tiny-diffusion-f16", "tiny-moe-f16"}) {
    const LoadedModel text = Must(Load(name));
    EXPECT_FALSE(text.towers.any()) << name;
    EXPECT_EQ(text.towers.file_name, "");
  }
  EXPECT_THAT(notices_.warnings, IsEmpty());
}

TEST_F(ModelTowersTest, WrongFilesThatTheConfigurationNamesAreErrors) {
  EXPECT_THAT(LoadError("tiny-e2b-f16", "tiny-dense-f16"),
              HasSubstr("has no image or audio tower, expected the mmproj file of the model "
                        "[model.tower]"));
  EXPECT_THAT(LoadError("tiny-diffusion-f16", "tiny-dense-mmproj-f16"),
              HasSubstr("a model that takes text alone"));
  EXPECT_THAT(LoadError("tiny-e2b-f16", "missing"), HasSubstr("[io."));
}

TEST_F(ModelTowersTest, OllamasProjector) {
  const ModelTowers read = ReadFromStore(kModels / "tiny-e2b-mmproj-f16.gguf");
  EXPECT_TRUE(read.towers.picture);
  EXPECT_TRUE(read.file);
  // A damaged one leaves a model of text.
  const fs::path damaged = folder_ / "damaged.gguf";
  std::ofstream(damaged) << "GGUF";
  EXPECT_FALSE(ReadFromStore(damaged).any());
  EXPECT_THAT(notices_.warnings,
              ElementsAre(HasSubstr("the model takes no pictures and no sound: ")));
}

}  // namespace
}  // namespace rullama
