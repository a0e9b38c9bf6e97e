// Adapter files of each kind, right and wrong, for a small model in memory.
#include "models/common/adapters/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "core/base/must_test_util.h"
#include "core/gguf/gguf_writer.h"
#include "core/gguf/quantize.h"
#include "core/safetensors/safetensors.h"
#include "models/gemma4/graph/gemma4_test_file.h"
#include "models/gemma4/graph/weights.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int64_t kWidth = Gemma4TestFile::kWidth;
constexpr int64_t kFfn = Gemma4TestFile::kFfn;
constexpr int64_t kQueries = Gemma4TestFile::kHeads * Gemma4TestFile::kSlidingDim;
const std::string kLayer0 = "base_model.model.model.layers.0.";
const char* const kPlainConfig =
    R"({"peft_type":"LORA","r":2,"lora_alpha":4.0,"target_modules":["q_proj","down_proj"]})";

std::vector<float> Values(size_t count, float first) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = first + static_cast<float>(i) / 64;
  return values;
}

class AdapterTest : public ::testing::Test {
 protected:
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> values = {};
  };

  void SetUp() override {
    model_bytes_ = Gemma4TestFile::Small().Bytes();
    const auto config = Must(Gemma4Config::FromFile(Must(GgufFile::Parse(model_bytes_))));
    target_ = {std::string(config.architecture()), ExpectedTensors(config)};
    folder_ = fs::path(::testing::TempDir()) / ("adapter_test_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static void WriteBytes(const fs::path& path, std::span<const std::byte> bytes) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  static void Fill(std::vector<Tensor>& tensors) {
    for (Tensor& tensor : tensors) {
      size_t count = 1;
      for (const int64_t dim : tensor.shape) count *= static_cast<size_t>(dim);
      if (tensor.values.empty()) tensor.values = Values(count, 1);
    }
  }
  std::string Safetensors(const char* name, std::vector<Tensor> tensors, const std::string& config,
                          const std::map<std::string, std::string>& metadata = {}) const {
    Fill(tensors);
    std::vector<SafetensorsOutput> outputs;
    for (const Tensor& tensor : tensors) {
      outputs.push_back({tensor.name, tensor.shape, tensor.values});
    }
    WriteBytes(folder_ / name, EncodeSafetensors(outputs, metadata));
    std::ofstream(folder_ / "adapter_config.json") << config;
    return folder_.string();
  }
  std::string Peft(std::vector<Tensor> tensors, const std::string& config = kPlainConfig) const {
    return Safetensors("adapter_model.safetensors", std::move(tensors), config);
  }
  [[nodiscard]] std::string ErrorOf(const std::string& path) const {
    const auto adapter = ReadAdapter(path, target_);
    return adapter ? "no error" : adapter.error().ToString();
  }
  static std::vector<Tensor> QueryPair() {
    return {{kLayer0 + "self_attn.q_proj.lora_A.weight", {2, kWidth}},
            {kLayer0 + "self_attn.q_proj.lora_B.weight", {kQueries, 2}}};
  }

  std::vector<std::byte> model_bytes_;
  AdapterTarget target_;
  fs::path folder_;
};

TEST_F(AdapterTest, PeftIsRead) {
  const Adapter adapter = Must(ReadAdapter(Peft(QueryPair()), target_));
  ASSERT_EQ(adapter.weights.size(), 1u);
  const AdapterWeight& weight = adapter.weights[0];
  EXPECT_EQ(weight.tensor, "blk.0.attn_q.weight");
  EXPECT_EQ(weight.rank, 2);
  EXPECT_EQ(weight.inputs, kWidth);
  EXPECT_EQ(weight.outputs, kQueries);
  EXPECT_EQ(weight.scale, 2);
  EXPECT_EQ(weight.a, Values(2 * kWidth, 1));
  EXPECT_EQ(adapter.Describe(), "2 tensors on 1 weights, rank 2, scale 2");
}

