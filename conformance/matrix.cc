#include "conformance/matrix.h"

#include <fmt/ranges.h>

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/case.h"
#include "conformance/check.h"

namespace rullama::conformance {
namespace {

struct Row {
  std::set<std::string> taken;                 // element types
  std::map<std::string, std::string> refused;  // and the first reason for each
};

// The element type a case is about: that of its first constant or state of rank 2 or more, else of
// its first operand.
std::string TypeOf(const Case& test) {
  for (const Value& value : test.graph.values) {
    const bool stored = value.lifetime == Lifetime::kConstant || value.lifetime == Lifetime::kState;
    if (stored && value.type.rank >= 2) return std::string(NameOf(value.type.dtype));
  }
  return std::string(NameOf(test.graph.values.front().type.dtype));
}

// The types that are refused always, and those that are in some cases, which need no names if these
// are all that run: each group with the first of its reasons.
std::string Refusals(const Row& row) {
  std::string text;
  for (const bool always : {true, false}) {
    std::vector<std::string> types;
    std::string_view reason;
    for (const auto& [type, why] : row.refused) {
      if (row.taken.contains(type) == always) continue;
      if (types.empty()) reason = why;
      types.push_back(type);
    }
    if (types.empty()) continue;
    const bool all_that_run = !always && types.size() > 1 && types.size() == row.taken.size();
    text += fmt::format("{}{}{} ({})", text.empty() ? "" : "; ",
                        all_that_run ? "all of them" : fmt::format("{}", fmt::join(types, ", ")),
                        always ? "" : " in some cases", reason);
  }
  return text;
}

}  // namespace

Result<std::string> OpMatrix(const Suite& suite, Device& device) {
  std::map<OpKind, Row> rows;
  for (const CaseSpec& spec : AllCases()) {
    const Case test = spec.make(SeedOf(suite, spec.name));
    RL_ASSIGN_OR_RETURN(const std::string reason, WhyUnsupported(device, test.graph));
    Row& row = rows[spec.kind];
    if (reason.empty()) {
      row.taken.insert(TypeOf(test));
    } else {
      row.refused.try_emplace(TypeOf(test), reason);
    }
  }
  std::string text =
      fmt::format("## Ops of {}\n\n| op | runs | refuses |\n|---|---|---|\n", suite.plugin->name());
  for (const OpInfo& op : AllOps()) {
    const Row& row = rows[op.kind];
    text += fmt::format("| `{}` | {} | {} |\n", op.name, fmt::join(row.taken, ", "), Refusals(row));
  }
  return text;
}

}  // namespace rullama::conformance
