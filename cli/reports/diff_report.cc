#include "cli/reports/diff_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/printable.h"

namespace rullama::cli {
namespace {

bool IsAboveKl(const DiffReport& report) {
  return !(report.logits.mean_kl <= report.thresholds.kl);
}

// The largest divergence and where it is, "0.3 at position 3, after 'Anna'".
std::string LargestText(const DiffReport& report) {
  std::string kl = fmt::format("{:.3g}", report.logits.max_kl);
  const auto worst = std::ranges::max_element(report.positions, {}, &PositionError::kl);
  if (worst == report.positions.end() || report.logits.max_kl == 0) return kl;
  return fmt::format("{} at {}", kl,
                     PositionText(report, static_cast<size_t>(worst - report.positions.begin())));
}

bool IsBelowTop1(const DiffReport& report) { return report.logits.top1 < report.thresholds.top1; }

}  // namespace

const ValueRow* FirstAbove(const DiffReport& report) {
  const auto first = std::ranges::find(report.values, true, &ValueRow::above);
  return first == report.values.end() ? nullptr : &*first;
}

std::string PositionText(const DiffReport& report, size_t position) {
  constexpr size_t kLongestText = 40;
  if (position >= report.texts.size()) return fmt::format("position {}", position);
  return fmt::format("position {}, after '{}'", position,
                     Printable(report.texts[position], kLongestText));
}

std::string CauseText(const DiffReport& report, const std::string& baseline) {
  if (!report.culprit) {
    std::string text =
        "caused by: no single op that the logits show: with all ops on the backend and nothing "
        "watched, they are within the thresholds";
    if (!report.first_op) return text;
    return fmt::format("{}; the first value above its threshold is that of {} ({})", text,
                       report.first_op->name, report.first_op->kind);
  }
  std::string named = fmt::format("caused by: {} ({})", report.culprit->op, report.culprit->kind);
  if (report.culprit->alone) return named;
  if (report.culprit->of_kind > 1) {
    return fmt::format(
        "{}, the first of {} {} ops: with all of them on {}, the logits are within "
        "the thresholds",
        named, report.culprit->of_kind, report.culprit->kind, baseline);
  }
  return fmt::format("{}, the first of several: with it alone on {}, the logits stay above", named,
                     baseline);
}

std::string DiffText(const DiffReport& report, const std::string& baseline) {
  const DiffConfig& most = report.thresholds;
  std::string text = fmt::format(
      "{} against {}; thresholds: NMSE {:.3g}, KL {:.3g} nats, same best token {:.4g} %\n"
      "{:<32} {:>10} {:>10} {:>12}\n",
      report.backend, baseline, most.nmse, most.kl, 100 * most.top1, "value", "NMSE", "max error",
      "1 - cosine");
  for (const ValueRow& row : report.values) {
    text += fmt::format("{:<32} {:>10.3g} {:>10.3g} {:>12.3g}{}\n", row.name, row.error.nmse,
                        row.error.max_error, std::max(0.0, 1 - row.error.cosine),
                        row.above ? "  ABOVE" : "");
  }
  for (const SelectionRow& row : report.selections) {
    text += fmt::format(
        "{}: {} rows are chosen otherwise, among scores up to {:.3g} of their size apart; {} was "
        "made to follow{}\n",
        row.name, row.error.rows, row.error.gap, baseline, row.above ? "  ABOVE" : "");
  }
  text += fmt::format("logits: KL {:.3g} nats{} (largest {}), same best token {:.4g} %{}\n",
                      report.logits.mean_kl,
                      IsAboveKl(report) ? fmt::format(" ABOVE {:.3g}", most.kl) : "",
                      LargestText(report), 100 * report.logits.top1,
                      IsBelowTop1(report) ? fmt::format(" BELOW {:.4g} %", 100 * most.top1) : "");
  if (const ValueRow* first = FirstAbove(report)) {
    text += fmt::format("first above: {}\n", first->name);
  }
  if (report.bisected) text += CauseText(report, baseline) + "\n";
  return text + (report.above ? "different\n" : "the same, within the thresholds\n");
}

nlohmann::json DiffJson(const DiffReport& report, const std::string& baseline) {
  nlohmann::json values = nlohmann::json::array();
  for (const ValueRow& row : report.values) {
    values.push_back({{"name", row.name},
                      {"nmse", row.error.nmse},
                      {"max_error", row.error.max_error},
                      {"cosine", row.error.cosine},
                      {"not_finite", row.error.not_finite},
                      {"above", row.above}});
  }
  nlohmann::json choices = nlohmann::json::array();
  for (const SelectionRow& row : report.selections) {
    choices.push_back({{"name", row.name},
                       {"rows", row.error.rows},
                       {"gap", row.error.gap},
                       {"above", row.above}});
  }
  nlohmann::json result = {{"backend", report.backend},
                           {"baseline", baseline},
                           {"values", std::move(values)},
                           {"choices", std::move(choices)},
                           {"logits",
                            {{"mean_kl", report.logits.mean_kl},
                             {"max_kl", report.logits.max_kl},
                             {"top1", report.logits.top1}}},
                           {"thresholds",
                            {{"nmse", report.thresholds.nmse},
                             {"kl", report.thresholds.kl},
                             {"top1", report.thresholds.top1}}},
                           {"above", report.above}};
  if (report.culprit) {
    result["culprit"] = {{"op", report.culprit->op},
                         {"kind", report.culprit->kind},
                         {"alone", report.culprit->alone},
                         {"of_kind", report.culprit->of_kind}};
  }
  if (report.first_op) {
    result["first_op"] = {{"op", report.first_op->name}, {"kind", report.first_op->kind}};
  }
  return result;
}

}  // namespace rullama::cli