TEST_F(AdapterTest, TheFileOfAFolderAndMultimodalNamesAreRead) {
  std::vector<Tensor> tensors = QueryPair();
  for (Tensor& tensor : tensors) {
    tensor.name.replace(0, kLayer0.size(), "base_model.model.model.language_model.layers.0.");
  }
  const std::string folder = Peft(tensors);
  EXPECT_EQ(Must(ReadAdapter(folder + "/adapter_model.safetensors", target_)).weights.size(), 1u);
}

// An adapter of a multimodal model: its text layers are used.
TEST_F(AdapterTest, TensorsOfTowersAreLeftOutWithAWarning) {
  std::vector<Tensor> tensors = QueryPair();
  const std::string tower = "base_model.model.model.vision_tower.encoder.layers.0.self_attn.q_proj";
  tensors.push_back({tower + ".lora_A.weight", {2, 4}});
  tensors.push_back({tower + ".lora_B.weight", {4, 2}});
  const Adapter adapter = Must(ReadAdapter(Peft(tensors), target_));
  EXPECT_EQ(adapter.weights.size(), 1u);
  ASSERT_EQ(adapter.warnings.size(), 1u);
  EXPECT_THAT(adapter.warnings[0], HasSubstr("2 tensors of the adapter belong to image or audio"));
  EXPECT_THAT(adapter.warnings[0], HasSubstr("vision_tower"));
}

TEST_F(AdapterTest, NamesWithTheNameOfTheAdapterAreRead) {
  std::vector<Tensor> tensors = QueryPair();
  for (Tensor& tensor : tensors) {
    tensor.name.insert(tensor.name.size() - std::string(".weight").size(), ".default");
  }
  EXPECT_EQ(Must(ReadAdapter(Peft(tensors), target_)).weights.size(), 1u);
}

// As trainers write that adapt parameters in place of modules.
TEST_F(AdapterTest, NamesWithTheNameOfTheWeightAreRead) {
  const std::string weight = kLayer0 + "self_attn.q_proj.weight";
  const Adapter adapter = Must(ReadAdapter(
      Peft({{weight + ".lora_A", {2, kWidth}}, {weight + ".lora_B", {kQueries, 2}}}), target_));
  ASSERT_EQ(adapter.weights.size(), 1u);
  EXPECT_EQ(adapter.weights[0].tensor, "blk.0.attn_q.weight");
  EXPECT_EQ(adapter.weights[0].a, Values(2 * kWidth, 1));
}

// PEFT adapts a parameter of all experts with one matrix for each half: A has the experts one after
// another, B has them side by side for each of its columns.
TEST_F(AdapterTest, StackedExpertsAreTakenApart) {
  constexpr int64_t kExperts = 3, kRank = 2, kExpertFfn = 8;
  const std::string down_name = "blk.0.ffn_down_exps.weight";
  target_.tensors.push_back(
      {.name = down_name, .alternatives = {}, .dims = {kExperts, kWidth, kExpertFfn}});
  target_.tensors.push_back({.name = "blk.0.ffn_gate_up_exps.weight",
                             .alternatives = {},
                             .dims = {kExperts, 2 * kExpertFfn, kWidth}});
  const std::string down_module = kLayer0 + "experts";
  const std::string up_module = down_module + ".base_layer";
  const Adapter adapter =
      Must(ReadAdapter(Peft({{down_module + ".lora_A.weight", {kExperts * kRank, kExpertFfn}},
                             {down_module + ".lora_B.weight", {kWidth, kRank * kExperts}},
                             {up_module + ".lora_A.weight", {kExperts * kRank, kWidth}},
                             {up_module + ".lora_B.weight", {2 * kExpertFfn, kRank * kExperts}}},
                            R"({"peft_type":"LORA","r":2,"lora_alpha":4})"),
                       target_));
  ASSERT_EQ(adapter.weights.size(), 2u);
  const auto down = std::ranges::find(adapter.weights, down_name, &AdapterWeight::tensor);
  ASSERT_NE(down, adapter.weights.end());
  EXPECT_EQ(down->experts, kExperts);
  EXPECT_EQ(down->rank, kRank);
  EXPECT_EQ(down->inputs, kExpertFfn);
  EXPECT_EQ(down->outputs, kWidth);
  EXPECT_EQ(down->a, Values(kExperts * kRank * kExpertFfn, 1));
  const std::vector<float> stored = Values(kWidth * kRank * kExperts, 1);
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    for (int64_t out = 0; out < kWidth; ++out) {
      for (int64_t k = 0; k < kRank; ++k) {
        EXPECT_EQ(down->b.at(static_cast<size_t>((expert * kWidth + out) * kRank + k)),
                  stored.at(static_cast<size_t>((out * kRank + k) * kExperts + expert)));
      }
    }
  }
}

