#include "cli/commands/serve_pull.h"

#include <chrono>
#include <string>

#include "cli/commands/pulling.h"
#include "cli/terminal/signals.h"
#include "core/base/clock.h"

namespace rullama::cli {
namespace {

constexpr std::chrono::milliseconds kTellEvery{250};
constexpr size_t kShownDigits = 12;

// Tells a client how its download proceeds, as often as Ollama does.
class ClientView {
 public:
  explicit ClientView(const std::function<bool(const server::PullState&)>& on_state)
      : on_state_(on_state) {}

  [[nodiscard]] bool left() const { return left_; }

  void Tell(const server::PullState& state) { left_ = left_ || !on_state_(state); }

  void Show(const downloads::PlannedFile& file, uint64_t completed) {
    const Clock::time_point now = Clock::now();
    const bool complete = completed >= file.bytes;
    if (file.digest.hex == file_ && !complete && now - told_ < kTellEvery) return;
    file_ = file.digest.hex;
    told_ = now;
    Tell({.status = "pulling " + file_.substr(0, kShownDigits),
          .digest = file.digest.ToString(),
          .total = file.bytes,
          .completed = completed});
  }

 private:
  const std::function<bool(const server::PullState&)>& on_state_;
  std::string file_;
  Clock::time_point told_;
  bool left_ = false;
};

}  // namespace

Status PullForClient(const std::string& text,
                     const std::function<bool(const server::PullState&)>& on_state) {
  RL_ASSIGN_OR_RETURN(const RemoteName name, ParseRemoteName(text));
  ClientView view(on_state);
  Puller puller(name, {},
                {.cancelled = [&view, flag = CancelFlag()] { return view.left() || flag->load(); },
                 .on_progress = [&view](const downloads::PlannedFile& file,
                                        uint64_t completed) { view.Show(file, completed); }});
  view.Tell({.status = "pulling manifest"});
  RL_ASSIGN_OR_RETURN(const downloads::PullPlan plan, puller.Plan());
  RL_RETURN_IF_ERROR(puller.CarryOut(plan));
  // Both are done by now; clients show these states.
  view.Tell({.status = "verifying sha256 digest"});
  view.Tell({.status = "writing manifest"});
  return OkStatus();
}

}  // namespace rullama::cli
