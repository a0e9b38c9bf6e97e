#include "core/ollama/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace rullama::gguf_internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

const std::string kHex(64, 'a');

Json Layer(const std::string& kind, const std::string& digest = "sha256:" + kHex) {
  return {{"mediaType", "application/vnd.ollama.image." + kind}, {"digest", digest}, {"size", 7}};
}

std::string Manifest(std::vector<Json> layers) {
  return Json{{"schemaVersion", 2},
              {"config", {{"digest", "sha256:" + kHex}, {"size", 3}}},
              {"layers", layers}}
      .dump();
}

std::string IdOf(const std::string& manifest) {
  const auto parsed = ParseOllamaManifest(manifest);
  return parsed ? "ok" : parsed.error().id;
}

TEST(OllamaManifestTest, LayersHaveRoles) {
  const auto manifest = ParseOllamaManifest(
      Manifest({Layer("model"), Layer("projector"), Layer("params"), Layer("license")}));
  ASSERT_TRUE(manifest) << manifest.error().ToString();
  EXPECT_EQ(manifest->config_blob, "sha256-" + kHex);
  ASSERT_EQ(manifest->layers.size(), 4u);
  EXPECT_EQ(manifest->layers[0].role, LayerRole::kModel);
  EXPECT_EQ(manifest->layers[0].bytes, 7u);
  EXPECT_EQ(manifest->layers[1].role, LayerRole::kProjector);
  EXPECT_EQ(manifest->layers[2].role, LayerRole::kParams);
  EXPECT_EQ(manifest->layers[3].role, LayerRole::kIgnored);
}

TEST(OllamaManifestTest, DigestsAreCheckedBeforeTheyBecomePaths) {
  EXPECT_EQ(BlobName("sha256:" + kHex).value(), "sha256-" + kHex);
  EXPECT_EQ(BlobName("sha256-" + kHex).value(), "sha256-" + kHex);
  for (const std::string& digest :
       {std::string(), std::string("sha256-../../etc/passwd"), "sha256:" + kHex.substr(1),
        "sha256:" + kHex + "a", "sha256:" + std::string(64, 'A'), "sha256/" + kHex, "md5:" + kHex,
        "sha256:" + std::string(63, 'a') + "g", "sha256:" + std::string(61, 'a') + "/..",
        "sha256:" + std::string(63, 'a') + std::string(1, '\0')}) {
    const auto blob = BlobName(digest);
    ASSERT_FALSE(blob) << digest;
    EXPECT_EQ(blob.error().id, "store.digest");
    EXPECT_EQ(IdOf(Manifest({Layer("model", digest)})), "store.digest");
  }
}

TEST(OllamaManifestTest, DamagedManifests) {
  EXPECT_EQ(IdOf(""), "store.manifest");
  EXPECT_EQ(IdOf("[]"), "store.manifest");
  EXPECT_EQ(IdOf("{\"config\":"), "store.manifest");
  EXPECT_EQ(IdOf("{}"), "store.manifest");
  EXPECT_EQ(IdOf(Json{{"config", 3}}.dump()), "store.manifest");
  EXPECT_EQ(IdOf(Json{{"config", {{"digest", "sha256:" + kHex}}}, {"layers", "x"}}.dump()),
            "store.manifest");
  EXPECT_EQ(IdOf(Manifest({})), "store.manifest");
  EXPECT_EQ(IdOf(Manifest({Layer("license")})), "store.manifest");
  EXPECT_EQ(IdOf(Manifest({Layer("model"), Layer("model")})), "store.manifest");
  EXPECT_EQ(IdOf(Manifest({Json(3)})), "store.manifest");
  EXPECT_EQ(IdOf(Manifest({Layer("model")}) + std::string(kMaxStoreJsonBytes, ' ')),
            "store.manifest");
}

TEST(OllamaManifestTest, SizesMustBeBytes) {
  for (const char* size :
       {"-1", "1.5", "1e300", "1e999", "18446744073709551616", "\"7\"", "null"}) {
    std::string text = Manifest({Layer("model")});
    text.replace(text.find("\"size\":7"), 8, std::string("\"size\":") + size);
    EXPECT_EQ(IdOf(text), "store.manifest") << size;
  }
}

TEST(OllamaManifestTest, DepthIsLimited) {
  const auto nested = [](size_t depth) {
    std::string text = Manifest({Layer("model")});
    text.insert(1, "\"x\":" + std::string(depth, '[') + std::string(depth, ']') + ",");
    return text;
  };
  EXPECT_EQ(IdOf(nested(8)), "ok");
  EXPECT_EQ(IdOf(nested(20)), "store.manifest");
  EXPECT_EQ(IdOf(nested(300000)), "store.manifest");
}

TEST(OllamaManifestTest, ModelsThatAreNoGguf) {
  const auto tensors = ParseOllamaManifest(Manifest({Layer("tensor"), Layer("json")}));
  ASSERT_FALSE(tensors);
  EXPECT_EQ(tensors.error().id, "store.not_gguf");
  EXPECT_THAT(tensors.error().message, HasSubstr("MLX"));
  const auto unknown = ParseOllamaManifest(Manifest({Layer("model"), Layer("hologram\x01")}));
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().id, "store.not_gguf");
  EXPECT_THAT(unknown.error().message, HasSubstr("hologram\\u0001"));
}

TEST(OllamaConfigTest, LabelsAndFormat) {
  OllamaModel model;
  ASSERT_TRUE(ParseOllamaConfig(
      R"({"model_format":"gguf","model_family":"gemma4","model_type":"5.1B","file_type":"Q4_K_M",
          "renderer":"gemma4","architecture":"amd64"})",
      model));
  EXPECT_EQ(model.model_family, "gemma4");
  EXPECT_EQ(model.model_type, "5.1B");
  EXPECT_EQ(model.file_type, "Q4_K_M");
  EXPECT_EQ(model.renderer, "gemma4");
  EXPECT_EQ(ParseOllamaConfig(R"({"model_format":"safetensors"})", model).error().id,
            "store.not_gguf");
  EXPECT_EQ(ParseOllamaConfig("[", model).error().id, "store.manifest");
}

TEST(OllamaParamsTest, ReadsTheSettingsOfASampler) {
  const auto params = ParseOllamaParams(
      R"({"temperature":1,"top_k":64,"top_p":0.95,"stop":["<turn|>","x"],"num_ctx":8192})");
  ASSERT_TRUE(params) << params.error().ToString();
  EXPECT_EQ(params->temperature, 1.0);
  EXPECT_EQ(params->top_k, 64);
  EXPECT_EQ(params->top_p, 0.95);
  EXPECT_EQ(params->min_p, std::nullopt);
  EXPECT_THAT(params->stop, ElementsAre("<turn|>", "x"));
  EXPECT_THAT(ParseOllamaParams(R"({"stop":"one"})")->stop, ElementsAre("one"));
}

TEST(OllamaParamsTest, WrongTypesAreRefused) {
  for (const char* text : {"", "[]", R"({"temperature":"hot"})", R"({"top_k":1.5})",
                           R"({"top_k":1e18})", R"({"stop":7})", R"({"stop":["a",7]})"}) {
    const auto params = ParseOllamaParams(text);
    ASSERT_FALSE(params) << text;
    EXPECT_EQ(params.error().id, "store.params");
  }
}

}  // namespace
}  // namespace rullama::gguf_internal
