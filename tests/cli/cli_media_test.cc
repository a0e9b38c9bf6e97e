// Pictures and sounds from outside: `encode`, `embed`, `logits --parts` and `inspect` against
// goldens of an independent implementation. Needs ../shared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace rullama::cli_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kShared = RULLAMA_SOURCE_DIR "/../shared/";
const std::string kGoldens = kShared + "goldens/tiny-media/";

std::vector<float> ReadFloats(const std::string& path) {
  const std::string bytes = ReadFile(path);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

double RelativeL2(const std::vector<float>& found, const std::vector<float>& expected) {
  EXPECT_EQ(found.size(), expected.size());
  if (found.size() != expected.size()) return 1;
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    error += std::pow(double{found[i]} - expected[i], 2);
    norm += std::pow(double{expected[i]}, 2);
  }
  return std::sqrt(error / norm);
}

// The flags of a model and its towers.
std::vector<std::string> ModelFlags(const std::string& prefix) {
  const std::string models = kShared + "models/";
  if (prefix == "ollama") return {"-m", models + "tiny-e2b-ollama-Q4_K_M.gguf"};
  return {"-m", models + (prefix == "e2b" ? "tiny-e2b-f16.gguf" : "tiny-dense-f16.gguf"),
          "--mmproj", models + "tiny-" + prefix + "-mmproj-f16.gguf"};
}

RunResult RunWith(const std::string& command, const std::string& prefix,
                  const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {command};
  for (const auto& flag : ModelFlags(prefix)) arguments.push_back(flag);
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunRullama(arguments);
}

// A medium of a golden: its file and its budget.
json PartOf(const json& golden, const std::string& name) {
  for (const json& medium : golden.at("media")) {
    if (medium.at("name") != name) continue;
    const bool image = medium.at("kind") == "image";
    const char* ending = !image ? ".wav" : name == "rotated-exif6" ? ".jpg" : ".png";
    json part = {{image ? "image" : "audio", kGoldens + name + ending}};
    if (image) part["image_tokens"] = medium.at("budget");
    return part;
  }
  ADD_FAILURE() << name;
  return {};
}

class Cases : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

// The resampled pixels may differ by a level or two from those of the goldens; that allows 2e-3 in
// the soft tokens, and sound that is resampled 8e-2.
TEST_P(Cases, LogitsOfParts) {
  const auto& [prefix, name] = GetParam();
  const json golden = json::parse(ReadFile(kGoldens + prefix + ".golden.json"));
  for (const json& item : golden.at("cases")) {
    if (item.at("name") != name) continue;
    json parts = json::array();
    bool resampled = false;
    for (const json& part : item.at("parts")) {
      if (part.is_string()) {
        parts.push_back(part);
        continue;
      }
      parts.push_back(PartOf(golden, part.at("media")));
      resampled = resampled || part.at("media") == "mix-44k-stereo";
    }
    const auto list = TemporaryFile("parts.json", parts.dump());
    const auto out = TemporaryDirectory() / "media.f32";
    const RunResult result =
        RunWith("logits", prefix, {"--parts", list.string(), "--out", out.string()});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    constexpr size_t kVocabulary = 2048;
    std::vector<float> logits = ReadFloats(out.string());
    EXPECT_EQ(logits.size(), item.at("tokens").size() * kVocabulary);
    const auto from = item.at("logits_from").get<ptrdiff_t>() * ptrdiff_t{kVocabulary};
    logits.erase(logits.begin(), logits.begin() + from);
    EXPECT_LE(RelativeL2(logits, ReadFloats(kGoldens + item.at("logits").get<std::string>())),
              resampled ? 2e-2 : 2e-3);
    return;
  }
  ADD_FAILURE() << "no case " << name;
}

INSTANTIATE_TEST_SUITE_P(Media, Cases,
                         ::testing::Values(std::pair("e2b", "both"), std::pair("e2b", "audio"),
                                           std::pair("dense", "two-images"),
                                           std::pair("unified", "both"),
                                           std::pair("ollama", "both")));

