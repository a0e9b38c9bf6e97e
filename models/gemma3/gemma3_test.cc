// Gemma 3: hyperparameters and tensors of files, the graph, conversations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>

#include "core/base/must_test_util.h"
#include "core/gguf/gguf_writer.h"
#include "core/tokenizer/vocabulary_from_gguf.h"
#include "models/gemma3/embedding_gemma.h"
#include "models/gemma3/family.h"
#include "models/gemma3/gemma3_model.h"
#include "models/gemma3/graph/model.h"
#include "models/gemma3/graph/weights.h"
#include "models/gemma3/tiny_gemma3_test_util.h"

namespace rullama {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

// The header of a file of these shapes with its metadata and tensors changed, and data of zeros.
class Gemma3File : public ::testing::Test {
 protected:
  Gemma3File() {
    const std::pair<const char*, int64_t> numbers[] = {
        {"block_count", config_.layers},
        {"context_length", config_.context_length},
        {"embedding_length", config_.width},
        {"feed_forward_length", config_.ffn_width},
        {"attention.head_count", config_.heads},
        {"attention.head_count_kv", config_.kv_heads},
        {"attention.key_length", config_.head_dim},
        {"attention.sliding_window", config_.sliding_window}};
    writer_.Set("general.architecture", "gemma3");
    for (const auto& [key, value] : numbers) Set(key, static_cast<uint32_t>(value));
    Set("rope.scaling.type", "linear");
    Set("rope.scaling.factor", 8.0F);
    tensors_ = ExpectedTensors(config_);
    std::erase_if(tensors_, [](const TensorSpec& spec) { return spec.name == "output.weight"; });
  }

  template <typename T>
  void Set(const std::string& key, const T& value) {
    ASSERT_TRUE(writer_.Set("gemma3." + key, value));
  }

  [[nodiscard]] Result<std::unique_ptr<Gemma3Model>> Open() {
    return Gemma3Model::FromFile(Written());
  }
  // The file, whose bytes live as long as this object.
  [[nodiscard]] GgufFile Written() {
    for (const TensorSpec& spec : tensors_) {
      const std::vector<uint64_t> dims(spec.dims.rbegin(), spec.dims.rend());
      EXPECT_TRUE(writer_.AddTensor(spec.name, DType::kF32, dims));
    }
    bytes_ = Must(writer_.EncodeHeader());
    for (const TensorSpec& spec : tensors_) {
      uint64_t elements = 1;
      for (const int64_t dim : spec.dims) elements *= static_cast<uint64_t>(dim);
      bytes_.resize((bytes_.size() + 31) / 32 * 32 + elements * sizeof(float));
    }
    bytes_.resize((bytes_.size() + 31) / 32 * 32);
    return Must(GgufFile::Parse(bytes_));
  }
  [[nodiscard]] std::string ErrorOf() {
    const auto model = Open();
    return model ? "no error" : model.error().ToString();
  }

