// Files that are not models, and commands that read files without running a model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/tensor_type_test_util.h"

namespace rullama::cli_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// One token tells whether a model runs.
RunResult RunModel(const std::string& path) {
  return RunRullama({"-m", path, "--raw", "-p", "x", "-n", "1"});
}

TEST(Files, WhatIsNoModelFileIsNamed) {
  const struct {
    std::string content;
    std::string says;
  } kCases[] = {
      {"", "[gguf."},
      {"GGUF", "[gguf.too_short]"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git-lfs"},
      {"<!DOCTYPE html><html><head><title>Sign in</title></head></html>", "HTML"},
      {std::string("PK\x03\x04") + std::string(100, 'x'), "ZIP"},
  };
  for (const auto& bad : kCases) {
    const RunResult result = RunModel(TemporaryFile("bad.gguf", bad.content).string());
    EXPECT_EQ(result.exit_code, 4) << result.err;
    EXPECT_THAT(result.err, HasSubstr(bad.says));
    EXPECT_THAT(result.err, HasSubstr("bad.gguf"));
    EXPECT_THAT(result.out, IsEmpty());
  }
}

TEST(Files, NamesMayHaveBlanksAndLettersOfAnyLanguage) {
  const std::filesystem::path folder = TemporaryDirectory() / "Модели [ü] (1)";
  std::filesystem::create_directories(folder);
  const std::string path = folder / "— война и мир.gguf";
  std::filesystem::copy_file(TinyModel(), path);
  const RunResult shown = RunRullama({"show", path});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("война и мир"));
  const RunResult run = RunRullama({"-m", path, "--greedy", "-p", "The", "-n", "2"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, Not(IsEmpty()));
}

// Some conversions of Gemma 4 lack it; its form is known without.
TEST(Files, AFileOfGemma4WithoutAChatTemplateChats) {
  std::string model = ReadFile(TinyModel());
  const std::string key = "tokenizer.chat_template";
  const size_t at = model.find(key);
  ASSERT_NE(at, std::string::npos);
  model.replace(at, key.size(), "tokenizer.chat_templatX");
  const std::string path = TemporaryFile("template.gguf", model).string();
  const std::vector<std::string> rest = {"--greedy", "-p", "Who is Andrew?", "-n", "8"};
  std::vector<std::string> with = {"-m", TinyModel()}, without = {"-m", path};
  with.insert(with.end(), rest.begin(), rest.end());
  without.insert(without.end(), rest.begin(), rest.end());
  const RunResult result = RunRullama(without);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("base model")));
  EXPECT_EQ(result.out, RunRullama(with).out);
}

// Google's templates of Gemma 4 begin with a comment that has the day, from that of 2026-07-09 on.
TEST(Files, ShowTellsWhichChatTemplateAFileHas) {
  const std::string model = ReadFile(TinyModel());
  const std::string key = "tokenizer.chat_template";
  const size_t at = model.find(key);
  ASSERT_NE(at, std::string::npos);
  const size_t value = at + key.size() + 12;  // after the type and the length of the text
  const auto shown = [&](size_t place, std::string_view bytes) {
    std::string changed = model;
    changed.replace(place, bytes.size(), bytes);
    return RunRullama({"show", TemporaryFile("template.gguf", changed).string()}).out;
  };
  EXPECT_THAT(shown(0, ""),
              HasSubstr("chat template  without a date, as before that of 2026-07-09, "
                        "which rullama renders\n"));
  EXPECT_THAT(shown(value, "{#\n Published: 2026-07-09\n#}"),
              HasSubstr("chat template  of 2026-07-09, which rullama renders\n"));
  EXPECT_THAT(shown(value, "{# Published: 2026-05-02 #}"),
              HasSubstr("chat template  of 2026-05-02, older than that of 2026-07-09, "));
  EXPECT_THAT(shown(value, "{# Published: 2027-01-01 #}"), HasSubstr("of 2027-01-01, newer than "));
  EXPECT_THAT(shown(value, "{# Published: in summer #}"), HasSubstr("without a date"));
  EXPECT_THAT(shown(at, "tokenizer.chat_templatX"),
              HasSubstr("chat template  none; rullama renders that of 2026-07-09\n"));
}

