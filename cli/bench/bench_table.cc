#include "cli/bench/bench_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/base/size_text.h"

namespace rullama::cli {
namespace {

constexpr double kBusySpread = 0.1;  // standard deviation over mean
constexpr size_t kTestWidth = 14;
constexpr size_t kRateWidth = 18;

struct Column {
  std::string_view title;
  std::string text;
  size_t width;
  bool right;
};

// Characters, not bytes: the table contains a plus-minus sign.
size_t Characters(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string Padded(std::string_view text, size_t width, bool right) {
  const size_t length = Characters(text);
  const std::string blanks(width > length ? width - length : 0, ' ');
  return right ? blanks + std::string(text) : std::string(text) + blanks;
}

std::vector<Column> Columns(const BenchSubject& subject, const BenchRow& row) {
  std::vector<Column> columns = {
      {"model", subject.model + " " + subject.quantization, 0, false},
      {"size", SizeText(subject.bytes), 0, true},
      {"params", ParametersText(subject.parameters), 0, true},
      {"backend", subject.backend, 0, false},
      {"threads", subject.threads, 0, true},
      {"test", row.test, kTestWidth, true},
      {"t/s", fmt::format("{:.2f} ± {:.2f}", row.mean_per_s, row.stddev_per_s), kRateWidth, true},
      {"GB/s", fmt::format("{:.1f}", row.gb_per_s), 7, true},
      {"GFLOP/s", fmt::format("{:.1f}", row.gflop_per_s), 8, true}};
  for (Column& column : columns) {
    // The same in each row but for those with a width of their own.
    if (column.width == 0) column.width = std::max(column.title.size(), Characters(column.text));
  }
  return columns;
}

}  // namespace

std::string BenchTableHead(const BenchSubject& subject) {
  std::string titles = "|";
  std::string rule = "|";
  for (const Column& column : Columns(subject, {})) {
    titles += " " + Padded(column.title, column.width, column.right) + " |";
    rule += " " + std::string(column.width - 1, '-') + (column.right ? ":" : "-") + " |";
  }
  return titles + "\n" + rule + "\n";
}

std::string BenchTableRow(const BenchSubject& subject, const BenchRow& row) {
  std::string text = "|";
  for (const Column& column : Columns(subject, row)) {
    text += " " + Padded(column.text, column.width, column.right) + " |";
  }
  return text + "\n";
}

std::string BenchTableFoot(const BenchSubject& subject) {
  return fmt::format("\ndevice: {} ({})\nbuild: rullama {}\n", subject.device, subject.driver,
                     subject.build);
}

std::string SpreadWarning(const BenchRow& row) {
  if (!(row.stddev_per_s > kBusySpread * row.mean_per_s)) return {};
  return fmt::format(
      "{} varies by {:.0f} %: the machine is busy; measure again when it is idle, or with more "
      "repetitions (-r)",
      row.test, 100 * row.stddev_per_s / row.mean_per_s);
}

}  // namespace rullama::cli
