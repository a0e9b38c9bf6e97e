#include "conformance/matrix.h"

#include <map>
#include <set>

#include "conformance/case.h"
#include "conformance/check.h"

namespace rullama::conformance {
namespace {

struct Row {
  std::set<std::string> taken, refused;  // element types
  std::string reason;                    // of the first refusal
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

std::string Join(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

Result<std::string> OpMatrix(const Suite& suite, Device& device) {
  std::map<OpKind, Row> rows;
  for (const CaseSpec& spec : AllCases()) {
    const Case test = spec.make(SeedOf(suite, spec.name));
    RL_ASSIGN_OR_RETURN(const std::string reason, WhyUnsupported(device, test.graph));
    Row& row = rows[spec.kind];
    (reason.empty() ? row.taken : row.refused).insert(TypeOf(test));
    if (!reason.empty() && row.reason.empty()) row.reason = reason;
  }
  std::string text =
      fmt::format("## Ops of {}\n\n| op | runs | refuses |\n|---|---|---|\n", suite.plugin->name());
  for (const OpInfo& op : AllOps()) {
    const Row& row = rows[op.kind];
    text += fmt::format(
        "| `{}` | {} | {} |\n", op.name, Join(row.taken),
        row.refused.empty() ? "" : fmt::format("{} ({})", Join(row.refused), row.reason));
  }
  return text;
}

}  // namespace rullama::conformance
