// Fine-tuning, for Python.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>
#include <vector>

namespace rullama::python {

// Arguments as those of Model and of rullama::FineTuneOptions. `on_report` is called with a dict of
// each report and checkpoint, while the run waits for it; an exception that it raises ends the run
// with a checkpoint and passes on. `group`: None or an object as PythonGroup describes it, whose
// exceptions pass on too. Returns a dict of the result and the lines of the log.
nanobind::dict FineTuneFromPython(const std::string& model, const std::string& backend,
                                  const std::string& config_file,
                                  const std::vector<std::pair<std::string, std::string>>& settings,
                                  const std::vector<std::string>& plugin_paths,
                                  const std::string& resume, const std::string& first_adapter,
                                  bool overwrite, const nanobind::object& on_report,
                                  const nanobind::object& group, bool on_main_thread);

}  // namespace rullama::python
