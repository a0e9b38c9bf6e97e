#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/case.h"

namespace rullama::conformance {
namespace {

// The type that the name of a case begins with, "q4_k" of "matmul/q4_k_k256_n31_t1"; empty if there
// is none.
std::string_view TypeInName(std::string_view name) {
  name.remove_prefix(name.find('/') + 1);
  std::string_view longest;
  for (const DTypeInfo& info : kDTypes) {
    const std::string_view type = info.name;
    const bool begins = name == type || (name.starts_with(type) && name[type.size()] == '_');
    if (begins && type.size() > longest.size()) longest = type;
  }
  return longest;
}

}  // namespace

std::set<std::string> QuickCases(const std::vector<CaseSpec>& cases) {
  std::map<OpKind, std::map<std::string_view, std::vector<std::string_view>>> of_op;
  for (const CaseSpec& spec : cases) {
    if (!spec.name.ends_with(WideSuffix(std::numeric_limits<int64_t>::max()))) {
      of_op[spec.kind][TypeInName(spec.name)].push_back(spec.name);
    }
  }
  std::set<std::string> quick;
  for (const auto& [kind, types] : of_op) {
    size_t shape = 0;
    for (const auto& [type, names] : types) {
      if (type.empty()) {
        for (const size_t i : {size_t{0}, names.size() / 2, names.size() - 1})
          quick.emplace(names[i]);
      } else {
        quick.emplace(names[shape++ % names.size()]);
      }
    }
  }
  return quick;
}

std::set<std::string> QuickSample(const std::vector<CaseSpec>& cases) {
  std::map<std::string_view, std::vector<std::string_view>> groups;
  for (const CaseSpec& spec : cases) {
    const std::string_view name = spec.name;
    groups[name.substr(0, name.find('/'))].push_back(name);
  }
  std::set<std::string> quick;
  for (const auto& [group, names] : groups) quick.emplace(names.front());
  return quick;
}

}  // namespace rullama::conformance
