// The process that loads the plugin and runs the tests. It reports to its parent (supervisor.h)
// before and after each test, so that the parent knows which test ended the process.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "conformance/flags.h"
#include "conformance/suite.h"
#include "core/base/status.h"

namespace rullama::conformance {

enum class Verdict { kPassed, kFailed, kUnsupported };

struct Event {
  enum class Kind {
    kReady,  // plugin, version and device are set
    kBegin,  // of the next test
    kEnd,    // of that test: verdict and text
    kDone,   // all tests have run, and the device is closed; text: what was wrong with that
    kError,  // the plugin cannot be used: error_kind, error_id, text
    kLast,   // the process dies: text, as in last_words.h
  };
  Kind kind = Kind::kReady;
  std::string plugin, version, device;
  Verdict verdict = Verdict::kPassed;
  std::string text;
  int error_kind = 0;
  std::string error_id;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Event, kind, plugin, version, device, verdict, text, error_kind,
                                   error_id)

// Opens the plugin and says what the flags say about it. Errors: those of Plugin; usage.option.
Result<Suite> OpenSuite(const Flags& flags);

// Runs the tests in their order. Standard output of this process is gone afterwards.
void RunWorker(const Flags& flags, std::span<const NamedTest> tests,
               const std::function<void(const Event&)>& tell);

}  // namespace rullama::conformance
