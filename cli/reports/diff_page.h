// The page of `rullama diff --html`. Pure function; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/reports/diff_report.h"
#include "core/ir/graph.h"

namespace rullama::cli {

struct DiffSubject {
  std::string model;
  int64_t tokens = 0;
  std::string level;  // "op", "layer" or "logits"
  std::string baseline;
};

// `graph` computes the values of the reports; names in both may be any bytes.
std::string DiffPage(const DiffSubject& subject, const Graph& graph,
                     const std::vector<DiffReport>& reports);

}  // namespace rullama::cli
