// The table of `rullama bench`: Markdown in the layout of llama-bench, which stands alone when it
// is pasted somewhere else. Pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace rullama::cli {

// The properties that all rows of a table share.
struct BenchSubject {
  std::string model;  // "gemma4:e2b"
  std::string quantization;
  uint64_t bytes = 0;  // of its file
  uint64_t parameters = 0;
  std::string backend;
  std::string device;
  std::string driver;
  std::string threads;  // "4"; "-" for backends without such an option
  std::string build;    // "0.2.0 (a422e76)"
};

// One test.
struct BenchRow {
  std::string test;         // "pp512 @ d1024"
  double mean_per_s = 0;    // tokens
  double stddev_per_s = 0;  // 0 for a single repetition
  double gb_per_s = 0;      // read at least, 1e9 bytes
  double gflop_per_s = 0;   // computed at least
};

// The lines above the rows, and one row.
std::string BenchTableHead(const BenchSubject& subject);
std::string BenchTableRow(const BenchSubject& subject, const BenchRow& row);
// The line below: device and build.
std::string BenchTableFoot(const BenchSubject& subject);

// A warning about a test whose repetitions differ by more than a tenth; empty for the others.
std::string SpreadWarning(const BenchRow& row);

}  // namespace rullama::cli
