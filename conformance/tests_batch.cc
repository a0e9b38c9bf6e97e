// Neighbours in a batch change nothing: a row of a step that decodes for several slots has the
// bytes that it has alone, whatever the number of rows, their order, their contents, and what the
// caches of other slots hold.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "conformance/check.h"
#include "conformance/program.h"
#include "conformance/suite.h"
#include "core/passes/bucket.h"

namespace rullama::conformance {
namespace {

// The outputs of one row by name.
using RowResults = std::map<std::string, Bytes>;

// The plans of a case, one for each bucket of rows that a session has.
class BatchPlans {
 public:
  BatchPlans(Device& device, Case test, uint64_t seed)
      : device_(device), test_(std::move(test)), random_(seed) {}

  // Runs a step with these rows of the case, in this order. The slots that have no row in it get
  // another past.
  Result<std::vector<RowResults>> Run(const std::vector<size_t>& rows) {
    const auto count = static_cast<int64_t>(rows.size());
    RL_ASSIGN_OR_RETURN(Plan * plan, Find(count));
    Program& program = *plan->program;
    RL_RETURN_IF_ERROR(program.Poison(0xFF));
    RL_RETURN_IF_ERROR(program.BindAll(StepOf(rows)));
    const Extents extents{count, count};
    RL_RETURN_IF_ERROR(program.Run(extents));
    std::vector<RowResults> results(rows.size());
    for (const Output& output : test_.graph.outputs) {
      const std::string& name = test_.graph.value(output.value).name;
      RL_ASSIGN_OR_RETURN(const Bytes bytes, program.Read(name, extents));
      const size_t size = bytes.size() / rows.size();
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(i * size);
        results[i][name] = Bytes(first, first + static_cast<std::ptrdiff_t>(size));
      }
    }
    return results;
  }

 private:
  struct Plan {
    Case test;  // compiled for the bucket
    std::unique_ptr<Program> program;
  };

  Result<Plan*> Find(int64_t rows) {
    RL_ASSIGN_OR_RETURN(const int64_t bucket, ChooseBucket(DecodeBuckets(test_.extents.t), rows));
    const auto [place, is_new] = plans_.try_emplace(bucket);
    Plan& plan = place->second;
    if (is_new) {
      plan.test = test_;
      plan.test.graph.max_t = plan.test.graph.max_r = bucket;
      RL_ASSIGN_OR_RETURN(plan.program, Program::Create(device_, plan.test));
    }
    return &plan;
  }

  Case StepOf(const std::vector<size_t>& rows) {
    Case step = test_;
    for (auto& [name, bytes] : step.data) {
      const Value& value = test_.graph.value(test_.graph.Find(name));
      if (value.lifetime != Lifetime::kInput) continue;
      const Dim dim = value.type.rows();
      if (dim == Dim::T()) {
        bytes = Picked(bytes, rows);
      } else if (dim == Dim::R()) {
        std::vector<int32_t> all(rows.size());
        for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
        bytes = BytesOf(all);
      } else if (name == "past") {
        bytes = PastOf(bytes, rows);
      }
    }
    return step;
  }

  [[nodiscard]] Bytes Picked(const Bytes& bytes, const std::vector<size_t>& rows) const {
    const size_t size = bytes.size() / static_cast<size_t>(test_.extents.t);
    Bytes picked;
    for (const size_t row : rows) {
      const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(row * size);
      picked.insert(picked.end(), first, first + static_cast<std::ptrdiff_t>(size));
    }
    return picked;
  }

  Bytes PastOf(const Bytes& bytes, const std::vector<size_t>& rows) {
    std::vector<int32_t> past(static_cast<size_t>(test_.extents.t));
    std::memcpy(past.data(), bytes.data(), bytes.size());
    const int32_t most = *std::ranges::max_element(past);
    for (size_t slot = 0; slot < past.size(); ++slot) {
      const bool in_step = std::ranges::find(rows, slot) != rows.end();
      if (!in_step) past[slot] = static_cast<int32_t>(random_.Int(0, most));
    }
    return BytesOf(past);
  }

  Device& device_;
  Case test_;
  Random random_;
  std::map<int64_t, Plan> plans_;
};

// The outputs that were found to differ, each with the numbers of rows of the steps.
class Differences {
 public:
  void Add(const RowResults& alone, const RowResults& together, size_t rows) {
    for (const auto& [name, bytes] : together) {
      if (bytes != alone.at(name)) steps_[name].insert(rows);
    }
  }
  [[nodiscard]] Status AsStatus() const {
    std::string list;
    for (const auto& [name, rows] : steps_) {
      list += fmt::format("{}'{}' in steps of {} rows", list.empty() ? "" : "; ", name,
                          fmt::join(rows, ", "));
    }
    if (list.empty()) return OkStatus();
    return Failed("a row gives other bytes than alone: {}", list);
  }

 private:
  std::map<std::string, std::set<size_t>> steps_;
};

Status NeighboursChangeNothing(Suite& suite, Device& device, const CaseSpec& spec) {
  if (!device.description().deterministic) return Unsupported("the device is not deterministic");
  const uint64_t seed = SeedOf(suite, spec.name);
  Case test = spec.make(seed);
  RL_ASSIGN_OR_RETURN(std::string refusal, WhyUnsupported(device, test.graph));
  if (!refusal.empty()) return Unsupported(std::move(refusal));
  const auto slots = static_cast<size_t>(test.extents.t);
  BatchPlans plans(device, std::move(test), seed);
  std::vector<RowResults> alone;
  for (size_t slot = 0; slot < slots; ++slot) {
    RL_ASSIGN_OR_RETURN(std::vector<RowResults> results, plans.Run({slot}));
    alone.push_back(std::move(results.front()));
  }
  constexpr size_t kRows[] = {1, 2, 3, 4, 7, 8, 15, 16, 17};
  // Slots in turn from the first, and every fifth from another on, so that a row has other
  // neighbours and another place. Five and the number of slots have no common factor.
  constexpr std::pair<size_t, size_t> kOrders[] = {{0, 1}, {3, 5}};
  Differences differences;
  for (const size_t count : kRows) {
    if (count > slots) break;
    for (const auto& [first, step] : kOrders) {
      std::vector<size_t> rows;
      rows.reserve(count);
      for (size_t i = 0; i < count; ++i) rows.push_back((first + i * step) % slots);
      RL_ASSIGN_OR_RETURN(const std::vector<RowResults> results, plans.Run(rows));
      for (size_t i = 0; i < count; ++i) {
        differences.Add(alone[rows[i]], results[i], count);
      }
    }
  }
  return differences.AsStatus();
}

}  // namespace

void AddBatchTests(std::vector<NamedTest>& tests) {
  const std::vector<CaseSpec> cases = BatchCases();
  const std::set<std::string> quick = QuickSample(cases);
  for (const CaseSpec& spec : cases) {
    tests.push_back({"Batch." + spec.name,
                     [spec](Suite& suite, Device& device) {
                       return NeighboursChangeNothing(suite, device, spec);
                     },
                     quick.contains(spec.name)});
  }
}

}  // namespace rullama::conformance
