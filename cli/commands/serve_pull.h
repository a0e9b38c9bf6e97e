// Downloads that clients of `rullama serve` ask for. Thread safety: any number at once.
#pragma once

#include "server/services.h"

namespace rullama::cli {

// Pulls a model as `rullama pull NAME` does, until SIGTERM, Ctrl-C, or the client has left.
Status PullForClient(const std::string& text,
                     const std::function<bool(const server::PullState&)>& on_state);

}  // namespace rullama::cli
