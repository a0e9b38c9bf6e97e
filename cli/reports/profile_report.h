// The output of `rullama profile`: tables for people, and JSON, which a later call reads back to
// compare with. Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/reports/op_profile.h"
#include "cli/reports/roofline.h"
#include "core/base/status.h"

namespace rullama::cli {

// One test of one call.
struct ProfileReport {
  std::string subject;  // "gemma4:e2b on cpu, rullama 0.2.0"
  std::string test;     // "pp512"
  StepProfile profile;
  std::vector<DevicePeaks> peaks;
  std::string device = {};   // "AMD EPYC 9V74 (kernels for avx512-vnni)"; empty in old files
  std::string threads = {};  // "2"; "-" for backends without such an option

  // The time of a step, in milliseconds.
  [[nodiscard]] double StepMilliseconds(double seconds) const;
  // The part of the time of all segments, in percent.
  [[nodiscard]] double Percent(double seconds) const;
  // The time of the segments in which no op ran.
  [[nodiscard]] double SecondsBetween() const;
  // The time of the segments in which a worker ran no op, in milliseconds of a step.
  [[nodiscard]] double WaitingMilliseconds(const BusyWorker& worker) const;
  // "AMD EPYC 9V74 (kernels for avx512-vnni), 2 threads; medians of 5 runs".
  [[nodiscard]] std::string CircumstancesText() const;
};

// "bytes", "operations" or "-", and the share in percent as text.
std::string_view BoundText(Bound bound);
// More than all of a bound is "100+": the data came from caches, or the peaks were measured while
// something else ran.
std::string ShareText(const UnderRoof& place);
// The range of the runs in percent of their median, or "-".
std::string SpreadText(const OpTotal& total);
// "0.810, 0.830, 1.200": milliseconds of a step of the fastest, median and slowest of some ops.
std::string EachText(const ProfileReport& report, const RoleTotal& role);
// "cpu: 21.3 GB/s, 152 Gop/s, ridge at 7.1 operations for each byte".
std::string PeaksText(const DevicePeaks& peaks);
// The kind, after its device if `profile` has several.
std::string KindText(const StepProfile& profile, const NamedTotal& kind);

// "cpu 3": a worker and its device.
std::string WorkerText(const BusyWorker& worker);
// Whether several workers of a device shared its ops, so that one can wait for another.
bool WorkersShare(const StepProfile& profile);

// Tables in Markdown: by kind of op, by layer, by worker if several share the ops, and the
// `slowest` ops, those of all layers in a row.
std::string ProfileText(const ProfileReport& report, size_t slowest);

// The times of a name in two runs, in milliseconds of a step; negative where it does not occur.
struct TimePair {
  std::string name;
  double now = -1;
  double before = -1;

  [[nodiscard]] std::string NowText() const;
  [[nodiscard]] std::string BeforeText() const;
  // How many times as fast it has become.
  [[nodiscard]] std::string FactorText() const;
};
// The kinds of `report`, those of `before` alone, the time between ops, and the sum.
std::vector<TimePair> KindPairs(const ProfileReport& report, const ProfileReport& before);
// The same two runs as tables of kinds and of layers.
std::string ComparisonText(const ProfileReport& report, const ProfileReport& before);

// All numbers, in one line.
std::string ProfileJson(const ProfileReport& report);
// The lines of ProfileJson(); `origin` names them in errors. Error profile.file.
Result<std::vector<ProfileReport>> ParseProfiles(std::string_view text, const std::string& origin);
// The report of the same test. Error profile.test.
Result<ProfileReport> FindTest(const std::vector<ProfileReport>& reports, const std::string& test,
                               const std::string& origin);

}  // namespace rullama::cli
