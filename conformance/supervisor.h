// Runs the tests in a child process (worker.h). If a plugin ends that process by a crash, by exit
// or by a test that does not end, another one continues with the next test. The results of both are
// kept.
//
// Call it before this process has threads. Errors: those of the worker when the plugin cannot be
// used; conformance.crash (kBackend) if it ends while the plugin is opened; conformance.worker
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