// The output folder of a run that was interrupted: its adapters are named.
TEST_F(AdapterTest, OfARunThatHasNotEndedSaysWhatToUse) {
  const fs::path run = folder_ / "run";
  for (const char* name : {"0000009", "0000053", "notes"}) {
    fs::create_directories(run / name);
    std::ofstream(run / name / "adapter_model.safetensors") << "x";
  }
  EXPECT_THAT(ErrorOf(run.string()), HasSubstr("use '" + (run / "0000053").string() + "'"));
  fs::create_directories(run / "best");
  std::ofstream(run / "best/adapter_model.safetensors") << "x";
  EXPECT_THAT(ErrorOf(run.string()), HasSubstr("use '" + (run / "best").string() + "'"));
}

TEST_F(AdapterTest, FactorsOfPeft) {
  const auto scale = [&](const std::string& rest) {
    const std::string config = R"({"peft_type":"LORA","r":8,"lora_alpha":4,)" + rest + "}";
    return Must(ReadAdapter(Peft(QueryPair(), config), target_)).weights[0].scale;
  };
  EXPECT_EQ(scale(R"("rank_pattern":{"q_proj":2})"), 2);
  EXPECT_EQ(scale(R"("rank_pattern":{"model.layers.0.self_attn.q_proj":2})"), 2);
  EXPECT_EQ(scale(R"("rank_pattern":{"^model\\.layers\\.0\\.self_attn\\.q_proj":2})"), 2);
  EXPECT_EQ(scale(R"("rank_pattern":{"q_proj":2},"alpha_pattern":{"self_attn.q_proj":6})"), 3);
  EXPECT_EQ(scale(R"("rank_pattern":{"q_proj":2},"use_rslora":true)"), 4 / std::sqrt(2.0));
}

TEST_F(AdapterTest, WhatWouldChangeResultsIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("use_dora":true)", "'use_dora' set"},
      {R"("lora_bias":true)", "'lora_bias' set"},
      {R"("bias":"all")", "trains biases"},
      {R"("modules_to_save":["lm_head"])", "'modules_to_save' set"},
      {R"("fan_in_fan_out":true)", "'fan_in_fan_out' set"},
      {R"("alora_invocation_tokens":[1])", "'alora_invocation_tokens' set"},
      {R"("init_lora_weights":"pissa")", "began with 'pissa'"},
      {R"("of_the_future":1)", "'of_the_future' set"},
      {R"("rank_pattern":{".*q_proj":2})", "regular expression"},
      {R"("rank_pattern":{"q_proj":3})", "has rank 2, its configuration says 3"},
      {R"("target_modules":["v_proj"])", "does not belong to the target_modules"},
      {R"("layers_to_transform":[3])", "does not belong to the layers_to_transform"},
      {R"("layers_to_transform":"x")", "[adapter.config]"},
      {R"("alpha_pattern":{"q_proj":0})", "expected a number above 0"},
  };
  for (const auto& [rest, expected] : cases) {
    const std::string config = std::string(R"({"peft_type":"LORA","r":2,"lora_alpha":4,)") + rest;
    EXPECT_THAT(ErrorOf(Peft(QueryPair(), config + "}")), HasSubstr(expected)) << rest;
  }
  EXPECT_THAT(ErrorOf(Peft(QueryPair(), R"({"peft_type":"LOHA"})")), HasSubstr("\"LOHA\""));
  EXPECT_THAT(ErrorOf(Peft(QueryPair(), R"({"peft_type":"LORA","r":0,"lora_alpha":4})")),
              HasSubstr("r is 0"));
  EXPECT_THAT(ErrorOf(Peft(QueryPair(), "{")), HasSubstr("[adapter.config]"));
  EXPECT_EQ(ErrorOf(Peft(QueryPair(),
                         R"({"peft_type":"LORA","r":2,"lora_alpha":4,"use_dora":false,"bias":"none",
                             "modules_to_save":null,"lora_dropout":0.1,"of_the_future":null})")),
            "no error");
}

