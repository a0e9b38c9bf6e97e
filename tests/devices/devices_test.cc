// A model on several devices gives the tokens that it gives on one, and the same log-probabilities
// to the last bit where all are of the cpu backend: alone and in a batch, after a cached prompt.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "engine/api/engine.h"
#include "engine/engine_access.h"
#include "engine/loading/layer_placement.h"
#include "engine/model_session.h"

namespace rullama {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr const char* kE2b = RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf";
constexpr const char* kMoe = RULLAMA_SOURCE_DIR "/tests/data/tiny-moe-Q4_K_M.gguf";
constexpr const char* kDiffusion = RULLAMA_SOURCE_DIR "/tests/data/tiny-diffusion-Q4_K_M.gguf";
constexpr const char* kPlugins = RULLAMA_BINARY_DIR "/lib/rullama";
constexpr const char* kPrompt = "Well, Prince, so Genoa and Lucca are now just family";

EngineOptions Options(const char* model, const std::string& devices,
                      const std::vector<Setting>& more) {
  std::vector<Setting> settings = {
      {"backend.devices", devices}, {"context.capacity", "128"}, {"context.prefill_chunk", "32"}};
  settings.insert(settings.end(), more.begin(), more.end());
  return {.model = model, .settings = settings, .plugin_paths = {kPlugins}};
}

std::shared_ptr<Engine> Open(const char* model, const std::string& devices,
                             const std::vector<Setting>& more = {}) {
  return Must(Engine::Open(Options(model, devices, more)));
}

Error ErrorOf(const char* model, const std::string& devices,
              const std::vector<Setting>& more = {}) {
  auto engine = Engine::Open(Options(model, devices, more));
  if (!engine) return engine.error();
  ADD_FAILURE() << devices << " can be used";
  return {ErrorKind::kRuntime, "none", ""};
}

Request GreedyRequest(std::string_view prompt, int64_t tokens) {
  Request request{.prompt = std::string(prompt), .max_tokens = tokens};
  request.sampling.temperature = 0;
  request.top_logprobs = 3;
  return request;
}

Completion Answer(Engine& engine, const Request& request) {
  auto generation = Must(engine.Submit(request));
  return Must(generation.Wait());
}

struct Lists {
  const char* name;
  const char* model;
  const char* one;      // device
  const char* several;  // devices
  bool same_bytes;      // not where a GPU backend fuses ops that the cut parts
};

class DevicesTest : public ::testing::TestWithParam<Lists> {};
INSTANTIATE_TEST_SUITE_P(
    , DevicesTest,
    ::testing::Values(Lists{"CpuTwice", kE2b, "cpu", "cpu:0,cpu:0", true},
                      Lists{"CpuTwiceWithExperts", kMoe, "cpu", "cpu:0,cpu:0", true},
                      Lists{"VulkanTwice", kE2b, "vulkan:0", "vulkan:0,vulkan:0", false},
                      Lists{"VulkanAndCpu", kMoe, "vulkan:0", "vulkan:0,cpu", false}),
    [](const auto& lists) { return lists.param.name; });

TEST_P(DevicesTest, TokensAreThoseOfOneDevice) {
  constexpr int64_t kTokens = 6;
  const Request request = GreedyRequest(kPrompt, kTokens);
  const Completion expected = Answer(*Open(GetParam().model, GetParam().one), request);
  const Completion split = Answer(*Open(GetParam().model, GetParam().several), request);
  ASSERT_EQ(expected.ids.size(), static_cast<size_t>(kTokens));
  EXPECT_THAT(split.ids, ElementsAreArray(expected.ids));
  if (GetParam().same_bytes) {
    EXPECT_EQ(split.logprobs, expected.logprobs);
  }
}

TEST(DevicesBatch, RequestsTogetherAndAfterACachedPromptGiveTheSameBytes) {
  const std::vector<Setting> settings = {{"context.slots", "3"}, {"context.prefill_chunk", "8"}};
  const auto one = Open(kE2b, "cpu", settings);
  const auto three = Open(kE2b, "cpu,cpu,cpu", settings);
  std::vector<Request> requests;
  for (const size_t length : {20, 33, 52}) {
    requests.push_back(GreedyRequest(std::string_view(kPrompt).substr(0, length), 8));
  }
  std::vector<Generation> running;
  running.reserve(requests.size());
  for (const Request& request : requests) running.push_back(Must(three->Submit(request)));
  std::vector<Completion> expected;
  for (size_t i = 0; i < requests.size(); ++i) {
    expected.push_back(Answer(*one, requests[i]));
    const Completion together = Must(running[i].Wait());
    EXPECT_THAT(together.ids, ElementsAreArray(expected[i].ids));
    EXPECT_EQ(together.logprobs, expected[i].logprobs);
  }
  // Others use its slot, so that its prompt comes from a snapshot with the rows of all devices.
  for (const char* other : {"Anna", "Boris", "Denisov"}) Answer(*three, GreedyRequest(other, 2));
  const Completion again = Answer(*three, requests.back());
  EXPECT_GT(again.cached_tokens, 0);
  EXPECT_EQ(again.logprobs, expected.back().logprobs);
}

// Two groups of slots, each with a step in flight, whose requests have settings, drafts and ends of
// their own.
TEST(DevicesBatch, GroupsOfSlotsKeepTheirRequestsApart) {
  const std::vector<Setting> settings = {
      {"context.slots", "4"}, {"drafts.lookup", "true"}, {"backend.options.threads", "1"}};
  const auto one = Open(kE2b, "cpu", settings);
  const auto two = Open(kE2b, "cpu,cpu", settings);
  std::vector<Request> requests;
  for (int64_t i = 0; i < 6; ++i) {
    Request request = GreedyRequest(std::string_view(kPrompt).substr(0, 10 + 7 * i), 5 + 3 * i);
    request.sampling.temperature = static_cast<double>(i % 3);
    request.sampling.seed = 40 + i;
    if (i % 2 == 1) request.sampling.repeat_penalty = 1.3;
    requests.push_back(request);
  }
  std::vector<Generation> running;
  running.reserve(requests.size());
  for (const Request& request : requests) running.push_back(Must(two->Submit(request)));
  Generation cancelled = Must(two->Submit(GreedyRequest(kPrompt, 40)));
  cancelled.Cancel();
  for (size_t i = 0; i < requests.size(); ++i) {
    const Completion together = Must(running[i].Wait());
    EXPECT_EQ(together.logprobs, Answer(*one, requests[i]).logprobs) << "request " << i;
  }
  EXPECT_EQ(Must(cancelled.Wait()).reason, StopReason::kCancelled);
}

TEST(DevicesBatch, AStepHasHalfOfTheRowsWhereTwoDevicesShareTheLayers) {
  const auto two = Open(kE2b, "cpu,cpu", {{"context.slots", "4"}});
  std::vector<Generation> running;
  for (int i = 0; i < 4; ++i) running.push_back(Must(two->Submit(GreedyRequest("Anna", 12))));
  for (Generation& generation : running) Must(generation.Wait());
  const Histogram rows = two->stats().decode.rows;
  const auto bucket = [&](double bound) {
    const auto at = std::ranges::find(Histogram::kBounds, bound) - Histogram::kBounds.begin();
    return rows.counts[static_cast<size_t>(at)];
  };
  EXPECT_GT(bucket(2), 0U);
  EXPECT_EQ(bucket(5), 0U) << "steps of three or four rows";
}

TEST(DevicesDrafts, AnswersAreThoseOfOneDeviceWithoutDrafts) {
  // The draft model has another number of layers and runs on the first device.
  const auto drafting = Open(kE2b, "cpu,cpu", {{"placement.split", "1,7"}, {"drafts.model", kMoe}});
  const Request request = GreedyRequest(kPrompt, 8);
  const Completion answer = Answer(*drafting, request);
  const Completion expected = Answer(*Open(kE2b, "cpu"), request);
  EXPECT_GT(answer.drafts.drafted, 0);
  EXPECT_THAT(answer.ids, ElementsAreArray(expected.ids));
  EXPECT_EQ(answer.logprobs, expected.logprobs);
}

// The run of layers of each device of a session.
std::vector<size_t> CountsOf(Engine& engine) {
  std::vector<size_t> counts;
  for (const auto& run : LayersByDevice(EngineAccess::SessionOf(engine).placement())) {
    counts.push_back(run.count);
  }
  return counts;
}

TEST(DevicesSplit, LayersAreDividedAsConfigured) {
  // Eight layers, of which those from 2 on share caches.
  EXPECT_THAT(CountsOf(*Open(kE2b, "cpu,cpu", {{"placement.split", "1,7"}})),
              ElementsAreArray({1, 7}));
  EXPECT_THAT(CountsOf(*Open(kE2b, "cpu,cpu", {{"placement.split", "3.0,1.0"}})),
              ElementsAreArray({2, 6}));
  EXPECT_THAT(CountsOf(*Open(kE2b, "cpu")), ElementsAreArray(std::vector<size_t>{}));
}

TEST(DevicesSplit, BadListsAndSplitsAreRefused) {
  const struct {
    const char* model;
    const char* devices;
    std::vector<Setting> settings;
    const char* id;
    const char* message;
  } cases[] = {
      {kE2b, "cpu,nosuch:0", {}, "backend.unknown", "nosuch"},
      {kE2b, "cpu,cpu:7", {}, "device.unknown", "7"},
      {kE2b, "cpu,cpu,cpu,cpu", {}, "split.devices", "cut into 3 parts at most, for 4 devices"},
      {kE2b, "cpu,cpu", {{"placement.split", "4,5"}}, "split.numbers", "the model has 8 layers"},
      {kE2b, "cpu,cpu", {{"placement.split", "1,2,5"}}, "split.numbers", "3 numbers for 2"},
      {kE2b, "cpu,cpu", {{"placement.split", "4,4"}}, "split.cut", "begin at the layers 1 to 2"},
      {kE2b, "cpu", {{"placement.split", "4,4"}}, "split.devices", "name them in backend.devices"},
      {kDiffusion, "cpu,cpu", {}, "split.model", "a model that denoises runs on one device"},
  };
  for (const auto& c : cases) {
    const Error error = ErrorOf(c.model, c.devices, c.settings);
    EXPECT_EQ(error.id, c.id) << error.message;
    EXPECT_THAT(error.ToString(), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace rullama