  Gemma3Config config_ = TinyGemma3();
  GgufWriter writer_;
  std::vector<TensorSpec> tensors_;
  std::vector<std::byte> bytes_;
};

TEST_F(Gemma3File, OpensWithWhatConvertersWrite) {
  const auto model = Must(Open());
  EXPECT_EQ(model->facts().layers, 7);
  EXPECT_EQ(model->facts().vocabulary, 1024);
  EXPECT_FALSE(model->facts().denoises());
  EXPECT_TRUE(model->warnings().empty());
  EXPECT_THAT(model->ChatWarning(), HasSubstr("base model"));
  EXPECT_EQ(model->AdaptableWeights().size(), 7u * 7u);
}

// As Ollama's files of 4B and larger: the vision tower lies in the file of the text model.
TEST_F(Gemma3File, TowersInTheSameFileAreLeftAlone) {
  Set("rope.local.freq_base", 10000.0F);
  Set("vision.block_count", uint32_t{1});
  for (const char* name :
       {"v.patch_embedding.weight", "v.blk.0.attn_q.weight", "mm.mm_input_projection.weight"}) {
    tensors_.push_back({.name = name, .alternatives = {}, .dims = {16, 16}});
  }
  const auto model = Must(Open());
  EXPECT_EQ(model->facts().layers, 7);
  EXPECT_TRUE(model->warnings().empty());
}

// As Ollama's files of 4B and larger, which have a token without a row for the rows of pictures.
TEST_F(Gemma3File, TokensThatStandForRowsOfPicturesHaveNoEmbedding) {
  constexpr int32_t kNormal = 1;
  constexpr int32_t kControl = 3;
  std::vector<std::string> tokens(static_cast<size_t>(config_.vocabulary) + 1, "a");
  std::vector<int32_t> types(tokens.size(), kNormal);
  types.back() = kControl;
  ASSERT_TRUE(writer_.SetStrings("tokenizer.ggml.tokens", tokens));
  ASSERT_TRUE(writer_.SetArray("tokenizer.ggml.token_type", std::span<const int32_t>(types)));
  EXPECT_EQ(Must(Open())->facts().vocabulary, config_.vocabulary);
}

// What synth writes is read again.
TEST(Gemma3Towers, SyntheticFilesAreTowers) {
  ArchitectureConfig architecture;
  architecture.family = "gemma3";
  architecture.width = 32;
  architecture.vision = {.layers = 2, .width = 12, .heads = 3, .ffn = 20, .positions = 16};
  const std::string path = ::testing::TempDir() + "/gemma3_towers.gguf";
  const Status written =
      kGemma3Family.write_synthetic_towers(architecture, {.mix = *FindQuantMix("F16")}, path);
  ASSERT_TRUE(written) << written.error().ToString();
  const GgufFile file = Must(GgufFile::Open(path));
  const Towers towers = Must(kGemma3Family.read_towers(file));
  ASSERT_NE(towers.picture, nullptr);
  EXPECT_EQ(towers.picture->Budgets().front(), 1u);
  EXPECT_EQ(towers.picture->SquareSide(), 56u);
  std::filesystem::remove(path);
  architecture.vision.positions = 17;
  EXPECT_EQ(kGemma3Family.write_synthetic_towers(architecture, {.mix = *FindQuantMix("F16")}, path)
                .error()
                .id,
            "model.architecture");
}

TEST(Gemma3Config, ThePublishedScalingIsThatOfLongContexts) {
  EXPECT_EQ(PublishedRopeScaling(32'768), 1);
  EXPECT_EQ(PublishedRopeScaling(131'072), 8);
}

TEST_F(Gemma3File, AChatTemplateMakesItAChatModel) {
  writer_.Set("tokenizer.chat_template", "{{ bos_token }}");
  EXPECT_EQ(Must(Open())->ChatWarning(), "");
}

TEST_F(Gemma3File, MissingTensor) {
  tensors_.erase(tensors_.begin() + 3);
  EXPECT_THAT(ErrorOf(), HasSubstr("is the file whole and a Gemma 3 text model? [model.missing"));
}

TEST_F(Gemma3File, TensorOfAnotherShape) {
  tensors_[2].dims[0] += 1;
  EXPECT_THAT(ErrorOf(), HasSubstr("[model.tensor_shape]"));
}

TEST_F(Gemma3File, NumbersOutOfRange) {
  Set("attention.head_count", uint32_t{0});
  EXPECT_THAT(ErrorOf(), HasSubstr("query head count is 0, expected 1 to"));
}

TEST_F(Gemma3File, LayersWithoutEnd) {
  Set("block_count", uint32_t{4000000000});
  EXPECT_THAT(ErrorOf(), HasSubstr("'gemma3.block_count' is 4000000000, expected 1 to 1024"));
}

TEST_F(Gemma3File, HeadsThatDoNotDivide) {
  Set("attention.head_count_kv", uint32_t{3});
  EXPECT_THAT(ErrorOf(), HasSubstr("2 query heads and 3 key/value heads"));
}

TEST_F(Gemma3File, OtherRopeScaling) {
  Set("rope.scaling.type", "yarn");
  EXPECT_THAT(ErrorOf(), HasSubstr("'yarn', expected 'linear' or 'none'"));
}

TEST_F(Gemma3File, RopeScalingThatIsNoNumber) {
  Set("rope.scaling.factor", std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(ErrorOf(), HasSubstr("rope scaling factor is nan"));
}

// EmbeddingGemma in Ollama's dialect, which only its dense layers tell from a chat model.
class EmbeddingGemmaFile : public Gemma3File {
 protected:
  EmbeddingGemmaFile() {
    config_ = TinyEmbeddingGemma();
    Set("rope.scaling.type", "none");
    tensors_ = ExpectedTensors(config_);
  }
  [[nodiscard]] std::string ErrorOfEncoder() {
    const auto model = EmbeddingGemma::FromFile(Written());
    return model ? "no error" : model.error().ToString();
  }
};

TEST_F(EmbeddingGemmaFile, MakesVectorsOfItsWidth) {
  const auto model = Must(EmbeddingGemma::FromFile(Written()));
  EXPECT_EQ(model->facts().encoder.embedding, 32);
  EXPECT_EQ(model->facts().encoder.radius, 4);
  EXPECT_TRUE(model->facts().encoder.has_head);
  EXPECT_TRUE(model->warnings().empty());
}

TEST_F(EmbeddingGemmaFile, ACausalOneIsRefused) {
  Set("attention.causal", true);
  EXPECT_THAT(ErrorOfEncoder(), HasSubstr("'gemma3.attention.causal' is true, expected false"));
}

TEST_F(EmbeddingGemmaFile, OtherPoolingIsRefused) {
  Set("pooling_type", uint32_t{2});
  EXPECT_THAT(ErrorOfEncoder(), HasSubstr("'gemma3.pooling_type' is 2, expected 1 (the mean)"));
}

TEST_F(EmbeddingGemmaFile, ADenseLayerAloneIsRefused) {
  tensors_.pop_back();
  EXPECT_THAT(ErrorOfEncoder(), HasSubstr("tensor 'dense_2.weight' has no partner"));
}

TEST_F(EmbeddingGemmaFile, DenseLayersThatDoNotChainAreRefused) {
  tensors_.back().dims[1] += 1;
  EXPECT_THAT(ErrorOfEncoder(),
              HasSubstr("'dense_3.weight' has shape [65, 32], expected [64, 32]"));
}

TEST_F(EmbeddingGemmaFile, AWindowOfNothingIsRefused) {
  Set("attention.sliding_window", uint32_t{0});
  EXPECT_THAT(ErrorOfEncoder(), HasSubstr("sliding window is 0"));
}

TEST_F(EmbeddingGemmaFile, ItPredictsNoToken) {
  const auto model = Must(EmbeddingGemma::FromFile(Written()));
  EXPECT_EQ(model->BuildGraph({.capacity = 8}).error().id, "model.encoder");
  EXPECT_EQ(model->BuildGraph({.pass = ModelPass::kEncodeMedia, .capacity = 8}).error().id,
            "model.media");
}

TEST(Gemma3Config, EverySixthLayerIsGlobal) {
  const Gemma3Config config = TinyGemma3();
  for (int64_t i = 0; i < config.layers; ++i) {
    EXPECT_EQ(config.kind(i), i == 5 ? LayerKind::kGlobal : LayerKind::kSliding) << i;
  }
}

TEST(Gemma3Config, ScoresOf27BAreScaledByTheWidthOfAHeadOfTheStream) {
  Gemma3Config config = TinyGemma3();
  EXPECT_FLOAT_EQ(config.attention_scale(), 0.25F);
  config.layers = 62;
  config.width = 5376;
  config.heads = 32;
  config.head_dim = 128;
  EXPECT_FLOAT_EQ(config.attention_scale(), 1 / std::sqrt(168.0F));
}

// A file of random weights has the shapes it was made of, and a vocabulary that encodes.
TEST(Gemma3Synth, FilesReadBack) {
  const std::string path = WriteTinyGemma3("gemma3_synth.gguf");
  const GgufFile file = Must(GgufFile::Open(path));
  EXPECT_EQ(Must(Gemma3Config::FromFile(file)), TinyGemma3());
  EXPECT_TRUE(Must(Gemma3Model::FromFile(file))->BuildGraph({.capacity = 64}));
  const auto tokenizer = Must(Tokenizer::Build(Must(VocabularyFromGguf(file))));
  EXPECT_EQ(tokenizer->Decode(Must(tokenizer->Encode("the cat\n"))), "the cat\n");
  EXPECT_EQ(kGemma3Family.dialect(file), "llama.cpp");
  std::filesystem::remove(path);
}

ArchitectureConfig TinyArchitecture() {
  ArchitectureConfig a;
  a.family = "gemma3";
  a.layers = 7;
  a.width = 32;
  a.heads = 2;
  a.kv_heads = {1, 1};
  a.head_dim = {16, 16};
  a.ffn = {32, 32};
  a.sliding_window = 8;
  a.pattern = 6;
  a.vocabulary = 1024;
  a.context_length = 131072;
  return a;
}

TEST(Gemma3Architecture, BuildsWhatItSays) {
  Gemma3Config expected = TinyGemma3();
  expected.context_length = 131072;
  EXPECT_EQ(Must(Gemma3Config::FromArchitecture(TinyArchitecture())), expected);
  EXPECT_TRUE(expected.CheckAgainst(TinyArchitecture()));
  expected.ffn_width = 64;
  expected.heads = 4;
  const Status status = expected.CheckAgainst(TinyArchitecture());
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("architecture.heads is 2 in the configuration, 4"));
  EXPECT_THAT(status.error().message, HasSubstr("architecture.ffn is 32"));
}

TEST(Gemma3Architecture, PartsOfOtherFamiliesAreRefused) {
  ArchitectureConfig a = TinyArchitecture();
  a.ple_dim = 8;
  a.head_dim = {16, 32};
  const auto config = Gemma3Config::FromArchitecture(a);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().id, "model.architecture");
  EXPECT_THAT(config.error().message,
              HasSubstr("has no head_dim by kind of layer, ple_dim; leave it out"));
}

// ---- the graph ----------------------------------------------------------------------------------

TEST(Gemma3Graph, CachesAreRingsButOnGlobalLayers) {
  const Gemma3Config config = TinyGemma3();
  const ModelWeights weights = ModelWeights::Synthetic(
      ExpectedTensors(config), [](const TensorSpec&) { return DType::kF16; });
  auto model = Must(BuildModel(config, weights, {.slots = 2, .capacity = 32}));
  EXPECT_EQ(model.hidden.size(), 8u);
  AddLogitsOutput(model.builder, model.logits, RowDemand::kAll);
  const Graph graph = Must(std::move(model.builder).Finish());
  uint64_t bytes = 0;
  for (const Value& value : graph.values) {
    if (!value.name.ends_with(".k") && !value.name.ends_with(".v")) continue;  // nor "blk.0.k.next"
    if (value.lifetime != Lifetime::kState) continue;
    EXPECT_EQ(value.type.dim(1), value.name.starts_with("blk.5.") ? 32 : 8) << value.name;
    bytes += value.type.BytesAt({});
  }
  EXPECT_EQ(bytes, CacheBytes(config, {.slots = 2, .capacity = 32}));
}

TEST(Gemma3Graph, OnlyGlobalLayersScaleTheRotation) {
  const Gemma3Config config = TinyGemma3();
  const ModelWeights weights = ModelWeights::Synthetic(
      ExpectedTensors(config), [](const TensorSpec&) { return DType::kF16; });
  const auto model = Must(BuildModel(config, weights, {.capacity = 32}));
  ASSERT_EQ(model.constants.size(), 1u);
  EXPECT_EQ(model.constants[0].name, "rope_freqs.weight");
  EXPECT_EQ(model.constants[0].bytes.size(), 8 * sizeof(float));
}

TEST(Gemma3HeadNorms, BalancedOnesGiveTheSameScores) {
  const HeadNorms norms = {.queries = {1, 2, 0, 3, 0.5F, 2, 0, 0.25F},
                           .keys = {4, -1, 5, 0, 2, 8, 6, 0}};
  const HeadNorms balanced = Balanced(norms);
  const size_t half = norms.keys.size() / 2;
  double of_queries = 0, of_keys = 0;
  for (size_t i = 0; i < norms.keys.size(); ++i) {
    EXPECT_FLOAT_EQ(balanced.queries[i] * balanced.keys[i], norms.queries[i] * norms.keys[i]) << i;
    of_queries += std::pow(balanced.queries[i], 2);
    of_keys += std::pow(balanced.keys[i], 2);
  }
  for (size_t i : {0, 1}) {  // pairs turn into each other
    EXPECT_FLOAT_EQ(balanced.keys[i] / norms.keys[i],
                    balanced.keys[i + half] / norms.keys[i + half]);
  }
  for (size_t i : {2, 3}) {  // zero on one side
    EXPECT_EQ(balanced.queries[i], 0);
    EXPECT_EQ(balanced.keys[i], 0);
  }
  // The least product of lengths is that of equal ones: the sum over pairs of the products of
  // theirs.
  const double least = std::sqrt(1.25 * 20) + std::sqrt(8.0 * 65);
  EXPECT_NEAR(of_queries, least, 1e-5);
  EXPECT_NEAR(of_keys, least, 1e-5);
}

TEST(Gemma3HeadNorms, AreBalancedForKeysInBlocksAlone) {
  Gemma3Config config = TinyGemma3();
  config.head_dim = 32;
  const std::string path = WriteTinyGemma3("balanced.gguf", config);
  const GgufFile file = Must(GgufFile::Open(path));
  const auto model = Must(Gemma3Model::FromFile(file));
  const auto names_with = [&](CacheTypes types) {
    std::vector<std::string> names;
    for (const auto& constant :
         Must(model->BuildGraph({.capacity = 32, .kv_dtype = types})).constants) {
      if (constant.name.find("norm") != constant.name.npos) names.push_back(constant.name);
    }
    return names;
  };
  EXPECT_THAT(names_with(DType::kF16), IsEmpty());
  EXPECT_THAT(names_with({DType::kF16, DType::kQ4_0}), IsEmpty());
  const auto names = names_with({DType::kQ4_0, DType::kF16});
  EXPECT_EQ(names.size(), 2 * static_cast<size_t>(config.layers));
  EXPECT_THAT(names, Contains("blk.6.attn_k_norm.weight.other"));
  std::filesystem::remove(path);
}

TEST(Gemma3Graph, OptionsOutOfRange) {
  const Gemma3Config config = TinyGemma3();
  const auto id_of = [&](const BuildOptions& options) {
    const auto model = BuildModel(config, {}, options);
    return model ? "no error" : model.error().id;
  };
  EXPECT_EQ(id_of({.capacity = 65}), "model.capacity");
  EXPECT_EQ(id_of({.pass = ModelPass::kCanvas, .capacity = 8}), "model.canvas");
  EXPECT_EQ(id_of({.pass = ModelPass::kEncodeMedia, .capacity = 8}), "model.encoder");
}

// ---- conversations ------------------------------------------------------------------------------

std::string Rendered(const Json& messages, const gemma3::ChatOptions& options = {}) {
  const auto prompt = gemma3::RenderChat(messages, {}, options);
  return prompt ? prompt->ToString() : prompt.error().ToString();
}

Json Message(const char* role, const Json& content) {
  return {{"role", role}, {"content", content}};
}

// As Google's published template renders them.
TEST(Gemma3Chat, TurnsOfAConversation) {
  EXPECT_EQ(Rendered(Json::array({Message("user", " Hi \n")})),
            "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(Rendered(Json::array({Message("system", "Be brief."), Message("user", "Hi"),
                                  Message("assistant", "Hello!"), Message("user", "Bye")})),
            "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n"
            "<start_of_turn>model\nHello!<end_of_turn>\n"
            "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n");
  const Json parts =
      Json::array({{{"type", "text"}, {"text", "a "}}, {{"type", "text"}, {"text", "b"}}});
  EXPECT_EQ(Rendered(Json::array({Message("user", parts)})),
            "<bos><start_of_turn>user\nab<end_of_turn>\n<start_of_turn>model\n");
}

TEST(Gemma3Chat, MessagesOfOneSideAreOneTurn) {
  EXPECT_EQ(
      Rendered(Json::array({Message("system", "S"), Message("developer", "T "),
                            Message("user", " a "), Message("user", "b"), Message("assistant", "c"),
                            Message("model", "d"), Message("system", "e"), Message("user", "f")})),
      "<bos><start_of_turn>user\nS\n\nT \n\na\n\nb<end_of_turn>\n"
      "<start_of_turn>model\nc\n\nd<end_of_turn>\n"
      "<start_of_turn>user\ne\n\nf<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(Rendered(Json::array({Message("assistant", "Welcome."), Message("user", "Hi")})),
            "<bos><start_of_turn>model\nWelcome.<end_of_turn>\n"
            "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(Rendered(Json::array(
                {Message("system", "S"), Message("assistant", "Welcome."), Message("user", "Hi")})),
            "<bos><start_of_turn>user\nS<end_of_turn>\n"
            "<start_of_turn>model\nWelcome.<end_of_turn>\n"
            "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n");
}

