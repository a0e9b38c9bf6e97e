// The tiny models with a trained assistant, and their golden answers. Needs ../shared.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "engine/api/engine.h"

namespace rullama::assistant_pairs {

inline const std::string kShared = RULLAMA_SOURCE_DIR "/../shared/";
inline constexpr const char* kPlugins = RULLAMA_BINARY_DIR "/lib/rullama";

// `pair`: "e2b", whose drafter has a head with ordered embeddings, or "dense".
inline std::string ModelOf(const std::string& pair) {
  return kShared + "models/tiny-" + pair + "-f16.gguf";
}
inline std::string DrafterOf(const std::string& pair) {
  return kShared + "models/mtp/tiny-" + pair + "-mtp-f16.gguf";
}

inline EngineOptions OptionsFor(const std::string& model, std::vector<Setting> settings,
                                int slots = 1, const std::string& backend = "cpu") {
  settings.push_back({"context.slots", std::to_string(slots)});
  settings.push_back({"context.capacity", "256"});
  settings.push_back({"backend.device", "0"});  // also one in software
  return {.model = model,
          .backend = backend,
          .settings = std::move(settings),
          .plugin_paths = {kPlugins}};
}

inline Result<std::shared_ptr<Engine>> TryOpen(const std::string& model,
                                               std::vector<Setting> settings, int slots = 1,
                                               const std::string& backend = "cpu") {
  return Engine::Open(OptionsFor(model, std::move(settings), slots, backend));
}

// Drafts of up to `most` tokens, whether they pay or not.
inline std::vector<Setting> DraftsBy(const std::string& drafter, int64_t most = 4) {
  return {{"drafts.model", drafter}, {"drafts.mtp", "true"}, {"drafts.max", std::to_string(most)}};
}

inline Completion Answer(Engine& engine, const Request& request) {
  auto generation = Must(engine.Submit(request));
  return Must(generation.Wait());
}

inline nlohmann::json Goldens(const std::string& pair) {
  std::ifstream file(kShared + "goldens/mtp-" + pair + "/golden.json");
  return nlohmann::json::parse(file);
}

// The prompt of a golden case and as many tokens as its answer has.
inline Request Case(const nlohmann::json& item) {
  return {.ids = item.at("prompt").get<std::vector<int32_t>>(),
          .max_tokens = std::ssize(item.at("greedy")),
          .sampling = {.temperature = 0},
          .ignore_end = true};
}

// The same up to the end of the answer, and the tokens that it then has.
inline Request WholeCase(const nlohmann::json& item) {
  Request request = Case(item);
  request.ignore_end = false;
  return request;
}
inline std::vector<int32_t> GoldenAnswer(const nlohmann::json& golden, const nlohmann::json& item) {
  auto ids = item.at("greedy").get<std::vector<int32_t>>();
  const auto ends = golden.at("ends").get<std::vector<int32_t>>();
  ids.erase(std::ranges::find_first_of(ids, ends), ids.end());
  return ids;
}

inline void ExpectSame(const Completion& found, const Completion& expected) {
  EXPECT_THAT(found.ids, ::testing::ElementsAreArray(expected.ids));
  EXPECT_EQ(found.text, expected.text);
  EXPECT_EQ(found.reason, expected.reason);
  EXPECT_EQ(found.logprobs, expected.logprobs);  // of logits to the last bit
}

inline void ExpectSameDrafts(const Completion& found, const Completion& expected) {
  EXPECT_EQ(found.drafts.drafted, expected.drafts.drafted);
  EXPECT_EQ(found.drafts.accepted, expected.drafts.accepted);
}

}  // namespace rullama::assistant_pairs