TEST(Files, MissingFilesAndDirectoriesAreInputErrors) {
  EXPECT_EQ(RunModel("/no/such/model.gguf").exit_code, 6);
  const RunResult directory = RunModel(TemporaryDirectory().string());
  EXPECT_THAT(directory.exit_code, ::testing::AnyOf(4, 6)) << directory.err;
  EXPECT_THAT(directory.err, HasSubstr("directory"));
}

TEST(Files, TruncatedModelIsRefused) {
  const std::string whole = ReadFile(TinyModel());
  for (const size_t size : {size_t{30}, size_t{5000}, whole.size() / 2, whole.size() - 1}) {
    const RunResult result = RunModel(TemporaryFile("cut.gguf", whole.substr(0, size)).string());
    EXPECT_EQ(result.exit_code, 4) << size;
    EXPECT_THAT(result.err, HasSubstr("[gguf.")) << size;
  }
}

TEST(Files, AnotherArchitectureIsRefused) {
  std::string model = ReadFile(TinyModel());
  const std::string key = "general.architecture";
  const size_t at = model.find("gemma4", model.find(key) + key.size());
  ASSERT_NE(at, std::string::npos);
  model.replace(at, 6, "llamaX");
  const RunResult result = RunModel(TemporaryFile("arch.gguf", model).string());
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, HasSubstr("[model.arch]"));
  EXPECT_THAT(result.err, HasSubstr("llamaX"));
}

TEST(Files, ArchitectureOfTheConfigurationIsChecked) {
  const auto config = TemporaryFile("layers.yaml", "architecture:\n  layers: 9\n");
  const RunResult result =
      RunRullama({"--config", config.string(), "-m", TinyModel(), "--raw", "-p", "x"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("[model.architecture_mismatch]"));
}

TEST(Files, ModelWithoutChatMarkersNeedsRaw) {
  std::string model = ReadFile(TinyModel());
  const std::string marker = "<|turn>";
  for (size_t at = 0; (at = model.find(marker, at)) != std::string::npos;) {
    model.replace(at, marker.size(), "<|burn>");
  }
  const std::string path = TemporaryFile("no_markers.gguf", model).string();
  EXPECT_EQ(RunModel(path).exit_code, 0);
  const RunResult result = RunRullama({"-m", path, "-p", "x"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, HasSubstr("[chat.markers_missing]"));
}

TEST(Files, InspectShowsTensorsAndMemory) {
  const RunResult text = RunRullama({"inspect", TinyModel()});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("blk.0.attn_q.weight"));
  const std::string first = text.out.substr(0, text.out.find('\n'));
  EXPECT_THAT(first, HasSubstr("tiny-e2b-Q4_K_M.gguf: gemma4, Q4_K_M, "));
  EXPECT_THAT(first, HasSubstr("context length 2048"));
  EXPECT_THAT(text.out, HasSubstr("rullama can run this: yes\n"));
  const RunResult result = RunRullama({"inspect", TinyModel(), "--json", "-c", "1024"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json file = json::parse(result.out);
  EXPECT_EQ(file["metadata"]["general.architecture"], "gemma4");
  EXPECT_EQ(file["dialect"], "llama.cpp");
  EXPECT_EQ(file["memory"]["context"], 1024);
  const json& by_type = file["memory"]["kv_cache_bytes_by_type"];
  EXPECT_EQ(file["memory"]["kv_cache_bytes"], by_type["f16"]);
  EXPECT_EQ(by_type["f32"].get<uint64_t>(), 2 * by_type["f16"].get<uint64_t>());
  EXPECT_EQ(by_type["q8_0"].get<uint64_t>(), by_type["f16"].get<uint64_t>() * 34 / 64);
  EXPECT_EQ(by_type["q4_0"].get<uint64_t>(), by_type["f16"].get<uint64_t>() * 18 / 64);
  uint64_t bytes = 0;
  for (const json& tensor : file["tensors"]) bytes += tensor["bytes"].get<uint64_t>();
  EXPECT_EQ(bytes, file["memory"]["weights_bytes"].get<uint64_t>());
}

TEST(Files, InspectSaysWhyAModelCannotBeRun) {
  std::string model = ReadFile(TinyModel());
  const std::string key = "general.architecture";
  model.replace(model.find("gemma4", model.find(key) + key.size()), 6, "llamaX");
  const std::string path = TemporaryFile("other_arch.gguf", model).string();
  const RunResult text = RunRullama({"inspect", path});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("rullama can run this: no: "));
  EXPECT_THAT(text.out, HasSubstr("[model.arch]"));
  const json file = json::parse(RunRullama({"inspect", path, "--json"}).out);
  EXPECT_EQ(file["runnable"]["yes"], false);
  EXPECT_EQ(file["architecture"], "llamaX");
  EXPECT_EQ(file["quantization"], "Q4_K_M");
}

// The types of weights that no backend reads, by their numbers in files.
const std::pair<uint32_t, std::string> kUnreadTypes[] = {{41, "q1_0"}, {42, "q2_0"}};

// What does not run is not promised, and no server begins to listen for it.
TEST(Files, ModelsThatTheBackendCannotReadAreRefusedAtOnce) {
  const std::string model = ReadFile(TinyModel());
  for (const auto& [number, name] : kUnreadTypes) {
    const std::string path =
        TemporaryFile("type.gguf", WithTensorType(model, "blk.0.ffn_up.weight", number)).string();
    const RunResult shown = RunRullama({"show", path});
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_THAT(shown.out, HasSubstr("rullama run    no: "));
    EXPECT_THAT(shown.out, HasSubstr("weight type " + name));
    const json file = json::parse(RunRullama({"inspect", path, "--json"}).out);
    EXPECT_EQ(file["runnable"]["yes"], false) << name;
    EXPECT_EQ(file["runnable"]["code"], "placement.refused") << name;
    const auto reason = file["runnable"]["reason"].get<std::string>();
    EXPECT_THAT(reason, HasSubstr("no backend of this version decodes " + name));
  }
  const std::string path =
      TemporaryFile("type.gguf", WithTensorType(model, "blk.0.ffn_up.weight", 41)).string();
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"run", "-m", path, "-p", "x"},
        {"serve", "-m", path, "--port", "0"}}) {
    const RunResult result = RunRullama(command);
    EXPECT_EQ(result.exit_code, 3) << result.err;
    EXPECT_THAT(result.err, HasSubstr("[placement.refused"));
    EXPECT_THAT(result.err, Not(HasSubstr("listening")));
  }
}

