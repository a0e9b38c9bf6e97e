#include "cli/reports/diff_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "cli/reports/heat_map.h"
#include "cli/reports/page.h"
#include "core/drawing/chart.h"
#include "core/drawing/markup.h"
#include "core/drawing/picture.h"
#include "core/ir/dot.h"

namespace rullama::cli {
namespace {

constexpr size_t kMaxReaders = 8;

// The first value of each block, and the last of all.
std::vector<drawing::Tick> TicksOf(const std::vector<ValueRow>& values) {
  std::vector<drawing::Tick> ticks;
  int64_t last = kNoBlock;
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t block = BlockOfName(values[i].name);
    if (block != kNoBlock && block != last) {
      ticks.push_back({static_cast<double>(i), fmt::format("block {}", block)});
    }
    last = block;
  }
  return ticks;
}

drawing::Picture ErrorChart(const DiffReport& report) {
  drawing::ChartSeries series;
  for (size_t i = 0; i < report.values.size(); ++i) {
    const ValueRow& row = report.values[i];
    series.points.push_back(
        {.x = static_cast<double>(i),
         .y = row.error.nmse,
         .note = fmt::format("{}: {}", row.name, drawing::NumberText(row.error.nmse)),
         .marked = row.above});
  }
  return drawing::DrawChart(
      {.title = "Error of each value, in the order of computation",
       .x_label = "value",
       .y_label = "NMSE",
       .log_y = true,
       .series = {std::move(series)},
       .limits = {{report.thresholds.nmse,
                   "threshold " + drawing::NumberText(report.thresholds.nmse)}},
       .x_ticks = TicksOf(report.values)});
}

drawing::Picture DivergenceChart(const DiffReport& report) {
  drawing::ChartSeries series;
  for (size_t i = 0; i < report.positions.size(); ++i) {
    const PositionError& position = report.positions[i];
    series.points.push_back({.x = static_cast<double>(i),
                             .y = position.kl,
                             .note = fmt::format("{}: {} nats{}", PositionText(report, i),
                                                 drawing::NumberText(position.kl),
                                                 position.same_best ? "" : ", another best token"),
                             .marked = !position.same_best});
  }
  return drawing::DrawChart(
      {.title = "Divergence of the predictions",
       .x_label = "position",
       .y_label = "KL (nats)",
       .log_y = true,
       .series = {std::move(series)},
       .limits = {{report.thresholds.kl,
                   "threshold of the mean " + drawing::NumberText(report.thresholds.kl)}}});
}

// The item of a value in the neighbourhood of another.
std::string NeighbourMarkup(const Graph& graph, ValueId id, std::string_view role,
                            const DiffReport& report) {
  const Value& value = graph.value(id);
  const auto row = std::ranges::find(report.values, value.name, &ValueRow::name);
  const bool known = row != report.values.end();
  const std::string made = value.producer == kNoOp
                               ? std::string()
                               : fmt::format(", by {}", NameOf(graph.ops[value.producer].kind));
  const std::string source = value.source.empty() || value.source == value.name
                                 ? ""
                                 : fmt::format("<br>weight {}", drawing::Escaped(value.source));
  const std::string error = known
                                ? fmt::format("<br>NMSE {}{}", drawing::NumberText(row->error.nmse),
                                              row->above ? ", above the threshold" : "")
                                : "";
  return fmt::format("<li{}><span class=\"dim\">{}</span> <code>{}</code><br>{}{}{}{}</li>\n",
                     known && row->above ? " class=\"bad\"" : "", drawing::Escaped(role),
                     drawing::Escaped(value.name), drawing::Escaped(ToString(value.type)), made,
                     source, error);
}

std::string ReadersMarkup(const Graph& graph, ValueId id, const DiffReport& report) {
  std::string items;
  size_t readers = 0;
  for (const Op& op : graph.ops) {
    const auto at = std::ranges::find(op.inputs, id);
    if (at == op.inputs.end() || ++readers > kMaxReaders) continue;
    const auto operand = static_cast<size_t>(at - op.inputs.begin());
    const auto& operands = InfoOf(op.kind).operands;
    const std::string role =
        fmt::format("reads it as {}:", operand < operands.size() ? operands[operand].name : "x");
    items += NeighbourMarkup(graph, op.results[0], role, report);
  }
  if (readers > kMaxReaders) items += fmt::format("<li>and {} more</li>\n", readers - kMaxReaders);
  return items.empty() ? "<li>no op; an output</li>\n" : items;
}

// The neighbourhood of a value: the operands of its op, the value and its readers.
std::string NeighbourhoodMarkup(const Graph& graph, ValueId id, const DiffReport& report) {
  std::string operands;
  const Op& op = graph.ops[graph.value(id).producer];
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (op.inputs[i] == kNoValue) continue;
    const auto& names = InfoOf(op.kind).operands;
    operands += NeighbourMarkup(graph, op.inputs[i],
                                fmt::format("{}:", i < names.size() ? names[i].name : "x"), report);
  }
  return fmt::format(
      "<div class=\"flow\"><ul>{}</ul><div class=\"arrow\"></div><ul>{}</ul><div "
      "class=\"arrow\"></div><ul>{}</ul></div>\n",
      operands, NeighbourMarkup(graph, id, "", report), ReadersMarkup(graph, id, report));
}

