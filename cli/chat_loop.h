// A conversation on a terminal, line by line.
#pragma once

#include "cli/answer.h"

namespace rullama::cli {

// Until /exit, end of input or SIGTERM. Ctrl-C stops an answer, or clears the line. With the option
// `raw` each line is continued on its own. The result is the exit code.
Result<int> RunChatLoop(Engine& engine, const AnswerOptions& options, Console& console);

}  // namespace rullama::cli