// The types that are decoded, but not written by `quantize`.
TEST(Files, ModelsOfEveryTypeAreShownAsRunning) {
  const std::string model = ReadFile(TinyModel());
  for (const uint32_t type : {16, 17, 18, 19, 20, 21, 22, 23, 29, 34, 35, 39, 40}) {
    const std::string path =
        TemporaryFile("type.gguf", WithTensorType(model, "blk.0.ffn_up.weight", type)).string();
    const RunResult shown = RunRullama({"show", path});
    EXPECT_THAT(shown.out, HasSubstr("rullama run    yes\n")) << type << shown.err;
  }
  const std::string path =
      TemporaryFile("type.gguf", WithTensorType(model, "blk.0.ffn_up.weight", 40)).string();
  const RunResult none = RunRullama({"show", path, "--backend", "nowhere"});
  EXPECT_THAT(none.out, HasSubstr("rullama run    no: "));
}

TEST(Files, InspectNamesAnOllamaModelAsTheUserDoes) {
  namespace fs = std::filesystem;
  const fs::path store = TemporaryDirectory() / "inspect_store";
  const std::string digest(64, 'a');
  const fs::path manifest = store / "manifests/registry.ollama.ai/library/gemma4/tiny";
  fs::create_directories(store / "blobs");
  fs::create_directories(manifest.parent_path());
  fs::copy_file(TinyModel(), store / "blobs" / ("sha256-" + digest));
  std::ofstream(store / "blobs" / ("sha256-" + std::string(64, 'c')))
      << R"({"model_format":"gguf"})";
  const json layer = {{"mediaType", "application/vnd.ollama.image.model"},
                      {"digest", "sha256:" + digest},
                      {"size", fs::file_size(TinyModel())}};
  const json config = {{"digest", "sha256:" + std::string(64, 'c')}, {"size", 1}};
  std::ofstream(manifest) << json{{"config", config}, {"layers", json::array({layer})}};
  RunOptions options;
  options.environment = {"OLLAMA_MODELS=" + store.string()};
  const RunResult result = RunRullama({"inspect", "gemma4:tiny"}, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::StartsWith("gemma4:tiny: gemma4, Q4_K_M, "));
  fs::remove_all(store);
}