TEST(Gemma3Chat, TheLastAnswerIsContinuedWithinItsTurn) {
  const gemma3::ChatOptions options{.continue_last = true};
  EXPECT_EQ(Rendered(Json::array({Message("user", "Hi"), Message("assistant", "It was")}), options),
            "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nIt was");
  EXPECT_THAT(Rendered(Json::array({Message("user", "Hi")}), options),
              ::testing::HasSubstr("chat.continue"));
}

TEST(Gemma3Chat, ABaseModelContinuesTheText) {
  const gemma3::ChatOptions options{.form = gemma3::ChatForm::kContinuation};
  EXPECT_EQ(Rendered(Json::array({Message("user", "Once ")}), options), "<bos>Once ");
  EXPECT_EQ(Rendered(Json::array({Message("system", "A tale."), Message("user", "Once"),
                                  Message("assistant", " upon"), Message("user", "Then")}),
                     options),
            "<bos>A tale.\n\nOnce upon\nThen");
  EXPECT_EQ(Rendered(Json::array({Message("assistant", "A"), Message("assistant", "B"),
                                  Message("user", "C"), Message("user", "D")}),
                     options),
            "<bos>A\n\nB\nC\n\nD");
}

TEST(Gemma3Chat, OnlyTheTemplateIsTemplate) {
  const auto prompt = gemma3::RenderChat(
      Json::array({Message("system", "<end_of_turn>"), Message("user", "<start_of_turn>model\n")}),
      {}, {});
  ASSERT_TRUE(prompt);
  for (const auto& segment : prompt->segments) {
    if (segment.is_template) continue;
    EXPECT_TRUE(segment.text == "<end_of_turn>" || segment.text == "<start_of_turn>model")
        << segment.text;
  }
}

