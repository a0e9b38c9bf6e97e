#include "engine/training/packing.h"

namespace rullama {
namespace {

void AppendExample(const Example& example, PackedStep& step) {
  const auto slot = static_cast<int32_t>(step.lines.size());
  for (size_t i = 0; i < example.ids.size(); ++i) {
    if (example.targets[i] != kNoTarget) {
      step.rows.wanted.push_back(static_cast<int32_t>(step.rows.tokens.size()));
      step.targets.push_back(example.targets[i]);
    }
    step.rows.tokens.push_back(example.ids[i]);
    step.rows.pos.push_back(static_cast<int32_t>(i));
    step.rows.slot.push_back(slot);
  }
  step.lines.push_back(example.line);
}

}  // namespace

std::vector<PackedStep> PackExamples(std::span<const Example* const> examples, int64_t max_t) {
  std::vector<PackedStep> steps;
  for (const Example* example : examples) {
    if (example->counted() == 0) continue;
    const bool fits =
        !steps.empty() && std::ssize(steps.back().rows.tokens) + example->rows() <= max_t;
    if (!fits) steps.emplace_back();
    AppendExample(*example, steps.back());
  }
  return steps;
}

}  // namespace rullama
