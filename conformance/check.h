// Runs a case on a device and on the float64 reference and compares. Functions return an empty text
// or a description of the fault; a Status that fails is a test that fails, too.
#pragma once

#include <map>
#include <string>

#include "conformance/case.h"
#include "conformance/program.h"
#include "core/plugin/device.h"
#include "core/reference/interpreter.h"

namespace rullama::conformance {

// The reason why the device does not run this graph, or an empty text.
Result<std::string> WhyUnsupported(Device& device, const Graph& graph);

// The case after the reference has run it.
Result<reference::Interpreter> RunReference(const Case& test);

// Results of a program after a run: outputs, then states, by name.
Result<std::map<std::string, Bytes>> ReadResults(Program& program, const Case& test);

// Checks that the results are within the tolerance of the reference.
Status CompareWithReference(const Case& test, const reference::Interpreter& ran,
                            const std::map<std::string, Bytes>& results, Activations activations);

// The first of the results that has other bytes than in `expected`, with its first element that
// differs; an empty text if all are the same.
Result<std::string> Difference(const Case& test, const std::map<std::string, Bytes>& expected,
                               const std::map<std::string, Bytes>& results);

// Runs the case twice over differently poisoned memory and checks that both runs agree with the
// reference, with each other if the device is deterministic, and write nothing outside their
// values.
Status CheckCase(Device& device, const Case& test, Activations activations);

}  // namespace rullama::conformance
