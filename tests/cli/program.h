// Runs the built `rullama` as a user would, without a shell in between.
// Thread safety: one test at a time.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/cli/screen.h"

namespace rullama::cli_test {

struct RunOptions {
  std::optional<std::string> input = {};  // stdin, as a file; without it, /dev/null
  bool close_stdin = false;
  bool close_stdout = false;
  bool join_streams = false;                  // of a RunningProgram: stderr goes where stdout goes
  std::string stdout_path = {};               // instead of being captured
  std::vector<std::string> environment = {};  // added: "NAME=value"
  std::string limits = {};                    // of the process, as for ulimit: "-v 100000"
};

// Options for runs that ask every driver of the machine for its devices. Leaks of drivers are not
// ours (driver_leaks.supp); only completely unwound stacks show whose a leak is.
RunOptions AskingDrivers();

struct RunResult {
  int exit_code = -1;  // 128 + signal for a process that a signal killed
  std::string out;
  std::string err;
  int64_t max_resident_bytes = 0;
};

// Arguments without the program's name. A program that runs for two minutes is killed.
RunResult RunRullama(const std::vector<std::string>& arguments, const RunOptions& options = {});

// The same with stdout on a terminal of this size; `out` is what the terminal received.
RunResult RunOnTerminal(const std::vector<std::string>& arguments, int columns, int rows);

struct TerminalOptions {
  int columns = 80;
  int rows = 24;
  std::string term = "xterm";
  std::vector<std::string> environment = {};  // added: "NAME=value"
};

// A running program with all three streams on a terminal, which is the controlling one: its Ctrl-C
// becomes a signal. The program is killed when the object goes, if it still runs.
class ProgramOnTerminal {
 public:
  explicit ProgramOnTerminal(const std::vector<std::string>& arguments,
                             const TerminalOptions& options = {});
  ~ProgramOnTerminal();
  ProgramOnTerminal(const ProgramOnTerminal&) = delete;
  ProgramOnTerminal& operator=(const ProgramOnTerminal&) = delete;

  void Type(std::string_view bytes) const;
  // Tells the program another size; the screen keeps its own.
  void Resize(int columns, int rows) const;
  // Waits until `text` is on the screen, at least `times`; throws with what is there instead after
  // two minutes or when the program ends before.
  void Expect(std::string_view text, int times = 1);
  // The same for bytes that the terminal received.
  void ExpectBytes(std::string_view bytes);
  // Waits for the end of the program and returns its exit code.
  int Wait();

  [[nodiscard]] const Screen& screen() const { return screen_; }
  [[nodiscard]] const std::string& received() const { return received_; }  // by the terminal

 private:
  bool Receive();  // for a moment; false at the end
  void WaitUntil(const std::function<bool()>& fulfilled, std::string_view expected);

  pid_t pid_ = -1;
  int outside_ = -1;
  Screen screen_;
  std::string received_;
};

// A running program whose stdout is a pipe.
class RunningProgram {
 public:
  explicit RunningProgram(const std::vector<std::string>& arguments,
                          const RunOptions& options = {});
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  // Reads at least one byte of stdout; returns nothing at its end. Throws if two minutes bring
  // none.
  std::string ReadSome();
  // Returns the output up to and including `mark`. Throws with what there was instead if the
  // program ends before, or writes nothing for two minutes.
  std::string ReadUntil(std::string_view mark);
  void CloseStdout();
  void Signal(int signal) const;
  int Wait();  // the exit code

 private:
  pid_t pid_ = -1;
  int read_end_ = -1;
  std::string unread_;  // what came after the mark of ReadUntil
};

// A file in a folder of this process; removed when the process ends.
std::filesystem::path TemporaryFile(const std::string& name, const std::string& content);
std::filesystem::path TemporaryDirectory();

std::string ReadFile(const std::filesystem::path& path);
// The small trained model that comes with the source.
std::string TinyModel();
inline constexpr size_t kTinyVocabulary = 2048;  // and of the one that denoises
// Its relatives that denoise, and with a mixture of experts.
std::string TinyDiffusionModel();
std::string TinyMoeModel();

}  // namespace rullama::cli_test
