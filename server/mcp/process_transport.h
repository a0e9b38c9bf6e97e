// Messages over the standard streams of a program, one a line.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "server/mcp/child_process.h"
#include "server/mcp/transport.h"

namespace rullama::server::mcp {

// A thread of its own reads what the program writes. Lines of its standard error go to `log`.
class ProcessTransport final : public Transport {
 public:
  // Error mcp.start (kRuntime).
  static Result<std::unique_ptr<ProcessTransport>> Start(const ToolServerEntry& entry,
                                                         OnMessage on_message, Log log);
  ProcessTransport(const ProcessTransport&) = delete;
  ProcessTransport& operator=(const ProcessTransport&) = delete;
  // Ends the program and all that it has started.
  ~ProcessTransport() override;

  Result<Message> Ask(int64_t id, const std::string& text, const Wait& wait) override;
  Status Tell(const std::string& text, const Wait& wait) override;
  void SetVersion(const std::string& /*version*/) override {}
  [[nodiscard]] bool HearsOfChanges() const override { return true; }
  [[nodiscard]] bool closed() const override;

 private:
  ProcessTransport(std::unique_ptr<ChildProcess> process, int wake, OnMessage on_message, Log log);

  // The thread that reads.
  void Read();
  void ReadToTheEnd();
  // Reads what is there. Returns whether there can be more.
  bool ReadOutput();
  void ReadErrors();
  void TakeLine(std::string_view line);
  void TakeErrorLine(std::string_view line);
  void Take(const Message& message);
  // Nothing works from now on; the first error counts.
  void Close(Error error);
  // Writes a line. One that is cut short closes the transport.
  Status Write(const std::string& text, const Wait& wait);
  // Waits until no other thread writes a line.
  Status BeginLine(const Wait& wait);
  Status WriteLine(std::string_view line, const Wait& wait);
  // The program reads no more: closes the transport, unless the program's end does.
  Status CloseInput();

  const std::unique_ptr<ChildProcess> process_;
  const int wake_;  // an event that ends the thread
  const OnMessage on_message_;
  const Log log_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool writing_ = false;                             // a line
  std::map<int64_t, std::optional<Message>> asked_;  // requests that wait, with their answers
  std::optional<Error> closed_;
  // Used on the thread that reads alone.
  std::string output_;
  std::string errors_;
  std::string last_error_line_;
  int64_t bad_lines_ = 0;
  int64_t error_lines_ = 0;
  std::thread reader_;
};

}  // namespace rullama::server::mcp