void AddFirstAbove(const ValueRow& first, const Graph& graph, const DiffReport& report,
                   const DiffSubject& subject, Page& page) {
  page.Subsection(fmt::format("First above its threshold: {}", first.name));
  const ValueId id = graph.Find(first.name);
  if (id == kNoValue || graph.value(id).producer == kNoOp) return;
  page.Markup(NeighbourhoodMarkup(graph, id, report));
  page.Paragraph(
      subject.level == "op"
          ? "What the op reads, the value, and which ops read it."
          : "What the op reads, the value, and which ops read it. Only values at the end "
            "of a layer were compared: --level op compares all.");
}

void AddValueTable(const DiffReport& report, Page& page) {
  std::vector<std::vector<Cell>> rows;
  rows.reserve(report.values.size());
  for (const ValueRow& row : report.values) {
    rows.push_back({{row.name, "name"},
                    {drawing::NumberText(row.error.nmse), "number"},
                    {drawing::NumberText(row.error.max_error), "number"},
                    {drawing::NumberText(std::max(0.0, 1 - row.error.cosine)), "number"},
                    {fmt::format("{}", row.error.not_finite), "number"},
                    {row.above ? "above" : "", "bad"}});
  }
  page.FoldedTable(fmt::format("All {} values as a table", rows.size()),
                   {{"value"},
                    {"NMSE", "number"},
                    {"largest error", "number"},
                    {"1 − cosine", "number"},
                    {"not finite", "number"},
                    {"threshold"}},
                   rows);
}

void AddLogits(const DiffReport& report, Page& page) {
  const DiffConfig& most = report.thresholds;
  const bool far = !(report.logits.mean_kl <= most.kl);
  const bool other = report.logits.top1 < most.top1;
  page.Table(
      {{"logits"}, {"found", "number"}, {"threshold", "number"}, {""}},
      {{{"KL, mean (nats)"},
        {drawing::NumberText(report.logits.mean_kl), "number"},
        {drawing::NumberText(most.kl), "number"},
        {far ? "above" : "", "bad"}},
       {{"KL, largest (nats)"}, {drawing::NumberText(report.logits.max_kl), "number"}, {}, {}},
       {{"same best token"},
        {fmt::format("{:.4g} %", 100 * report.logits.top1), "number"},
        {fmt::format("{:.4g} %", 100 * most.top1), "number"},
        {other ? "below" : "", "bad"}}});
}

void AddSelections(const DiffReport& report, const std::string& baseline, Page& page) {
  for (const SelectionRow& row : report.selections) {
    page.Paragraph(fmt::format(
        "{}: {} rows are chosen otherwise, among scores up to {:.3g} of their size apart; {} was "
        "made to follow{}.",
        row.name, row.error.rows, row.error.gap, baseline,
        row.above ? ", and that is above the threshold" : ""));
  }
}

void AddMap(const ErrorMap& map, Page& page) {
  page.Figure(drawing::InlineSvg(DrawHeatMap({.title = "Absolute error of " + map.name,
                                              .row_label = "position",
                                              .column_label = "element of the row",
                                              .rows = map.rows,
                                              .columns = map.columns,
                                              .cells = map.cells})),
              "Elements that share a cell show the largest of their errors.");
}

void AddReport(const DiffReport& report, const Graph& graph, const DiffSubject& subject,
               Page& page) {
  page.Section(fmt::format("{} against {}", report.backend, subject.baseline));
  page.Verdict(report.above ? "different" : "the same, within the thresholds", !report.above);
  if (report.bisected) page.Paragraph(CauseText(report, subject.baseline) + ".");
  AddLogits(report, page);
  page.Figure(drawing::InlineSvg(ErrorChart(report)),
              "Squared differences over the squares of the baseline. Triangles are above the "
              "threshold; at the lower edge there is no difference.");
  page.Figure(drawing::InlineSvg(DivergenceChart(report)),
              "Kullback-Leibler divergence of the next token. At triangles the most likely token "
              "is another one.");
  if (const ValueRow* first = FirstAbove(report))
    AddFirstAbove(*first, graph, report, subject, page);
  AddSelections(report, subject.baseline, page);
  if (report.map) AddMap(*report.map, page);
  AddValueTable(report, page);
}

}  // namespace

std::string DiffPage(const DiffSubject& subject, const Graph& graph,
                     const std::vector<DiffReport>& reports) {
  Page page("Comparison of backends");
  page.Paragraph(fmt::format("{}: {} tokens in one step from an empty cache; the baseline is {}.",
                             subject.model, subject.tokens, subject.baseline));
  for (const DiffReport& report : reports) AddReport(report, graph, subject, page);
  return page.ToHtml();
}

}  // namespace rullama::cli
