// The file that a report goes to. One thread at a time. Errors: those of AtomicFile (io.*).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/status.h"
#include "core/gguf/atomic_file.h"

namespace rullama::cli {

class ReportFile {
 public:
  // Null without a path. Opens the file, so that a name that cannot be written is noticed before
  // the work begins; the file appears when Write() is done.
  static Result<std::unique_ptr<ReportFile>> Create(const std::optional<std::string>& path);
  // Called once, at the end.
  Status Write(std::string_view text);

 private:
  explicit ReportFile(AtomicFile file) : file_(std::move(file)) {}
  AtomicFile file_;
};

}  // namespace rullama::cli
