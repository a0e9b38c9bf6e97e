// The end of a server. The compilers of drivers cannot be stopped and take seconds, so a server
// that is told to end does not wait for them. Kernels that are complete are in the caches; the
// others are compiled at the next start.
#pragma once

#include <chrono>
#include <memory>

#include "server/api.h"

namespace rullama::cli {

// The time that a start may take once it was told to end, in seconds (SetDrainSeconds).
inline constexpr unsigned kSecondsToStop = 1;
inline constexpr std::chrono::milliseconds kTimeToClose{500};

// Closes the models and their devices. Call it after Api::Finish(). Returns whether that is done:
// if it takes longer than `limit`, a thread is still closing them, and the program has to end
// without destructors (CommandContext::leaves_threads).
[[nodiscard]] bool CloseWithin(std::chrono::milliseconds limit, std::unique_ptr<server::Api> api);

}  // namespace rullama::cli
