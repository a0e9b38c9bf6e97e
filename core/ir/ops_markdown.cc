#include "core/ir/ops_markdown.h"

#include <fmt/format.h>

#include <iterator>

#include "core/ir/ops.h"

namespace rullama {
namespace {

constexpr std::string_view kIntroduction = R"(# Ops

Generated from `core/abi/ops.def` by `ir_test` (`RULLAMA_UPDATE_DOCS=1` rewrites this page). Shapes
are in numpy order; T and R are the rows of a step and the rows whose results are wanted. Unless a
description says otherwise, values are f32. Ties, NaN, infinities and tolerances are in
[numerics.md](numerics.md).

- **In C++** names the struct of the SDK with the positions of the operands.
- **Operands** say how rows wanted of the results map to them: *rows* needs the same rows, *all* may
  need every row, *whole* is not indexed by rows. An operand marked optional may be absent.
- **Kind**: a *primitive* is what every backend has to run somewhere; a *composite* has a
  decomposition into simpler ops, which the core uses where a backend refuses it; an *effect* makes
  the next versions of its first operands, which are states, one for each result.
)";

struct Group {
  uint32_t first_id;
  std::string_view title;
};

// Ids come in groups, as in ops.def.
constexpr Group kGroups[] = {
    {1, "Structure"},
    {20, "Pointwise"},
    {40, "Reductions and sorting"},
    {60, "Contraction"},
    {80, "Normalisation and activation"},
    {100, "Attention"},
    {120, "State"},
    {140, "Gemma"},
    {160, "Sampling"},
    {180, "Training"},
};

std::string_view TextOf(RowRule rule) {
  switch (rule) {
    case RowRule::kSame:
      return "rows";
    case RowRule::kAll:
      return "all";
    case RowRule::kWhole:
      return "whole";
  }
  return "";
}

// Empty for values, whose row rule says all.
std::string_view TextOf(OperandRole role) {
  switch (role) {
    case OperandRole::kData:
      return "";
    case OperandRole::kWeight:
      return ", weight";
    case OperandRole::kTable:
      return ", table";
    case OperandRole::kState:
      return ", state";
    case OperandRole::kIndex:
      return ", index";
  }
  return "";
}

std::string_view TextOf(OpTrait trait) {
  switch (trait) {
    case OpTrait::kPrimitive:
    case OpTrait::kMoves:
      return "primitive";
    case OpTrait::kComposite:
      return "composite";
    case OpTrait::kEffect:
      return "effect";
  }
  return "";
}

std::string TextOf(const AttrInfo& attr) {
  switch (attr.type) {
    case AttrType::kI32:
      return fmt::format("`{}` i32", attr.name);
    case AttrType::kI64:
      return fmt::format("`{}` i64", attr.name);
    case AttrType::kF32:
      return fmt::format("`{}` f32", attr.name);
    case AttrType::kEnum:
      return fmt::format("`{}` {}", attr.name, attr.enum_name);
  }
  return "";
}

// Of the structs in ops:: and operands::.
std::string_view CppNameOf(OpKind kind) {
  switch (kind) {
#define RL_OP(id, Name, name, operands, results, attributes, traits, doc) \
  case OpKind::k##Name:                                                   \
    return #Name;
#include <rullama/abi/ops.def>
  }
  return "";
}

std::string Section(const OpInfo& info) {
  std::string text = fmt::format("\n### {}\n\n{}\n\n", info.name, info.doc);
  const auto to = std::back_inserter(text);
  fmt::format_to(to, "- Kind: {} (id {}), in C++ `operands::{}`\n- Operands: ", TextOf(info.trait),
                 static_cast<uint32_t>(info.kind), CppNameOf(info.kind));
  std::string_view separator;
  for (const OperandInfo& operand : info.operands) {
    fmt::format_to(to, "{}`{}` ({}{}{})", separator, operand.name, TextOf(operand.rows),
                   TextOf(operand.role), operand.optional ? ", optional" : "");
    separator = ", ";
  }
  fmt::format_to(to, "\n- Results: ");
  separator = "";
  for (const std::string_view result : info.results) {
    fmt::format_to(to, "{}`{}`", separator, result);
    separator = ", ";
  }
  fmt::format_to(to, "\n");
  separator = "- Attributes: ";
  for (const AttrInfo& attr : info.attrs) {
    fmt::format_to(to, "{}{}", separator, TextOf(attr));
    if (attr.since != 0) fmt::format_to(to, " (since ABI 1.{})", attr.since);
    separator = ", ";
  }
  if (!info.attrs.empty()) fmt::format_to(to, "\n");
  return text;
}

// The values of the enumerations that attributes use; rl_dtype is the table of element types.
std::string Enumerations() {
  constexpr int32_t kLastValue = 64;  // above every enumerator of these types
  std::string text = "\n## Enumerations\n\n";
  for (const std::string_view name : {"rl_unary", "rl_binary", "rl_reduce", "rl_mask"}) {
    text += fmt::format("- `{}`:", name);
    std::string_view separator = " ";
    for (int32_t value = 0; value <= kLastValue; ++value) {
      const std::string_view enumerator = EnumeratorName(name, value);
      if (enumerator.empty()) continue;
      text += fmt::format("{}{} = {}", separator, enumerator, value);
      separator = ", ";
    }
    text += '\n';
  }
  return text;
}

constexpr std::string_view kBackends = R"(
## Backends and their ops

The sections below are what `rullama-conformance --matrix` prints: the ops a plugin says it runs, by
element type of the weight, state or first operand. A composite that is refused runs as its
decomposition.
)";

}  // namespace

std::string OpsAsMarkdown() {
  std::string text(kIntroduction);
  for (size_t g = 0; g < std::size(kGroups); ++g) {
    text += fmt::format("\n## {}\n", kGroups[g].title);
    const uint32_t end = g + 1 < std::size(kGroups) ? kGroups[g + 1].first_id : UINT32_MAX;
    for (const OpInfo& info : AllOps()) {
      const auto id = static_cast<uint32_t>(info.kind);
      if (id >= kGroups[g].first_id && id < end) text += Section(info);
    }
  }
  return text + Enumerations() + std::string(kBackends);
}

}  // namespace rullama
