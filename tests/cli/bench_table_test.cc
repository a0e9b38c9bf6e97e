// The table of `rullama bench`: what people paste has to stand alone.
#include "cli/bench/bench_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace rullama::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

BenchSubject Subject() {
  return {.model = "gemma4:e2b",
          .quantization = "Q4_K_M",
          .bytes = uint64_t{3} << 30,
          .parameters = 4'630'000'000,
          .backend = "cpu",
          .device = "A processor",
          .driver = "kernels for avx2",
          .threads = "16",
          .build = "1.2.3 (abc)"};
}

size_t Characters(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

TEST(BenchTable, LinesHaveOneWidthAndTellTheWholeSetting) {
  const BenchSubject subject = Subject();
  const std::string table = BenchTableHead(subject) +
                            BenchTableRow(subject, {.test = "pp512 @ d8192",
                                                    .mean_per_s = 37100.25,
                                                    .stddev_per_s = 120.5,
                                                    .gb_per_s = 1000.25,
                                                    .gflop_per_s = 99999.5}) +
                            BenchTableRow(subject, {.test = "tg128", .mean_per_s = 5.5});
  std::istringstream lines(table);
  size_t width = 0;
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_EQ(std::ranges::count(line, '|'), 10) << line;
    if (width == 0) width = Characters(line);
    EXPECT_EQ(Characters(line), width) << line;
  }
  EXPECT_EQ(count, 4u);
  EXPECT_LE(width, 122u) << "as wide as the table of llama-bench";
  for (const char* part : {"| gemma4:e2b Q4_K_M |", "| 3.00 GiB |", "| 4.63 B |", "| cpu ", " 16 |",
                           "37100.25 ± 120.50 |", "pp512 @ d8192 |"}) {
    EXPECT_THAT(table, HasSubstr(part));
  }
  const std::string foot = BenchTableFoot(subject);
  EXPECT_THAT(foot, HasSubstr("A processor (kernels for avx2)"));
  EXPECT_THAT(foot, HasSubstr("rullama 1.2.3 (abc)"));
}

TEST(BenchTable, ALargeSpreadIsNamed) {
  EXPECT_THAT(
      SpreadWarning({.test = "tg128", .mean_per_s = 107, .stddev_per_s = 89}),
      ::testing::AllOf(HasSubstr("tg128 varies by 83 %"), HasSubstr("the machine is busy")));
  EXPECT_THAT(SpreadWarning({.test = "tg128", .mean_per_s = 100, .stddev_per_s = 10}), IsEmpty());
  EXPECT_THAT(SpreadWarning({.test = "tg128", .mean_per_s = 100, .stddev_per_s = 0}), IsEmpty());
}

}  // namespace
}  // namespace rullama::cli