TEST(Files, TextSurvivesTokenizeAndDetokenize) {
  const std::string text = "The prince said: \"où?\"\n\n  42 \xF0\x9F\x8D\x8E";
  const RunResult ids = RunRullama({"tokenize", "-m", TinyModel(), "--no-bos", "-p", text});
  ASSERT_EQ(ids.exit_code, 0) << ids.err;
  ASSERT_TRUE(json::parse(ids.out).is_array());
  RunOptions options;
  options.input = ids.out;
  const RunResult back = RunRullama({"detokenize", "-m", TinyModel()}, options);
  EXPECT_EQ(back.exit_code, 0) << back.err;
  EXPECT_EQ(back.out, text);
}

TEST(Files, TokenizeAddsOneBos) {
  const json with = json::parse(RunRullama({"tokenize", "-m", TinyModel(), "-p", "a"}).out);
  const json without =
      json::parse(RunRullama({"tokenize", "-m", TinyModel(), "-p", "a", "--no-bos"}).out);
  EXPECT_EQ(with.size(), without.size() + 1);
}

TEST(Files, JsonLinesGoBothWays) {
  RunOptions options;
  options.input = "{\"text\": \"a b\"}\n\n{\"text\": \"\\u00e9\"}\n";
  const RunResult ids = RunRullama({"tokenize", "-m", TinyModel(), "--no-bos", "--jsonl"}, options);
  ASSERT_EQ(ids.exit_code, 0) << ids.err;
  options.input = ids.out;
  const RunResult back = RunRullama({"detokenize", "-m", TinyModel(), "--jsonl"}, options);
  EXPECT_EQ(back.out, "{\"text\":\"a b\"}\n{\"text\":\"\xC3\xA9\"}\n");
  options.input = "{\"text\": \"\\ud800\"}\n";
  EXPECT_EQ(RunRullama({"tokenize", "-m", TinyModel(), "--jsonl"}, options).exit_code, 2);
  options.input = "[1,-2]\n";
  EXPECT_EQ(RunRullama({"detokenize", "-m", TinyModel(), "--jsonl"}, options).exit_code, 2);
}

TEST(Files, BackendsAreListed) {
  const RunOptions options = AskingDrivers();
  const RunResult result = RunRullama({"backends", "--json"}, options);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::vector<std::string> loaded;
  const json listing = json::parse(result.out);
  for (const json& entry : listing["backends"]) {
    if (entry["state"] == "loaded" && !entry["devices"].empty()) loaded.push_back(entry["name"]);
  }
  EXPECT_THAT(loaded, ::testing::IsSupersetOf({"cpu", "reference"}));
}

TEST(Files, BackendsFailsForAPluginThatTheCommandLineNames) {
  const RunOptions options = AskingDrivers();
  const auto broken = TemporaryFile("librullama_backend_broken.so", "no shared object");
  for (const std::string& path : {std::string("/no/such/plugin.so"), broken.string()}) {
    const RunResult result = RunRullama({"backends", "--plugin", path}, options);
    EXPECT_EQ(result.exit_code, 3) << path << result.err;
    EXPECT_THAT(result.out, HasSubstr("refused")) << path;
    EXPECT_THAT(result.out, HasSubstr("cpu: loaded")) << path;
  }
  EXPECT_EQ(RunRullama({"backends", "--plugin", broken.string(), "--json"}, options).exit_code, 3);
}

TEST(Files, BackendsShowsNoMemoryThatIsUnknown) {
  const RunResult result = RunRullama({"backends"}, AskingDrivers());
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr(" 0.0 GiB of")));
  EXPECT_THAT(result.out, HasSubstr("kernels for "));  // the processor's best
}

TEST(Files, GraphIsPrintedBeforeAndAfterThePasses) {
  const RunResult before = RunRullama({"graph", "--before", "-m", TinyModel()});
  EXPECT_EQ(before.exit_code, 0) << before.err;
  EXPECT_THAT(before.out, HasSubstr("blk.0.attn.q"));
  const RunResult after =
      RunRullama({"graph", "-m", TinyModel(), "--rows", "8", "--demand", "state"});
  EXPECT_EQ(after.exit_code, 0) << after.err;
  EXPECT_THAT(after.out, HasSubstr("# segment 0 on cpu"));
  EXPECT_THAT(RunRullama({"graph", "--before", "--dot", "-m", TinyModel()}).out,
              HasSubstr("digraph"));
}

