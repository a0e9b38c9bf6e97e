#include "cli/commands/serve_end.h"

#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "core/base/alternate_stack.h"

namespace rullama::cli {

bool CloseWithin(std::chrono::milliseconds limit, std::unique_ptr<server::Api> api) {
  std::promise<void> promise;
  std::future<void> closed = promise.get_future();
  std::thread closing;
  try {
    closing = std::thread([api = std::move(api), promise = std::move(promise)]() mutable {
      const AlternateStack stack;  // plugins run here
      api.reset();
      promise.set_value();
    });
  } catch (const std::system_error&) {
    return true;  // the system gave no thread, and the models were closed here
  }
  if (closed.wait_for(limit) != std::future_status::ready) {
    closing.detach();
    return false;
  }
  closing.join();
  return true;
}

}  // namespace rullama::cli
