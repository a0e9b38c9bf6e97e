// Notices that go to the log of an engine's options. Borrows the options, which outlive it.
#pragma once

#include <string_view>

#include "engine/api/options.h"
#include "engine/host_hooks.h"

namespace rullama {

class LoggedNotices final : public Notices {
 public:
  explicit LoggedNotices(const EngineOptions& options) : options_(options) {}
  void Note(std::string_view text) override { Log(LogLevel::kNote, text); }
  void Warn(std::string_view text) override { Log(LogLevel::kWarning, text); }

 private:
  void Log(LogLevel level, std::string_view text) {
    if (options_.log) options_.log(level, text);
  }
  const EngineOptions& options_;
};

}  // namespace rullama