TEST_F(AdapterTest, TensorsThatDoNotBelongToTheModelAreErrors) {
  const auto with = [&](const std::string& module, std::vector<int64_t> a, std::vector<int64_t> b) {
    return ErrorOf(
        Peft({{module + ".lora_A.weight", std::move(a)}, {module + ".lora_B.weight", std::move(b)}},
             R"({"peft_type":"LORA","r":2,"lora_alpha":4})"));
  };
  const std::string wrong = with(kLayer0 + "self_attn.q_proj", {2, kWidth + 1}, {kQueries, 2});
  EXPECT_THAT(wrong, HasSubstr("[adapter.shape]"));
  EXPECT_THAT(wrong, HasSubstr("lora_A.weight' is [2, 33]"));
  EXPECT_THAT(wrong, HasSubstr("expected [rank, 32] and [16, rank]"));
  EXPECT_THAT(with(kLayer0 + "self_attn.q_proj", {2, kWidth}, {kQueries, 3}),
              HasSubstr("[adapter.shape]"));
  EXPECT_THAT(with(kLayer0 + "mlp.other", {2, 4}, {4, 2}), HasSubstr("[adapter.unknown_tensor]"));
  EXPECT_THAT(with("base_model.model.model.layers.77.mlp.up_proj", {2, kWidth}, {kFfn, 2}),
              HasSubstr("which this model does not have"));
  EXPECT_THAT(with("base_model.model.lm_head", {2, kWidth}, {20, 2}),
              HasSubstr("[adapter.unsupported]"));
  EXPECT_THAT(with("base_model.model.model.vision_tower.layers.0.self_attn.q_proj", {2, 4}, {4, 2}),
              HasSubstr("only of image or audio towers ("));
  EXPECT_THAT(with(kLayer0 + "experts", {2, kWidth}, {4, 2}), HasSubstr("0 experts"));
}

