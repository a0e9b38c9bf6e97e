// The public interface on a tiny trained model that denoises.
#include <gmock/gmock.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "engine/api/engine.h"

namespace rullama {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

std::shared_ptr<Engine> OpenDenoiser(std::vector<Setting> settings = {}) {
  settings.push_back({"context.capacity", "512"});
  return Must(Engine::Open({.model = RULLAMA_SOURCE_DIR "/tests/data/tiny-diffusion-Q4_K_M.gguf",
                            .backend = "cpu",
                            .settings = settings,
                            .plugin_paths = {RULLAMA_BINARY_DIR "/lib/rullama"}}));
}

Completion DrawnFor(Engine& engine, const Request& request) {
  auto generation = Must(engine.Submit(request));
  return Must(generation.Wait());
}

TEST(CanvasesTest, DenoisesCanvases) {
  const auto engine = OpenDenoiser();
  Request request{.prompt = "The prince", .max_tokens = 20};
  request.sampling.seed = 3;
  auto generation = Must(engine->Submit(request));
  int drafts = 0;
  const Completion answer = Must(generation.Wait([&](const Event& event) {
    drafts += event.kind == Event::Kind::kDraft ? 1 : 0;
    return true;
  }));
  EXPECT_GT(drafts, 0);
  EXPECT_THAT(answer.text, Not(IsEmpty()));
  EXPECT_EQ(DrawnFor(*engine, request).text, answer.text);
  EXPECT_EQ(answer.at_end.compilations, answer.after_prompt.compilations);
  EXPECT_EQ(engine->Embed("a").error().id, "model.canvas");
}

TEST(CanvasesTest, EveryStepOfACanvasIsTold) {
  const auto engine = OpenDenoiser({{"sampler.diffusion.max_steps", "5"}});
  const auto canvas = static_cast<size_t>(engine->info().canvas_length);
  Request request{.prompt = "The prince", .max_tokens = 100, .every_draft = true};
  request.sampling.seed = 3;
  auto generation = Must(engine->Submit(request));
  std::vector<std::pair<int64_t, int64_t>> steps;  // canvas, step
  const Completion answer = Must(generation.Wait([&](const Event& event) {
    if (event.kind != Event::Kind::kDraft) return true;
    steps.emplace_back(event.draft.canvas, event.done);
    EXPECT_EQ(event.draft.ids.size(), canvas);
    EXPECT_EQ(event.draft.entropy.size(), canvas);
    EXPECT_EQ(event.draft.accepted.size(), canvas);
    return true;
  }));
  ASSERT_THAT(steps, Not(IsEmpty()));
  EXPECT_EQ(steps.front(), std::pair(int64_t{0}, int64_t{1}));
  for (size_t i = 1; i < steps.size(); ++i) {
    const auto& [before, step] = steps[i - 1];
    const bool next_canvas = steps[i] == std::pair(before + 1, int64_t{1});
    EXPECT_TRUE(next_canvas || steps[i] == std::pair(before, step + 1)) << i;
  }
  EXPECT_THAT(answer.ids, Not(IsEmpty()));
}

TEST(CanvasesTest, CanvasesContinueAfterAnAnswerIfAsked) {
  const auto engine = OpenDenoiser({{"sampler.diffusion.max_steps", "2"}});
  Request request{.max_tokens = 1, .reuse_answers = true};
  request.ids = Must(engine->Tokenize("The prince", true, true));
  EXPECT_EQ(DrawnFor(*engine, request).cached_tokens, 0);
  const int64_t read = std::ssize(request.ids);
  request.ids.push_back(300);
  EXPECT_EQ(DrawnFor(*engine, request).cached_tokens, read);
  EXPECT_EQ(DrawnFor(*engine, request).cached_tokens, 0) << "nothing is left to be read";
}

}  // namespace
}  // namespace rullama
