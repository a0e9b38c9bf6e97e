#include "cli/commands/build_info.h"

#include "build_commit.h"

namespace rullama::cli {

std::string BuildCommit() { return kBuildCommit; }

std::string BuildText() {
  const std::string commit = BuildCommit();
  return commit.empty() ? RULLAMA_VERSION : RULLAMA_VERSION " (" + commit + ")";
}

}  // namespace rullama::cli
