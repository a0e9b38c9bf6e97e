// Texts that share a step change nothing: in one plan whose attention reads no cache the rows of a
// text have the bytes that they have alone, whatever other texts the step has, and in any order.
#include <rullama/sdk/slots.h>

#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "conformance/case.h"
#include "conformance/check.h"
#include "conformance/program.h"
#include "conformance/suite.h"

namespace rullama::conformance {
namespace {

constexpr size_t kLengths[] = {70, 1, 33, 9, 64};  // of texts, around those of tiles
constexpr int64_t kWidth = 256;
constexpr int32_t kReach = 11;

constexpr int64_t AllRows() {
  return static_cast<int64_t>(std::accumulate(std::begin(kLengths), std::end(kLengths), size_t{0}));
}
// The rows of the largest step: after each text there may be others up to the next multiple.
constexpr int64_t kMaxRows = AllRows() + std::ssize(kLengths) * sdk::kTextAlignment;

ValueId AddAttention(CaseBuilder& b, const std::string& name, int64_t heads, int64_t dim,
                     bool sliding, const ops::AttentionRows& rows, ValueId last) {
  const double size = 3 / std::sqrt(static_cast<double>(dim));
  ops::Attention attention{.q = b.Floats(name + ".q", F({kT, heads, dim}), -3, 3),
                           .k_new = b.Floats(name + ".k", F({kT, 1, dim}), -size, size),
                           .v_new = b.Floats(name + ".v", F({kT, 1, dim})),
                           .mask = sliding ? RL_MASK_CAUSAL : RL_MASK_CANVAS,
                           .window = sliding ? kReach + 1 : 0,
                           .scale = 0.7F};
  if (sliding) attention.q_end = last;
  return b.graph().Add(ops::WithRows(attention, rows), name);
}

// The ops of an encoder's layer, each from inputs of its own.
Case MakeTexts(uint64_t seed, DType weights) {
  CaseBuilder b(seed, AllRows());
  const ValueId pos = b.Ints("pos", I({kT}), 0, 0), slot = b.Ints("slot", I({kT}), 0, 0);
  const ValueId last = b.Ints("last", I({kT}), 0, 0);
  const ops::AttentionRows rows{pos, slot, pos, slot, kNoValue};
  b.Output(AddAttention(b, "narrow", 3, 64, /*sliding=*/false, rows, last));
  b.Output(AddAttention(b, "wide", 3, 256, /*sliding=*/false, rows, last));
  b.Output(AddAttention(b, "sliding", 3, 256, /*sliding=*/true, rows, last));
  const ValueId x = b.Floats("x", F({kT, kWidth}), -1, 1);
  const TensorType type(weights, {96, kWidth});
  b.Output(b.graph().Add(ops::Linear(x, b.Weight("weight", type)), "product"));
  b.Output(b.graph().Add(
      ops::GeGluLinear{
          .x = x, .gate_weight = b.Weight("gate", type), .up_weight = b.Weight("up", type)},
      "gated"));
  return std::move(b).Finish(ToleranceClass::kComposite);
}

// The rows of a step with some texts: of the case, and their positions and slots.
struct Layout {
  std::vector<size_t> rows;
  std::vector<int32_t> pos, slot, last;
  std::map<size_t, size_t> first;  // row of each text

  void Add(size_t row, int32_t position, int32_t of_slot) {
    rows.push_back(row);
    pos.push_back(position);
    slot.push_back(of_slot);
    last.push_back(position + kReach);
  }
};

size_t FirstRowInCase(size_t text) {
  return std::accumulate(std::begin(kLengths), std::begin(kLengths) + text, size_t{0});
}

Layout LayOut(const std::vector<size_t>& texts, int64_t alignment) {
  constexpr int32_t kGap = 1;  // the slot of rows between texts
  Layout layout;
  int32_t gap = 0, slot = 0;
  for (const size_t text : texts) {
    while (std::ssize(layout.rows) % alignment != 0) layout.Add(0, gap++, kGap);
    if (slot == kGap) ++slot;
    layout.first[text] = layout.rows.size();
    for (size_t i = 0; i < kLengths[text]; ++i) {
      layout.Add(FirstRowInCase(text) + i, static_cast<int32_t>(i), slot);
    }
    ++slot;
  }
  return layout;
}

// One plan of a case, and what it gives for each text.
class TextPlan {
 public:
  using Results = std::map<std::string, Bytes>;  // by output

