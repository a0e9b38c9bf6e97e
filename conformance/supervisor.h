// Runs the tests in a process of their own (worker.h), and in another one from the next test on
// when the plugin has ended it: by a crash, by exit, or by a test that does not end. The results
// before and after it are kept.
//
// To be called before this process has threads. Errors: what the worker says when the plugin cannot
// be used; conformance.crash (kBackend) if it ends while the plugin is opened; conformance.worker
// (kRuntime) if no process can be made.
#pragma once

#include <span>

#include "conformance/flags.h"
#include "conformance/report.h"
#include "conformance/suite.h"
#include "core/base/status.h"

namespace rullama::conformance {

Status Supervise(const Flags& flags, std::span<const NamedTest> tests, Report& report);

}  // namespace rullama::conformance
