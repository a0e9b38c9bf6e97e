// Embedding models through the C interface. Needs ../shared.
#include <cmath>
#include <string>
#include <vector>

#include "tests/c_api/c_api_test_util.h"

namespace rullama {
namespace {

const std::string kFamily = RULLAMA_SOURCE_DIR "/../shared/models/family/tiny-embeddinggemma2-";
const std::string kMedia = RULLAMA_SOURCE_DIR "/../shared/goldens/embeddinggemma2/";

class CApiEmbeddings : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string model = kFamily + "bf16.gguf", towers = kFamily + "mmproj-bf16.gguf";
    const rullama_setting settings[] = {{"model.mmproj", towers.c_str()}};
    rullama_engine_options options = Options();
    options.model = model.c_str();
    options.settings = settings;
    options.setting_count = std::size(settings);
    ASSERT_EQ(rullama_engine_open(&options, &engine_, nullptr), RULLAMA_OK);
  }
  static void TearDownTestSuite() { rullama_engine_free(engine_); }

  using Vector = std::vector<float>;
  static Vector Taken(rullama_code code, float* values, size_t count) {
    EXPECT_EQ(code, RULLAMA_OK);
    const Buffer<float> owner(values);
    return {values, values + count};
  }
  static Vector Embed(const char* text, const char* task) {
    const rullama_embedding_options options = VectorOptions(task);
    float* values = nullptr;
    size_t count = 0;
    const rullama_code code = rullama_engine_embed_with(engine_, text, RULLAMA_TERMINATED, &options,
                                                        &values, &count, nullptr);
    return Taken(code, values, count);
  }
  static Vector EmbedContent(const char* messages, const rullama_medium* media, size_t media_count,
                             int64_t dimensions = 0) {
    const rullama_embedding_options options = VectorOptions(nullptr, dimensions);
    rullama_request content = {};
    content.struct_size = sizeof content;
    content.messages = messages;
    content.media = media;
    content.media_count = media_count;
    float* values = nullptr;
    size_t count = 0;
    const rullama_code code =
        rullama_engine_embed_content(engine_, &content, &options, &values, &count, nullptr);
    return Taken(code, values, count);
  }

  static rullama_engine* engine_;
};
rullama_engine* CApiEmbeddings::engine_ = nullptr;

TEST_F(CApiEmbeddings, ATaskIsItsPrompt) {
  EXPECT_EQ(Embed("war", "query"), Embed("task: search result | query: war", nullptr));
  EXPECT_NE(Embed("war", "query"), Embed("war", nullptr));
}

TEST_F(CApiEmbeddings, APictureStandsBeforeOrAfterItsText) {
  const std::string file = kMedia + "wide.png";
  rullama_medium picture = {};
  picture.kind = RULLAMA_PICTURE;
  picture.image_tokens = 70;
  picture.path = file.c_str();
  const Vector before = EmbedContent(
      R"([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a"}]}])",
      &picture, 1);
  const Vector after = EmbedContent(
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}])",
      &picture, 1);
  EXPECT_EQ(before.size(), 128U);
  EXPECT_NE(before, after);
  EXPECT_EQ(EmbedContent(R"([{"role": "user", "content": "war"}])", nullptr, 0),
            Embed("war", nullptr));
  const Vector cut = EmbedContent(R"([{"role": "user", "content": "war"}])", nullptr, 0, 2);
  ASSERT_EQ(cut.size(), 2U);
  EXPECT_NEAR(std::hypot(cut[0], cut[1]), 1, 1e-6);
}

}  // namespace
}  // namespace rullama
