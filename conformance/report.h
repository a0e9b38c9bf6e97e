// The result of each test: printed as it happens, counted, and written as JSON. Not thread-safe.
// Error of Write: conformance.report (kIo).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/flags.h"
#include "conformance/manifest.h"
#include "conformance/worker.h"
#include "core/base/status.h"

namespace rullama::conformance {

class Report {
 public:
  Report(const Flags& flags, const Manifest& manifest) : flags_(flags), manifest_(manifest) {}

  // Printed once, however many workers it takes.
  void Ready(const Event& ready, size_t tests);
  void Begin(std::string_view test) const;
  // Judges the result of a test by the manifest.
  void End(std::string_view test, Verdict verdict, const std::string& text);
  // Reports a failure that belongs to no single test: a crash after the last one, or tests that
  // were not run.
  void Fail(const std::string& text);

  [[nodiscard]] bool failed() const { return counts_.contains("failed"); }
  void PrintSummary() const;
  // Writes the file of --json; without that option it does nothing.
  [[nodiscard]] Status Write() const;

 private:
  struct Outcome {
    std::string test, status, text;
  };
  void Add(std::string_view test, std::string_view status, const std::string& text);

  const Flags& flags_;
  const Manifest& manifest_;
  std::string plugin_, version_;
  std::vector<Outcome> outcomes_;
  std::map<std::string, size_t, std::less<>> counts_;  // by status
};

}  // namespace rullama::conformance
