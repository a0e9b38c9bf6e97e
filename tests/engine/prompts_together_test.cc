// Prompts of several requests that are read between two tokens of an answer.
#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "engine/api/engine.h"

namespace rullama {
namespace {

// Prompts of several chunks, longer than the window of the model.
std::vector<Request> RequestsOfSeveralChunks(size_t count) {
  const std::string text =
      "Eh bien, mon prince, so what have I always told you? The estates are no more than farms of "
      "one family, and whoever does not say that this means war is no friend of mine. ";
  std::vector<Request> requests;
  for (size_t i = 0; i < count; ++i) {
    Request request{.prompt = text.substr(9 * i) + text + text.substr(0, 20 * i),
                    .max_tokens = i == 0 ? 80 : 12,
                    .top_logprobs = 20,
                    .reuse_prefix = false};
    request.sampling.seed = 100 + static_cast<int64_t>(i);
    if (i % 2 == 0) request.sampling.temperature = 0;
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST(PromptsTogether, GiveTheBytesOfEachAlone) {
  constexpr size_t kRequests = 8;
  const std::vector<Request> requests = RequestsOfSeveralChunks(kRequests);
  const std::vector<Setting> of_limits[] = {
      {{"server.max_gap_ms", "1"}},
      {{"server.max_gap_ms", "60000"}},
      {{"server.max_gap_ms", "60000"}, {"drafts.lookup", "true"}},
  };
  for (std::vector<Setting> settings : of_limits) {
    SCOPED_TRACE(settings.front().value);
    settings.push_back({"context.prefill_chunk", "32"});
    settings.push_back({"context.slots", std::to_string(kRequests)});
    settings.push_back({"context.capacity", "512"});
    const auto engine =
        Must(Engine::Open({.model = RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf",
                           .backend = "cpu",
                           .settings = settings,
                           .plugin_paths = {RULLAMA_BINARY_DIR "/lib/rullama"}}));
    std::vector<Completion> alone;
    for (const Request& request : requests) {
      Generation generation = Must(engine->Submit(request));
      alone.push_back(Must(generation.Wait()));
    }
    std::vector<Generation> running;
    running.push_back(Must(engine->Submit(requests.front())));
    ASSERT_TRUE(Must(running.front().Next()));
    for (size_t i = 1; i < kRequests; ++i) {
      running.push_back(Must(engine->Submit(requests[i])));
    }
    for (size_t i = 0; i < kRequests; ++i) {
      SCOPED_TRACE(i);
      const Completion together = Must(running[i].Wait());
      EXPECT_FALSE(together.ids.empty());
      EXPECT_EQ(together.ids, alone[i].ids);
      EXPECT_EQ(together.logprobs, alone[i].logprobs);
    }
  }
}

}  // namespace
}  // namespace rullama
