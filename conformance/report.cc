#include "conformance/report.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

namespace rullama::conformance {
namespace {

// Stands for the name of a test where none is to blame.
constexpr std::string_view kWholeRun = "the whole run";

}  // namespace

void Report::Ready(const Event& ready, size_t tests) {
  if (!plugin_.empty()) return;
  plugin_ = ready.plugin;
  version_ = ready.version;
  fmt::print("{} {} on {}, {} tests, seed {}\n", plugin_, version_, ready.device, tests,
             flags_.seed);
}

void Report::Begin(std::string_view test) const {
  if (flags_.verbose) fmt::print("[ RUN      ] {}\n", test);
}

void Report::End(std::string_view test, Verdict verdict, const std::string& text) {
  const auto* refused = FindEntry(manifest_.unsupported, test);
  const auto* known = FindEntry(manifest_.expected_failure, test);
  const bool unsupported = verdict == Verdict::kUnsupported;
  if (refused != nullptr && !unsupported) {
    return Add(test, "failed",
               "the manifest says it is unsupported, and the plugin runs it; remove the entry");
  }
  const bool listed =
      (manifest_.matrix_lists_refused_ops && test.starts_with("Op.")) || MayRefuse(manifest_, text);
  if (unsupported && refused == nullptr && manifest_.names_all_unsupported && !listed) {
    return Add(test, "failed",
               fmt::format("the plugin refuses it ({}), and the manifest does not name it as "
                           "unsupported; let the plugin run it or add an entry",
                           text));
  }
  if (unsupported) return Add(test, "unsupported", text);
  if (known != nullptr && verdict == Verdict::kPassed) {
    return Add(test, "failed", "passes, and the manifest expects a failure; remove the entry");
  }
  if (known != nullptr) return Add(test, "expected failure", known->reason);
  Add(test, verdict == Verdict::kPassed ? "passed" : "failed", text);
}

void Report::Fail(const std::string& text) { Add(kWholeRun, "failed", text); }

void Report::Add(std::string_view test, std::string_view status, const std::string& text) {
  outcomes_.push_back({std::string(test), std::string(status), text});
  ++counts_[std::string(status)];
  if (status == "failed") {
    fmt::print("[  FAILED  ] {}\n  {}\n  again: {}\n", test, text,
               flags_.Again(test == kWholeRun ? flags_.filter : test));
  } else if (flags_.verbose && status == "passed") {
    fmt::print("[       OK ] {}\n", test);
  } else if (flags_.verbose) {
    fmt::print("[  SKIPPED ] {}: {}: {}\n", test, status, text);
  }
}

void Report::PrintSummary() const {
  std::string line;
  for (const char* status : {"passed", "failed", "unsupported", "expected failure"}) {
    const auto count = counts_.find(status);
    line += fmt::format("{}{} {}", line.empty() ? "" : ", ",
                        count == counts_.end() ? 0 : count->second, status);
  }
  fmt::print("{}\n", line);
}

Status Report::Write() const {
  if (flags_.json.empty()) return OkStatus();
  nlohmann::json report = {{"plugin", plugin_},
                           {"version", version_},
                           {"seed", flags_.seed},
                           {"tests", nlohmann::json::array()}};
  for (const Outcome& outcome : outcomes_) {
    nlohmann::json row = {{"test", outcome.test}, {"status", outcome.status}};
    if (!outcome.text.empty()) row["text"] = outcome.text;
    report["tests"].push_back(std::move(row));
  }
  std::ofstream file(flags_.json);
  // A text may hold bytes of the plugin that are not UTF-8.
  file << report.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  file.close();
  if (file) return OkStatus();
  return MakeError(ErrorKind::kIo, "conformance.report", "cannot write '{}'", flags_.json);
}

}  // namespace rullama::conformance
