// Any bytes give a drafter or an error; the graphs of one that was read are well-formed.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "models/gemma4/drafter/assistant.h"
#include "models/gemma4/graph/gemma4_test_file.h"

namespace rullama::gemma4 {
namespace {

// A model for drafters of 32 columns and 20 tokens (drafter_test_file.h).
struct Target {
  Target() {
    const std::vector<std::byte> bytes = Gemma4TestFile::Small().Bytes();
    const auto file = GgufFile::Parse(bytes);
    config = *Gemma4Config::FromFile(*file);
    weights = *Gemma4Weights::FromFile(config, *file);
  }
  Gemma4Config config;
  Gemma4Weights weights;
};

void Read(const GgufFile& file, AssistantOrigin origin, const Target& target) {
  const auto described = DescribeAssistant(file, origin);
  if (described) RL_CHECK(described->layers > 0 && described->step_bytes <= described->bytes);
  const auto assistant = ReadAssistant(file, origin, target.config, target.weights);
  if (!assistant) {
    RL_CHECK(!assistant.error().id.empty() && !assistant.error().message.empty());
    return;
  }
  RL_CHECK(described.has_value());
  RL_CHECK((*assistant)->MakeConstants(file).has_value());
  const BuildOptions options{.slots = 2, .capacity = 16, .max_t = 2, .max_r = 1};
  RL_CHECK((*assistant)->BuildGraph(options, {.tokens = 2, .places = 34}).has_value());
}

}  // namespace
}  // namespace rullama::gemma4

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const rullama::gemma4::Target target;
  const auto file = rullama::GgufFile::Parse(std::as_bytes(std::span(data, size)));
  if (!file) return 0;
  for (const auto origin : {rullama::AssistantOrigin::kNamed, rullama::AssistantOrigin::kFound}) {
    rullama::gemma4::Read(*file, origin, target);
  }
  return 0;
}