TEST_F(AdapterTest, DamagedPairsAreErrors) {
  std::vector<Tensor> tensors = QueryPair();
  Fill(tensors);
  tensors[1].values[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(ErrorOf(Peft(tensors)), HasSubstr("has nan as element 5"));
  tensors = QueryPair();
  tensors.pop_back();
  EXPECT_THAT(ErrorOf(Peft(tensors)), HasSubstr("comes without B"));
  tensors = QueryPair();
  tensors.push_back({kLayer0 + "self_attn.q_proj.lora_magnitude_vector", {kQueries}});
  EXPECT_THAT(ErrorOf(Peft(tensors)), HasSubstr("not half of an adapter"));
  EXPECT_THAT(ErrorOf(Peft({})), HasSubstr("[adapter.empty]"));
  fs::remove(folder_ / "adapter_config.json");
  EXPECT_THAT(ErrorOf(folder_.string()), HasSubstr("[io.open]"));
  fs::remove(folder_ / "adapter_model.safetensors");
  EXPECT_THAT(ErrorOf(folder_.string()), HasSubstr("[adapter.file]"));
  std::ofstream(folder_ / "text") << "hello";
  EXPECT_THAT(ErrorOf((folder_ / "text").string()), HasSubstr("neither GGUF nor safetensors"));
}

TEST_F(AdapterTest, KeysOfSharingLayersAreNamedAndHaveNoEffect) {
  std::vector<Tensor> tensors = QueryPair();
  tensors.push_back(
      {"base_model.model.model.layers.4.self_attn.k_proj.lora_A.weight", {2, kWidth}});
  tensors.push_back({"base_model.model.model.layers.4.self_attn.k_proj.lora_B.weight",
                     {Gemma4TestFile::kGlobalDim, 2}});
  const Adapter adapter =
      Must(ReadAdapter(Peft(tensors, R"({"peft_type":"LORA","r":2,"lora_alpha":4})"), target_));
  EXPECT_EQ(adapter.weights.size(), 1u);
  ASSERT_EQ(adapter.warnings.size(), 1u);
  EXPECT_THAT(adapter.warnings[0], HasSubstr("layers.4.self_attn.k_proj"));
}

TEST_F(AdapterTest, MlxIsTransposed) {
  const std::string folder = Safetensors(
      "adapters.safetensors",
      {{"language_model.model.layers.0.self_attn.q_proj.lora_a", {kWidth, 2}},
       {"language_model.model.layers.0.self_attn.q_proj.lora_b", {2, kQueries}}},
      R"({"fine_tune_type":"lora","lora_parameters":{"rank":2,"scale":20.0,"dropout":0.0}})");
  const Adapter adapter = Must(ReadAdapter(folder, target_));
  ASSERT_EQ(adapter.weights.size(), 1u);
  EXPECT_EQ(adapter.weights[0].scale, 20);
  const std::vector<float> stored = Values(2 * kWidth, 1);
  EXPECT_EQ(adapter.weights[0].a[1], stored[2]);
  EXPECT_EQ(adapter.weights[0].a[kWidth], stored[1]);
}

TEST_F(AdapterTest, RustRullamaIsRead) {
  const std::vector<Tensor> tensors = {{"lora.blk.0.attn_o.A", {2, kQueries}},
                                       {"lora.blk.0.attn_o.B", {kWidth, 2}}};
  const std::string folder =
      Safetensors("adapters.safetensors", tensors, "", {{"rank", "2"}, {"alpha", "6"}});
  const Adapter adapter = Must(ReadAdapter(folder, target_));
  EXPECT_EQ(adapter.weights[0].tensor, "blk.0.attn_output.weight");
  EXPECT_EQ(adapter.weights[0].scale, 3);
  Safetensors("adapters.safetensors", tensors, "", {{"rank", "2"}});
  EXPECT_THAT(ErrorOf(folder), HasSubstr("no valid 'alpha'"));
  Safetensors("adapters.safetensors", tensors, "", {{"rank", "4"}, {"alpha", "6"}});
  EXPECT_THAT(ErrorOf(folder), HasSubstr("has rank 2, the metadata says 4"));
}

class GgufAdapterTest : public AdapterTest {
 protected:
  // Writes a GGUF adapter of blk.0.ffn_up; `change` may change its metadata before.
  template <typename Change>
  std::string Gguf(Change change, const std::string& suffix = ".lora_b",
                   DType type_of_a = DType::kF32) const {
    GgufWriter writer;
    EXPECT_TRUE(writer.Set("general.architecture", "gemma4"));
    EXPECT_TRUE(writer.Set("general.type", "adapter"));
    EXPECT_TRUE(writer.Set("adapter.type", "lora"));
    EXPECT_TRUE(writer.Set("adapter.lora.alpha", 6.0F));
    change(writer);
    const uint64_t a[] = {kWidth, 2};
    const uint64_t b[] = {2, kFfn};
    EXPECT_TRUE(writer.AddTensor("blk.0.ffn_up.weight.lora_a", type_of_a, a));
    EXPECT_TRUE(writer.AddTensor("blk.0.ffn_up.weight" + suffix, DType::kF32, b));
    const fs::path path = folder_ / "adapter.gguf";
    GgufOutput output = Must(writer.Begin(path));
    for (const auto& [type, count] :
         {std::pair(type_of_a, 2 * kWidth), std::pair(DType::kF32, 2 * kFfn)}) {
      const auto values = Values(static_cast<size_t>(count), 1);
      std::vector<std::byte> bytes(RowBytes(type, values.size()));
      EXPECT_TRUE(Quantize(type, values, bytes));
      EXPECT_TRUE(output.Append(bytes));
    }
    EXPECT_TRUE(output.Finish());
    return path.string();
  }
};

TEST_F(GgufAdapterTest, IsRead) {
  const Adapter adapter = Must(ReadAdapter(Gguf([](GgufWriter&) {}), target_));
  ASSERT_EQ(adapter.weights.size(), 1u);
  EXPECT_EQ(adapter.weights[0].tensor, "blk.0.ffn_up.weight");
  EXPECT_EQ(adapter.weights[0].scale, 3);
  const auto without = Gguf([](GgufWriter& writer) { writer.Remove("adapter.lora.alpha"); });
  EXPECT_EQ(Must(ReadAdapter(without, target_)).weights[0].scale, 1);
}

// llama.cpp's converter of adapters has the types of --outtype.
TEST_F(GgufAdapterTest, MayBePacked) {
  const std::vector<float> exact = Values(2 * kWidth, 1);
  for (const DType type : {DType::kF16, DType::kBF16, DType::kQ8_0}) {
    const auto path = Gguf([](GgufWriter&) {}, ".lora_b", type);
    const Adapter adapter = Must(ReadAdapter(path, target_));
    ASSERT_EQ(adapter.weights[0].a.size(), exact.size());
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_NEAR(adapter.weights[0].a[i], exact[i], 0.01) << NameOf(type) << ", element " << i;
    }
  }
}