TEST(Files, SomeLayersOfAGraphAreDrawn) {
  const RunResult two =
      RunRullama({"graph", "--before", "--dot", "--layers", "0-1", "-m", TinyModel()});
  EXPECT_EQ(two.exit_code, 0) << two.err;
  EXPECT_THAT(two.out, HasSubstr("subgraph cluster_0 {"));
  EXPECT_THAT(two.out, HasSubstr("subgraph cluster_1 {"));
  EXPECT_THAT(two.out, ::testing::Not(HasSubstr("cluster_2")));
  const RunResult one = RunRullama({"graph", "--dot", "--layers", "2", "-m", TinyModel()});
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("cluster_2"));
  for (const char* wrong : {"1-0", "99", "a", "0-", "-1"}) {
    const RunResult result =
        RunRullama({"graph", "--before", "--dot", "--layers", wrong, "-m", TinyModel()});
    EXPECT_EQ(result.exit_code, 2) << wrong << result.out;
  }
  EXPECT_EQ(RunRullama({"graph", "--before", "--layers", "0", "-m", TinyModel()}).exit_code, 2);
}

TEST(Graph, DrawingsFoldLayers) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir());
  const RunResult result =
      RunRullama({"graph", "-m", TinyModel(), "--svg", (folder / "graph.svg").string(), "--html",
                  (folder / "graph.html").string(), "--layers", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  const std::string svg = ReadFile(folder / "graph.svg");
  EXPECT_THAT(svg, HasSubstr(">block 7<"));
  EXPECT_THAT(svg, HasSubstr(">attn.residual<")) << "layer 2 is open";
  const std::string html = ReadFile(folder / "graph.html");
  EXPECT_THAT(html, HasSubstr("<summary>Block 7: "));
}

// A store of Ollama with the tiny model and a system prompt. Digests are made up.
std::filesystem::path StoreWithSystemPrompt(const std::string& system) {
  namespace fs = std::filesystem;
  const fs::path root = TemporaryDirectory() / "store";
  const fs::path manifest = root / "manifests/registry.ollama.ai/library/gemma4/tiny";
  fs::create_directories(root / "blobs");
  fs::create_directories(manifest.parent_path());
  const auto add = [&root](char digit, const std::string& kind, const std::string& content) {
    const std::string hex(64, digit);
    std::ofstream(root / "blobs" / ("sha256-" + hex), std::ios::binary) << content;
    return json{{"mediaType", "application/vnd.ollama.image." + kind},
                {"digest", "sha256:" + hex},
                {"size", content.size()}};
  };
  const json image = {
      {"config", add('c', "config", R"({"model_format":"gguf"})")},
      {"layers", {add('a', "model", ReadFile(TinyModel())), add('b', "system", system)}}};
  std::ofstream(manifest) << image.dump();
  return root;
}

TEST(Files, SystemPromptOfAnOllamaModelIsUsedUnlessAnotherIsGiven) {
  const std::string pirate = "You are a pirate.";
  RunOptions options;
  options.environment = {"OLLAMA_MODELS=" + StoreWithSystemPrompt(pirate).string()};
  const auto prompt_tokens = [&options](std::vector<std::string> more) {
    more.insert(more.end(), {"-p", "Hi", "-n", "0", "--json"});
    const RunResult result = RunRullama(more, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out)["prompt_tokens"].get<int64_t>();
  };
  const int64_t none = prompt_tokens({"-m", TinyModel()});
  const int64_t with_pirate = prompt_tokens({"-m", TinyModel(), "--system", pirate});
  ASSERT_GT(with_pirate, none);
  EXPECT_EQ(prompt_tokens({"-m", "gemma4:tiny"}), with_pirate);
  EXPECT_EQ(prompt_tokens({"-m", "gemma4:tiny", "--system", "Be brief."}),
            prompt_tokens({"-m", TinyModel(), "--system", "Be brief."}));
  EXPECT_EQ(prompt_tokens({"-m", "gemma4:tiny", "--system", ""}), none);
  const std::string config =
      TemporaryFile("system.yaml", "generation: {system: Be brief.}\n").string();
  EXPECT_EQ(prompt_tokens({"-m", "gemma4:tiny", "--config", config}),
            prompt_tokens({"-m", TinyModel(), "--system", "Be brief."}));
  EXPECT_THAT(RunRullama({"-m", "gemma4:tiny", "-p", "Hi", "-n", "0", "-v"}, options).err,
              HasSubstr("system prompt: 17 bytes, from the model in Ollama's store"));
}

}  // namespace
}  // namespace rullama::cli_test
