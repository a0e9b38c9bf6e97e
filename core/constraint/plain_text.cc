#include "core/constraint/plain_text.h"

#include <algorithm>
#include <vector>

#include "core/constraint/content_dfa.h"
#include "core/constraint/pattern.h"

namespace rullama::constraint {
namespace {

constexpr size_t kMaxPlainTexts = 50'000;
constexpr size_t kMaxPlainBytes = size_t{1} << 20;

}  // namespace

Result<RuleId> AddPlainPattern(GrammarBuilder& builder, std::string_view pattern,
                               const CompileDeadline& deadline) {
  RL_ASSIGN_OR_RETURN(const ContentDfa content, CompileWholePattern(pattern, deadline));
  const RuleId rule = builder.AddRule();
  std::vector<StateId> states;
  for (size_t i = 0; i < content.states.size(); ++i) states.push_back(builder.AddState());
  builder.SetStart(rule, states.front());
  const StateId accept = builder.AddAccept();
  for (size_t i = 0; i < content.states.size(); ++i) {
    for (const ContentDfa::Edge& edge : content.states[i].edges) {
      builder.AddEdge(states[i], edge.first, edge.last, states[edge.target]);
    }
    if (content.states[i].accepts) builder.AddEpsilon(states[i], accept);
  }
  return rule;
}

Result<RuleId> AddPlainTexts(GrammarBuilder& builder, std::span<const std::string> texts) {
  size_t bytes = 0;
  std::vector<std::vector<Symbol>> spellings;
  for (const std::string& text : texts) {
    bytes += text.size();
    if (spellings.size() == kMaxPlainTexts || bytes > kMaxPlainBytes) {
      return MakeError(ErrorKind::kUsage, "schema.too_large",
                       "there are more than {} texts to choose from, or more than {} bytes of them",
                       kMaxPlainTexts, kMaxPlainBytes);
    }
    std::vector<Symbol>& spelling = spellings.emplace_back();
    for (const char byte : text) spelling.push_back(static_cast<uint8_t>(byte));
  }
  std::ranges::sort(spellings);
  spellings.erase(std::unique(spellings.begin(), spellings.end()), spellings.end());
  const RuleId rule = builder.AddRule();
  const StateId start = builder.AddState();
  builder.SetStart(rule, start);
  builder.AddTexts(start, spellings, builder.AddAccept());
  return rule;
}

}  // namespace rullama::constraint
