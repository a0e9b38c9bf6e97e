// The result of `rullama diff` for one backend, as text and as JSON. Plain data and pure functions;
// thread-safe.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/diff/compare.h"
#include "core/diff/router_selections.h"

namespace rullama::cli {

struct ValueRow {
  std::string name;
  ValueError error;
  bool above = false;  // the threshold
};

// A choice that the baseline was made to follow.
struct SelectionRow {
  std::string name;
  SelectionError error;
  bool above = false;
};

struct Culprit {
  std::string op;
  std::string kind;
  bool alone = false;  // with this op alone on the baseline, the logits are within the thresholds
  // How many ops of this kind there are if, with all of them on the baseline, the logits are within
  // the thresholds; else 0.
  size_t of_kind = 0;
};

// An op by its first result.
struct NamedOp {
  std::string name;
  std::string kind;
};

// The absolute differences of one value.
struct ErrorMap {
  std::string name;
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<double> cells;  // rows x columns
};

struct DiffReport {
  std::string backend;
  DiffConfig thresholds;
  std::vector<ValueRow> values;          // in the order they are computed
  std::vector<SelectionRow> selections;  // that the baseline would have made otherwise
  LogitsError logits;
  bool above = false;
  bool bisected = false;                 // whether an op was looked for
  std::optional<Culprit> culprit;        // what --bisect found
  std::optional<NamedOp> first_op;       // without a culprit: the first whose value is above
  std::vector<PositionError> positions;  // of the logits, by token
  std::vector<std::string> texts = {};   // of the tokens; empty if they have none
  std::optional<ErrorMap> map;           // of the value that --heat names
};

// The first value above its threshold, or null.
const ValueRow* FirstAbove(const DiffReport& report);
// "position 3, after 'Anna'": where the model read that token, whose prediction is meant.
std::string PositionText(const DiffReport& report, size_t position);
// A sentence on what --bisect found.
std::string CauseText(const DiffReport& report, const std::string& baseline);

std::string DiffText(const DiffReport& report, const std::string& baseline);
nlohmann::json DiffJson(const DiffReport& report, const std::string& baseline);

}  // namespace rullama::cli
