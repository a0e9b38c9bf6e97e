// A program that runs with its standard streams on pipes, in a group of its own. It is started
// directly, without a shell.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "core/base/status.h"
#include "server/mcp/server_list.h"

namespace rullama::server::mcp {

// Thread safety: End() from any thread; input() and CloseInput() from one thread at a time.
class ChildProcess {
 public:
  // The environment of the program is that of `entry`, and of this program the variables that every
  // program needs (PATH, HOME, the language and such): not its keys. Error mcp.start (kRuntime).
  static Result<std::unique_ptr<ChildProcess>> Start(const ToolServerEntry& entry);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  // As End() without patience.
  ~ChildProcess();

  // Descriptors, none of which blocks. `input` is -1 once it is closed.
  [[nodiscard]] int input() const { return input_; }
  [[nodiscard]] int output() const { return output_; }
  [[nodiscard]] int errors() const { return errors_; }
  // Well-behaved programs end then.
  void CloseInput();

  // Waits for `patience` until the program ends by itself, then tells its whole group to end, and
  // kills what is left of it a second later. Returns how it ended: "ended with exit code 1".
  std::string End(std::chrono::milliseconds patience);

 private:
  ChildProcess(pid_t process, int input, int output, int errors)
      : process_(process), input_(input), output_(output), errors_(errors) {}
  // Whether the program has ended within `limit`. It is not forgotten, so that the number of its
  // group stays its own.
  [[nodiscard]] bool HasEndedWithin(std::chrono::milliseconds limit) const;

  const pid_t process_;  // and its group
  int input_;
  int output_;
  int errors_;
  std::mutex mutex_;                  // guards ended_
  std::optional<std::string> ended_;  // once it has: how
};

}  // namespace rullama::server::mcp
