#include "cli/reports/report_file.h"

#include <span>

namespace rullama::cli {

Result<std::unique_ptr<ReportFile>> ReportFile::Create(const std::optional<std::string>& path) {
  if (!path) return std::unique_ptr<ReportFile>();
  RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(*path));
  return std::unique_ptr<ReportFile>(new ReportFile(std::move(file)));
}

Status ReportFile::Write(std::string_view text) {
  RL_RETURN_IF_ERROR(file_.Append(std::as_bytes(std::span(text))));
  return file_.Commit();
}

}  // namespace rullama::cli