TEST(Encode, WritesSoftTokensAndSaysWhatTheyAre) {
  const auto out = TemporaryDirectory() / "soft.f32";
  const RunResult picture = RunWith("encode", "e2b",
                                    {"--image", kGoldens + "wide-palette.png", "--image-tokens",
                                     "70", "--out", out.string(), "--json"});
  ASSERT_EQ(picture.exit_code, 0) << picture.err;
  EXPECT_LE(
      RelativeL2(ReadFloats(out.string()), ReadFloats(kGoldens + "e2b.wide-palette.soft.f32")),
      2e-3);
  const json facts = json::parse(picture.out);
  EXPECT_EQ(facts.at("kind"), "image");
  EXPECT_EQ(facts.at("tokens"), 64);
  EXPECT_EQ(facts.at("width"), 256);
  EXPECT_EQ(facts.at("picture"), json({310, 84}));
  const RunResult sound =
      RunWith("encode", "e2b",
              {"--audio", kGoldens + "speech-16k-mono.wav", "--out", out.string(), "--json"});
  ASSERT_EQ(sound.exit_code, 0) << sound.err;
  EXPECT_LE(
      RelativeL2(ReadFloats(out.string()), ReadFloats(kGoldens + "e2b.speech-16k-mono.soft.f32")),
      2e-5);
  EXPECT_EQ(json::parse(sound.out).at("tokens"), 34);
}

TEST(Bench, EncodingOfPicturesIsMeasuredAlone) {
  const std::vector<std::string> flags = {"-p", "0", "-n", "0", "-r", "3", "--image-tokens"};
  const auto bench = [&flags](std::vector<std::string> more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    return RunWith("bench", "e2b", more);
  };
  const RunResult table = bench({"70,140"});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  for (const char* part : {" enc70 |", "enc140: ", " ms a picture, ", " of them for its pixels, ",
                           " pictures/s (medians)\n"}) {
    EXPECT_THAT(table.out, HasSubstr(part));
  }
  const json record = json::parse(bench({"140", "--json"}).out);
  EXPECT_EQ(record["test"], "enc140");
  EXPECT_EQ(record["tokens"], 140);
  EXPECT_EQ(record["repetitions"], 3);
  EXPECT_NEAR(record["median_s"].get<double>() * record["median_per_s"].get<double>(), 140, 1e-6);
  EXPECT_GT(record["prepare_s"].get<double>(), 0);
  EXPECT_LT(record["prepare_s"].get<double>(), record["median_s"].get<double>());
  EXPECT_GT(record["flops_per_token"].get<double>(), 1e5);
}

TEST(Encode, WrongInputIsAnError) {
  const std::string out = (TemporaryDirectory() / "none.f32").string();
  const std::string picture = kGoldens + "tiny-rgba.png";
  EXPECT_THAT(RunWith("encode", "e2b", {"--out", out}).err,
              HasSubstr("neither --image nor --audio"));
  EXPECT_THAT(
      RunWith("encode", "dense", {"--audio", kGoldens + "speech-16k-mono.wav", "--out", out}).err,
      HasSubstr("[media.unsupported]"));
  EXPECT_THAT(RunWith("encode", "e2b", {"--audio", picture, "--out", out}).err,
              HasSubstr("[media.format]"));
  EXPECT_FALSE(std::filesystem::exists(out));
  for (const char* parts :
       {"[]", "{}", "[7]", R"([{"video": "x"}])", R"([{"image_tokens": 70}])"}) {
    const auto list = TemporaryFile("wrong_parts.json", parts);
    const RunResult result = RunWith("logits", "e2b", {"--parts", list.string(), "--out", out});
    EXPECT_EQ(result.exit_code, 2) << parts;
    EXPECT_THAT(result.err, HasSubstr("[input.parts]")) << parts;
  }
}

// Records of `embed` by an embedding model with towers.
std::vector<json> Embedded(const std::vector<std::string>& more, const std::string& input = "") {
  const std::string model = kShared + "models/family/tiny-embeddinggemma2-";
  std::vector<std::string> arguments = {"embed", "-m", model + "bf16.gguf", "--mmproj",
                                        model + "mmproj-bf16.gguf"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const RunResult result = RunRullama(arguments, {.input = input});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<json> records;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) records.push_back(json::parse(line));
  return records;
}

