// The text side of pictures and sounds: prompts whose soft tokens are given, against logits and
// greedy continuations of transformers. Needs ../shared.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/runtime/output_names.h"
#include "core/runtime/soft_rows.h"
#include "engine/drafts/cut_points.h"
#include "engine/model_program.h"
#include "engine/scheduling/batch_session.h"
#include "models/gemma4/gemma4_model.h"
#include "tests/golden/session_support.h"

namespace rullama {
namespace {

using golden::Backend;
using golden::Loaded;

const std::string kShared = RULLAMA_SOURCE_DIR "/../shared";
const std::string kGoldens = kShared + "/goldens/tiny-media/";
constexpr int64_t kCapacity = 512;

// A prompt of one of the model pairs that the goldens have.
struct Case {
  std::string pair;
  std::string name;
};

std::vector<float> ReadFloats(const std::string& name) {
  std::ifstream file(kGoldens + name, std::ios::binary | std::ios::ate);
  std::vector<float> values(static_cast<size_t>(file.tellg()) / sizeof(float));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

// The prompt of a case with its soft tokens, and what comes of it.
struct Prompt {
  std::string model;  // the text file
  std::vector<int32_t> tokens;
  std::vector<int32_t> greedy;
  std::vector<double> margins;
  size_t logits_from = 0;
  std::vector<float> logits;
  std::vector<std::vector<float>> values = {};
  std::vector<SoftRows> media = {};

  [[nodiscard]] int64_t length() const { return std::ssize(tokens); }
};

Prompt ReadPrompt(const Case& which) {
  std::ifstream file(kGoldens + which.pair + ".golden.json");
  const auto golden = nlohmann::json::parse(file);
  const auto named = [](const nlohmann::json& list, const std::string& name) {
    return *std::ranges::find_if(list, [&](const auto& item) { return item.at("name") == name; });
  };
  const nlohmann::json item = named(golden.at("cases"), which.name);
  Prompt prompt{.model = golden.at("model").get<std::string>(),
                .tokens = item.at("tokens"),
                .greedy = item.at("greedy"),
                .margins = item.at("margins"),
                .logits_from = item.at("logits_from"),
                .logits = ReadFloats(item.at("logits"))};
  const bool whole_pictures = which.pair == "dense" || which.pair == "unified";
  const auto placeholder_of = [&](const nlohmann::json& medium) {
    return golden.at("token_ids")
        .at(medium.at("kind") == "image" ? "image_token_id" : "audio_token_id");
  };
  for (const auto& part : item.at("parts")) {
    if (part.is_string()) continue;
    const nlohmann::json medium = named(golden.at("media"), part.at("media"));
    const int32_t placeholder = placeholder_of(medium);
    const int64_t from = prompt.media.empty() ? 0 : prompt.media.back().end();
    const auto first = std::find(prompt.tokens.begin() + from, prompt.tokens.end(), placeholder);
    prompt.values.push_back(ReadFloats(medium.at("soft")));
    prompt.media.push_back({.first = first - prompt.tokens.begin(),
                            .count = medium.at("tokens"),
                            .values = {},
                            .see_each_other = whole_pictures && medium.at("kind") == "image"});
    std::fill_n(first, prompt.media.back().count, 0);
  }
  for (size_t i = 0; i < prompt.media.size(); ++i) prompt.media[i].values = prompt.values[i];
  return prompt;
}

// The model of a prompt with a graph for text and one for media; both give all logits.
class Runner {
 public:
  Runner(const Backend& backend, const Prompt& prompt)
      : loaded_(golden::Open(backend, kShared + "/models/" + prompt.model)),
        media_(prompt.media),
        inputs_(loaded_->config.width, loaded_->config.sees_whole_pictures()) {
    auto program = Must(BuildModelProgram(Gemma4Model(loaded_->config, loaded_->tensors),
                                          {.outputs = GraphOutputs::kAllLogits,
                                           .capacity = kCapacity,
                                           .kv_dtype = DType::kF32,
                                           .limits = {.max_t = 64},
                                           .media_rows = kCapacity}));
    graphs_ = program.handles;
    loaded_->AddConstants(std::move(program.constants));
    loaded_->session =
        Must(Session::Create(std::move(program.graphs), *loaded_->weights, loaded_->Options(64)));
  }

  // Appends the logits of the next tokens, which have soft tokens among them or have none.
  void Step(std::span<const int32_t> tokens, bool media) {
    Session& session = *loaded_->session;
    const int32_t past = session.past(0);
    if (media) {
      ASSERT_TRUE(inputs_.Set(session, media_, past, std::ssize(tokens)));
    }
    const GraphHandle graph = media ? *graphs_.media : graphs_.read;
    const Status run =
        session.Run(StepRows::Consecutive(tokens, past, /*slot=*/0, DemandMode::kAllRows, graph));
    ASSERT_TRUE(run) << run.error().ToString();
    const size_t held = logits_.size();
    logits_.resize(held + tokens.size() * vocabulary());
    const auto rows = std::as_writable_bytes(std::span(logits_).subspan(held));
    ASSERT_TRUE(session.ReadOutput(output_names::kLogits, rows));
  }
  [[nodiscard]] size_t vocabulary() const {
    return static_cast<size_t>(loaded_->config.vocabulary);
  }
  // The logits of all rows so far.
  [[nodiscard]] std::span<const float> logits() const { return logits_; }

 private:
  ProgramGraphs graphs_;
  std::unique_ptr<Loaded> loaded_;
  std::span<const SoftRows> media_;
  SoftRowInputs inputs_;
  std::vector<float> logits_;
};

double ErrorOf(const Runner& runner, const Prompt& prompt) {
  const size_t from = prompt.logits_from * runner.vocabulary();
  return golden::RelativeL2(runner.logits().subspan(from, prompt.logits.size()), prompt.logits);
}

void ExpectGreedy(const Runner& runner, const Prompt& prompt) {
  int judged = 0;
  for (size_t i = 0; i < prompt.greedy.size(); ++i) {
    // Below the margin two honest implementations may differ.
    if (prompt.margins[i] <= 0.05) continue;
    ++judged;
    const auto row = runner.logits().subspan((prompt.tokens.size() - 1 + i) * runner.vocabulary(),
                                             runner.vocabulary());
    EXPECT_EQ(std::ranges::max_element(row) - row.begin(), prompt.greedy[i]) << "token " << i;
  }
  EXPECT_GE(judged, 8);
}

// Relative L2 of logits whose soft tokens and cache are f32. The cpu backend rounds activations to
// 16 bits where weights are quantised.
double Bound(const Case& which, const Backend& backend) {
  return which.pair == "ollama" && backend.name == "cpu" ? 1e-4 : 1e-5;
}

class GoldenMedia : public ::testing::TestWithParam<std::tuple<Backend, Case>> {};

// Steps as the engine makes them: each ends after the last soft token of a picture or sound, and
// the rest is text.
TEST_P(GoldenMedia, LogitsAndGreedyContinuation) {
  const auto& [backend, which] = GetParam();
  const Prompt prompt = ReadPrompt(which);
  ASSERT_FALSE(prompt.media.empty());
  Runner runner(backend, prompt);
  size_t done = 0;
  for (const SoftRows& medium : prompt.media) {
    const auto end = static_cast<size_t>(medium.end());
    runner.Step(std::span(prompt.tokens).subspan(done, end - done), /*media=*/true);
    done = end;
  }
  std::vector<int32_t> rest(prompt.tokens.begin() + static_cast<ptrdiff_t>(done),
                            prompt.tokens.end());
  rest.insert(rest.end(), prompt.greedy.begin(), prompt.greedy.end());
  runner.Step(rest, /*media=*/false);
  if (HasFatalFailure()) return;
  const double error = ErrorOf(runner, prompt);
  std::printf("%s %s %s: relative L2 %.3g\n", backend.name.c_str(), which.pair.c_str(),
              which.name.c_str(), error);
  EXPECT_LE(error, Bound(which, backend));
  ExpectGreedy(runner, prompt);
}

class GoldenMediaSteps : public GoldenMedia {};

TEST_P(GoldenMediaSteps, OneStepGivesTheSame) {
  const auto& [backend, which] = GetParam();
  const Prompt prompt = ReadPrompt(which);
  Runner runner(backend, prompt);
  runner.Step(prompt.tokens, /*media=*/true);
  if (HasFatalFailure()) return;
  EXPECT_LE(ErrorOf(runner, prompt), Bound(which, backend));
}

// Two prompts, each as the engine reads it: in chunks of at most 64 rows, pictures whole.
class MediaBatch {
 public:
  struct Reader {
    int32_t slot = 0;
    Prompt prompt;
    std::vector<int64_t> cuts = CutPoints(prompt.length(), kChunk, {}, prompt.media);
    int64_t read = 0;
    std::vector<RowResult> drawn = {};
    [[nodiscard]] bool done() const { return read == prompt.length(); }
  };
  static constexpr int64_t kChunk = 64;
  static constexpr size_t kDrawn = 6;

  explicit MediaBatch(const std::string& model)
      : loaded_(golden::Open({"cpu", ""}, kShared + "/models/" + model)) {
    const StepLimits limits = BatchLimits(/*slots=*/2, kChunk);
    auto program = Must(BuildModelProgram(Gemma4Model(loaded_->config, loaded_->tensors),
                                          {.outputs = GraphOutputs::kBatch,
                                           .slots = 2,
                                           .capacity = kCapacity,
                                           .kv_dtype = DType::kF32,
                                           .limits = limits,
                                           .media_rows = kCapacity}));
    loaded_->AddConstants(std::move(program.constants));
    SessionOptions options = loaded_->Options(kChunk);
    options.limits = limits;
    loaded_->session = Must(Session::Create(std::move(program.graphs), *loaded_->weights, options));
    batch_.emplace(*loaded_->session, program.handles, loaded_->config.vocabulary);
  }

  // Reads all prompts in turn, and then draws tokens for all of them in the same steps.
  void Run(std::vector<Reader>& readers) {
    while (!std::ranges::all_of(readers, &Reader::done)) {
      for (Reader& reader : readers) {
        if (!reader.done()) ReadChunk(reader);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
    for (size_t i = 1; i < kDrawn; ++i) {
      std::vector<RowRequest> rows;
      for (const Reader& reader : readers) {
        rows.push_back(Request(reader));
        rows.back().token = *reader.drawn.back().token;
      }
      const auto results = batch_->Decode(rows);
      ASSERT_TRUE(results) << results.error().ToString();
      for (size_t r = 0; r < readers.size(); ++r) readers[r].drawn.push_back((*results)[r]);
    }
  }

 private:
  static RowRequest Request(const Reader& reader) {
    return {.slot = reader.slot, .sampling = {.temperature = 0}, .top_logprobs = 5};
  }
  void ReadChunk(Reader& reader) {
    const auto cut = std::ranges::upper_bound(reader.cuts, reader.read);
    const int64_t end = cut == reader.cuts.end() ? reader.prompt.length() : *cut;
    const auto chunk =
        std::span(reader.prompt.tokens)
            .subspan(static_cast<size_t>(reader.read), static_cast<size_t>(end - reader.read));
    if (end <= reader.prompt.media.back().end()) {
      const Status read = batch_->ReadMedia(reader.slot, chunk, reader.prompt.media);
      ASSERT_TRUE(read) << read.error().ToString();
    } else {
      const RowRequest draw = Request(reader);
      const auto results = batch_->Read(reader.slot, chunk, std::span(&draw, 1));
      ASSERT_TRUE(results) << results.error().ToString();
      reader.drawn.push_back(results->front());
    }
    reader.read = end;
  }

  std::unique_ptr<Loaded> loaded_;
  std::optional<BatchSession> batch_;
};

TEST(GoldenMediaBatch, PromptsReadInTurnsGiveTheBytesOfEachAlone) {
  const Prompt one = ReadPrompt({"dense", "image"});
  const Prompt two = ReadPrompt({"dense", "two-images"});
  std::vector<MediaBatch::Reader> together = {{.slot = 0, .prompt = one},
                                              {.slot = 1, .prompt = two}};
  // A copy of a prompt refers to the values of its original, which stays.
  MediaBatch(one.model).Run(together);
  if (HasFatalFailure()) return;
  for (const MediaBatch::Reader& reader : together) {
    std::vector<MediaBatch::Reader> alone = {{.slot = 0, .prompt = reader.prompt}};
    MediaBatch(one.model).Run(alone);
    if (HasFatalFailure()) return;
    for (size_t i = 0; i < MediaBatch::kDrawn; ++i) {
      EXPECT_EQ(*reader.drawn[i].token, reader.prompt.greedy[i]);
      EXPECT_EQ(*alone.front().drawn[i].token, *reader.drawn[i].token);
      EXPECT_EQ(alone.front().drawn[i].logprobs, reader.drawn[i].logprobs) << "token " << i;
    }
  }
}

std::vector<Case> Cases() {
  return {{"e2b", "image"},      {"e2b", "audio"},    {"e2b", "both"},
          {"e2b", "two-images"}, {"dense", "image"},  {"dense", "two-images"},
          {"unified", "image"},  {"unified", "both"}, {"ollama", "both"}};
}

// Drivers in software are slow: one case for each mask and kind of medium.
std::vector<Case> FewCases() { return {{"e2b", "both"}, {"dense", "image"}}; }

std::string NameOf(const ::testing::TestParamInfo<std::tuple<Backend, Case>>& info) {
  const auto& [backend, which] = info.param;
  std::string name = backend.name + "_" + which.pair + "_" + which.name;
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Backends, GoldenMedia,
                         ::testing::Combine(::testing::Values(Backend{"reference", ""},
                                                              Backend{"cpu", ""}),
                                            ::testing::ValuesIn(Cases())),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(
    GpusWithAll, GoldenMedia,
    ::testing::Combine(::testing::ValuesIn(EverySecond(golden::Precise(golden::Gpus()), 0)),
                       ::testing::ValuesIn(Cases())),
    NameOf);
INSTANTIATE_TEST_SUITE_P(
    GpusWithFew, GoldenMedia,
    ::testing::Combine(::testing::ValuesIn(EverySecond(golden::Precise(golden::Gpus()), 1)),
                       ::testing::ValuesIn(FewCases())),
    NameOf);
INSTANTIATE_TEST_SUITE_P(Cpu, GoldenMediaSteps,
                         ::testing::Combine(::testing::Values(Backend{"cpu", ""}),
                                            ::testing::ValuesIn(Cases())),
                         NameOf);

}  // namespace
}  // namespace rullama