TEST_F(GgufAdapterTest, OtherFilesAreErrors) {
  const auto set = [](const char* key, const char* value) {
    return [key, value](GgufWriter& writer) { EXPECT_TRUE(writer.Set(key, value)); };
  };
  EXPECT_THAT(ErrorOf(Gguf(set("general.architecture", "llama"))),
              HasSubstr("is 'llama', expected 'gemma4'"));
  EXPECT_THAT(ErrorOf(Gguf(set("general.type", "model"))), HasSubstr("[adapter.arch]"));
  EXPECT_THAT(ErrorOf(Gguf(set("adapter.type", "dora"))), HasSubstr("[adapter.arch]"));
  EXPECT_THAT(ErrorOf(Gguf(set("adapter.alora.invocation_tokens", "x"))),
              HasSubstr("[adapter.unsupported]"));
  EXPECT_THAT(ErrorOf(Gguf([](GgufWriter&) {}, ".norm")), HasSubstr("[adapter.unknown_tensor]"));
  const std::string path = Gguf([](GgufWriter&) {});
  fs::resize_file(path, fs::file_size(path) - 40);
  EXPECT_THAT(ErrorOf(path), HasSubstr("[gguf."));
}

TEST_F(GgufAdapterTest, SeveralAdaptersBecomeOnePair) {
  const Adapter adapter = Must(ReadAdapter(Gguf([](GgufWriter&) {}), target_));
  const std::vector<ScaledAdapter> adapters = {{adapter, 1}, {adapter, -0.5}};
  const ModelAdapters joined = JoinAdapters(adapters);
  ASSERT_EQ(joined.pairs.size(), 1u);
  EXPECT_EQ(joined.pairs[0].rank, 4);
  ASSERT_EQ(joined.constants.size(), 2u);
  EXPECT_EQ(joined.constants[0].type, joined.pairs[0].AType());
  std::vector<float> b(static_cast<size_t>(4 * kFfn));
  ASSERT_EQ(joined.constants[1].bytes.size(), b.size() * sizeof(float));
  std::memcpy(b.data(), joined.constants[1].bytes.data(), joined.constants[1].bytes.size());
  EXPECT_EQ(b[4], 3 * adapter.weights[0].b[2]);
  EXPECT_EQ(b[7], -1.5F * adapter.weights[0].b[3]);
}

}  // namespace
}  // namespace rullama