TEST(Embed, PicturesAndSoundsComeBeforeTheText) {
  const std::string goldens = kShared + "goldens/embeddinggemma2/";
  const std::string picture = goldens + "wide.png", sound = goldens + "speech.wav";
  const json golden = json::parse(ReadFile(goldens + "golden.json"));
  const auto expect_case = [&golden](const std::string& name, const json& record) {
    const auto found =
        std::ranges::find(golden["cases"], json(name), [](const json& one) { return one["name"]; });
    ASSERT_NE(found, golden["cases"].end());
    EXPECT_EQ(record.at("tokens"), found->at("ids").size()) << name;
    const std::vector<float> values = record.at("embedding"), expected = found->at("embedding");
    EXPECT_LE(RelativeL2(values, expected), 2e-3) << name;
  };
  const char* kText = "Prince Andrew on a horse.";
  const auto both =
      Embedded({"--task", "document", "--image-tokens", "70", "--image", picture, kText});
  ASSERT_EQ(both.size(), 1u);
  expect_case("image-and-text", both[0]);

  const std::string lines = json{{"images", {picture}}}.dump() + "\n" + json(kText).dump() + "\n" +
                            json{{"audio", {sound}}}.dump() + "\n" +
                            json{{"images", {picture}}, {"text", kText}}.dump();
  const auto records = Embedded({"--image-tokens", "70", "--jsonl"}, lines);
  ASSERT_EQ(records.size(), 4u);
  expect_case("image", records[0]);
  expect_case("audio", records[2]);
  EXPECT_EQ(records[1].at("embedding"), Embedded({kText})[0].at("embedding"));
  EXPECT_EQ(
      Embedded({"--task", "document", "--image-tokens", "70", "--jsonl"}, lines)[3].at("embedding"),
      both[0].at("embedding"));
  EXPECT_EQ(records[3].at("index"), 3);
  // However small it is, a picture has the budget of the published processor.
  const auto photo = Embedded({"--image", goldens + "photo.png"});
  ASSERT_EQ(photo.size(), 1u);
  expect_case("image-280", photo[0]);
  const auto cut = Embedded({"--image", goldens + "photo.png", "--dimensions", "16"});
  EXPECT_EQ(cut[0].at("embedding").size(), 16u);
}

TEST(Embed, WrongMediaAreErrors) {
  const std::string model = kShared + "models/family/tiny-embeddinggemma2-bf16.gguf";
  const std::string picture = kShared + "goldens/embeddinggemma2/wide.png";
  const auto error_of = [&](const std::vector<std::string>& more, const std::string& input = "") {
    std::vector<std::string> arguments = {"embed", "-m", model};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult result = RunRullama(arguments, {.input = input});
    EXPECT_NE(result.exit_code, 0);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_THAT(error_of({"--image", picture, "a", "b"}), HasSubstr("go with one TEXT"));
  EXPECT_THAT(error_of({"--image", picture}), HasSubstr("[media.unsupported]")) << "no towers";
  EXPECT_THAT(error_of({"--image", picture, "--task", "chat"}), HasSubstr("task 'chat'"));
  EXPECT_THAT(error_of({"--jsonl"}, R"({"text": "a", "images": "a.png"})"),
              HasSubstr("line 1 has \"images\" that is not a list of files"));
  EXPECT_THAT(error_of({"--image", picture, "\xff"}), HasSubstr("[text.utf8]"));
  EXPECT_THAT(error_of({"--image", picture, "-"}), HasSubstr("- means stdin"));
  EXPECT_THAT(error_of({"-", "a"}), HasSubstr("- means stdin"));
  EXPECT_THAT(error_of({"-f", "-", "-"}), HasSubstr("- means stdin"));
  const auto text = TemporaryFile("text.txt", "a text");
  EXPECT_THAT(error_of({"-f", text.string(), "--out", text.string()}), HasSubstr("[io.same_file]"));
  const auto copy = TemporaryFile("copy.png", ReadFile(picture));
  EXPECT_THAT(error_of({"--jsonl", "--out", copy.string()},
                       "\"a\"\n" + json{{"images", {copy.string()}}}.dump()),
              HasSubstr("[io.same_file]"));
}

TEST(Inspect, ShowsTowersAndWhatMediaCost) {
  const std::string models = kShared + "models/";
  const RunResult result =
      RunRullama({"inspect", models + "tiny-e2b-ollama-Q4_K_M.gguf", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json towers = json::parse(result.out).at("towers");
  EXPECT_EQ(towers.at("picture").at("projector"), "gemma4v");
  EXPECT_EQ(towers.at("picture").at("layers"), 3);
  EXPECT_EQ(towers.at("picture").at("costs").at(4).at("tokens"), 1120);
  EXPECT_GT(towers.at("picture").at("costs").at(4).at("work_bytes"),
            towers.at("picture").at("costs").at(0).at("work_bytes"));
  EXPECT_EQ(towers.at("sound").at("costs").at(1).at("tokens"), 750);
  const RunResult alone = RunRullama({"inspect", models + "tiny-unified-mmproj-f16.gguf"});
  EXPECT_THAT(alone.out, HasSubstr("give the text model with -m and this file with --mmproj"));
  EXPECT_THAT(alone.out, HasSubstr("image tower: gemma4uv, a projection alone, width 96"));
  const RunResult text = RunRullama({"inspect", models + "tiny-e2b-f16.gguf", "--json"});
  EXPECT_TRUE(json::parse(text.out).at("towers").is_null());
}

}  // namespace
}  // namespace rullama::cli_test