  static Result<TextPlan> Create(Device& device, Case test) {
    TextPlan plan;
    test.graph.max_t = kMaxRows;
    plan.test_ = std::make_unique<Case>(std::move(test));
    RL_ASSIGN_OR_RETURN(plan.program_, Program::Create(device, *plan.test_));
    return plan;
  }

  Result<std::map<size_t, Results>> Run(const std::vector<size_t>& texts, int64_t alignment) {
    const Layout layout = LayOut(texts, alignment);
    const Extents extents{std::ssize(layout.rows), 1};
    RL_RETURN_IF_ERROR(program_->Poison(0xFF));
    RL_RETURN_IF_ERROR(program_->BindAll(StepOf(layout)));
    RL_RETURN_IF_ERROR(program_->Run(extents));
    std::map<size_t, Results> results;
    for (const Output& output : test_->graph.outputs) {
      const std::string& name = test_->graph.value(output.value).name;
      RL_ASSIGN_OR_RETURN(const Bytes bytes, program_->Read(name, extents));
      const size_t row = bytes.size() / layout.rows.size();
      for (const auto& [text, first] : layout.first) {
        const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(first * row);
        results[text][name] =
            Bytes(begin, begin + static_cast<std::ptrdiff_t>(kLengths[text] * row));
      }
    }
    return results;
  }

 private:
  [[nodiscard]] Case StepOf(const Layout& layout) const {
    Case step = *test_;
    for (auto& [name, bytes] : step.data) {
      const Value& value = test_->graph.value(test_->graph.Find(name));
      if (value.lifetime != Lifetime::kInput || value.type.rows() != Dim::T()) continue;
      if (name == "pos") {
        bytes = BytesOf(layout.pos);
      } else if (name == "slot") {
        bytes = BytesOf(layout.slot);
      } else if (name == "last") {
        bytes = BytesOf(layout.last);
      } else {
        bytes = Picked(bytes, layout.rows);
      }
    }
    return step;
  }
  [[nodiscard]] Bytes Picked(const Bytes& bytes, const std::vector<size_t>& rows) const {
    const size_t size = bytes.size() / static_cast<size_t>(test_->extents.t);
    Bytes picked;
    for (const size_t row : rows) {
      const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(row * size);
      picked.insert(picked.end(), first, first + static_cast<std::ptrdiff_t>(size));
    }
    return picked;
  }

  std::unique_ptr<Case> test_;  // outlives the program
  std::unique_ptr<Program> program_;
};

Status TextsChangeNothing(Suite& suite, Device& device, const CaseSpec& spec) {
  if (!device.description().deterministic) return Unsupported("the device is not deterministic");
  Case test = spec.make(SeedOf(suite, spec.name));
  RL_ASSIGN_OR_RETURN(std::string refusal, WhyUnsupported(device, test.graph));
  if (!refusal.empty()) return Unsupported(std::move(refusal));
  const int64_t alignment = device.description().type == RL_DEVICE_CPU ? 1 : sdk::kTextAlignment;
  RL_ASSIGN_OR_RETURN(TextPlan plan, TextPlan::Create(device, std::move(test)));
  std::map<size_t, TextPlan::Results> alone;
  for (size_t text = 0; text < std::size(kLengths); ++text) {
    RL_ASSIGN_OR_RETURN(auto results, plan.Run({text}, alignment));
    alone.merge(results);
  }
  std::string differences;
  for (const std::vector<size_t>& texts :
       {std::vector<size_t>{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {1, 2}}) {
    RL_ASSIGN_OR_RETURN(const auto together, plan.Run(texts, alignment));
    for (const auto& [text, outputs] : together) {
      for (const auto& [name, bytes] : outputs) {
        if (bytes == alone[text][name]) continue;
        differences +=
            fmt::format("{}'{}' of {} rows among {} texts", differences.empty() ? "" : "; ", name,
                        kLengths[text], texts.size());
      }
    }
  }
  if (differences.empty()) return OkStatus();
  return Failed("a text gives other bytes than alone: {}", differences);
}

}  // namespace

void AddTextTests(std::vector<NamedTest>& tests) {
  for (const DType weights : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_K}) {
    const CaseSpec spec{fmt::format("layer/{}", NameOf(weights)), OpKind::kAttention,
                        [weights](uint64_t seed) { return MakeTexts(seed, weights); }};
    tests.push_back(
        {"Texts." + spec.name,
         [spec](Suite& suite, Device& device) { return TextsChangeNothing(suite, device, spec); },
         weights == DType::kQ8_0});
  }
}

}  // namespace rullama::conformance
