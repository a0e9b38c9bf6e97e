// Each case of each op, composites in their decomposition, and ops that follow each other.
#include <set>
#include <string>
#include <vector>

#include "conformance/check.h"
#include "conformance/suite.h"
#include "core/passes/decompose.h"

namespace rullama::conformance {
namespace {

Status RunCase(Suite& suite, Device& device, const CaseSpec& spec) {
  const Case test = spec.make(SeedOf(suite, spec.name));
  RL_ASSIGN_OR_RETURN(std::string refusal, WhyUnsupported(device, test.graph));
  if (!refusal.empty()) return Unsupported(std::move(refusal));
  return CheckCase(device, test, suite.manifest.activations);
}

// The composite as the primitives it stands for, where the device runs all of them: as close to the
// reference of the composite as the composite has to be.
Status RunDecomposed(Suite& suite, Device& device, const CaseSpec& spec) {
  const Case whole = spec.make(SeedOf(suite, spec.name));
  Case parts = whole;
  RL_ASSIGN_OR_RETURN(parts.graph, DecomposeAll(whole.graph));
  RL_ASSIGN_OR_RETURN(std::string refusal, WhyUnsupported(device, parts.graph));
  if (!refusal.empty()) return Unsupported(std::move(refusal));
  RL_ASSIGN_OR_RETURN(const auto program, Program::Create(device, parts));
  RL_RETURN_IF_ERROR(program->Poison(0xFF));
  RL_RETURN_IF_ERROR(program->BindAll(parts));
  RL_RETURN_IF_ERROR(program->Run(parts.extents));
  RL_ASSIGN_OR_RETURN(const auto results, ReadResults(*program, parts));
  RL_ASSIGN_OR_RETURN(const auto ran, RunReference(whole));
  RL_RETURN_IF_ERROR(CompareWithReference(whole, ran, results, suite.manifest.activations));
  return program->CheckGuards();
}

// Whether a case has a test of its decomposition. Decompositions treat all types of weights alike,
// and "Op." tests the primitives with each: here one plain type and one in blocks stand for all.
bool TestsDecomposition(const CaseSpec& spec) {
  if (!HasDecomposition(spec.kind)) return false;
  return !spec.weights || *spec.weights == DType::kF32 || *spec.weights == DType::kQ4_K;
}

// A new op without cases would be tested by nobody.
Status EveryOpHasCases(Suite&, Device&) {
  std::set<OpKind> covered;
  for (const CaseSpec& spec : AllCases()) covered.insert(spec.kind);
  for (const OpInfo& op : AllOps()) {
    if (!covered.contains(op.kind)) return Failed("op {} has no case", op.name);
  }
  return OkStatus();
}

}  // namespace

void AddOpTests(std::vector<NamedTest>& tests) {
  tests.push_back({"Suite.every_op_has_cases", EveryOpHasCases});
  const std::vector<CaseSpec> cases = AllCases();
  const std::set<std::string> quick = QuickCases(cases);
  for (const CaseSpec& spec : cases) {
    const bool is_quick = quick.contains(spec.name);
    tests.push_back({"Op." + spec.name,
                     [spec](Suite& suite, Device& device) { return RunCase(suite, device, spec); },
                     is_quick});
    if (!TestsDecomposition(spec)) continue;
    tests.push_back(
        {"Decomposed." + spec.name,
         [spec](Suite& suite, Device& device) { return RunDecomposed(suite, device, spec); },
         is_quick});
  }
  const std::vector<CaseSpec> neighbours = NeighbourCases();
  const std::set<std::string> quick_neighbours = QuickCases(neighbours);
  for (const CaseSpec& spec : neighbours) {
    tests.push_back({"Neighbours." + spec.name,
                     [spec](Suite& suite, Device& device) { return RunCase(suite, device, spec); },
                     quick_neighbours.contains(spec.name)});
  }
}

}  // namespace rullama::conformance