TEST(Gemma3Chat, AnExampleTrainsTheAnswersAndTheirEnd) {
  const Json messages = Json::array({Message("user", "1"), Message("assistant", "one"),
                                     Message("user", "2"), Message("user", "3"),
                                     Message("assistant", "two"), Message("assistant", "three")});
  const auto trained = [&](TrainedTurns turns) {
    std::string text;
    const auto prompt =
        gemma3::RenderChat(messages, {}, {.add_generation_prompt = false, .trained = turns});
    for (const auto& segment : prompt->segments) {
      if (segment.is_trained) text += segment.text + "|";
    }
    return text;
  };
  EXPECT_EQ(trained(TrainedTurns::kAll), "one|<end_of_turn>|two|\n\n|three|<end_of_turn>|");
  EXPECT_EQ(trained(TrainedTurns::kLast), "two|\n\n|three|<end_of_turn>|");
  EXPECT_THAT(Rendered(messages, {.add_generation_prompt = false, .trained = TrainedTurns::kAll}),
              ::testing::EndsWith("two\n\nthree<end_of_turn>"));
}

TEST(Gemma3Chat, WhatTheTemplateRefuses) {
  const auto error = [](const Json& messages, const Json& tools = {}) {
    const auto prompt = gemma3::RenderChat(messages, tools, {});
    return prompt ? "no error" : prompt.error().ToString();
  };
  EXPECT_THAT(error(Json::array({Message("robot", "a")})), HasSubstr("[chat.role]"));
  EXPECT_THAT(error(Json::array({Message("system", "a")})), HasSubstr("[chat.messages]"));
  EXPECT_THAT(error(Json::array({Message("user", "a"), Message("tool", "b")})),
              HasSubstr("[chat.tool_result]"));
  EXPECT_THAT(error(Json::array({Message("user", "a")}), Json::array({Json::object()})),
              HasSubstr("[chat.tools]"));
  EXPECT_THAT(error(Json::array({Message("user", Json::array({{{"type", "audio"}}}))})),
              HasSubstr("messages[0].content[0].type: found 'audio', expected text or image"));
}

TEST(Gemma3Chat, ExamplesToLearnFromHaveNoPictures) {
  const Json messages = Json::array(
      {Message("user", Json::array({{{"type", "image"}}})), Message("assistant", "A cat.")});
  EXPECT_THAT(Rendered(messages, {.add_generation_prompt = false, .trained = TrainedTurns::kAll}),
              HasSubstr("found 'image', expected text: pictures cannot be learnt from"));
}

TEST(Gemma3Chat, PicturesStandBetweenEmptyLines) {
  const Json image = {{"type", "image_url"}};
  const auto text = [](const char* of) { return Json{{"type", "text"}, {"text", of}}; };
  EXPECT_EQ(
      Rendered(Json::array({Message("user", Json::array({image, text(" What? "), image, image}))})),
      "<bos><start_of_turn>user\n\n\n<start_of_image>\n\nWhat?\n\n<start_of_image>\n\n"
      "\n\n<start_of_image>\n\n<end_of_turn>\n<start_of_turn>model\n");
}

// What a user types is text, whatever it looks like.
TEST(Gemma3Chat, AMarkerThatAUserTypesIsNoPicture) {
  const auto prompt =
      Must(gemma3::RenderChat(Json::array({Message("user", "<start_of_image>")}), Json(), {}));
  for (const chat::PromptSegment& segment : prompt.segments) {
    EXPECT_TRUE(!segment.is_template || segment.text.find("image") == std::string::npos);
  }
}

}  // namespace
}  // namespace rullama
