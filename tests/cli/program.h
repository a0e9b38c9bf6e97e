// Runs the built `rullama` as a user would, without a shell in between.
// Thread safety: one test at a time.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace rullama::cli_test {

struct RunOptions {
  std::optional<std::string> input;  // stdin, as a file; without it, /dev/null
  bool close_stdin = false;
  bool close_stdout = false;
  std::string stdout_path;                    // instead of being captured
  std::vector<std::string> environment = {};  // added: "NAME=value"
};

// For runs that ask every driver of the machine for its devices. What drivers leave behind is not
// ours (driver_leaks.supp); whose it is shows only in stacks that are unwound whole.
RunOptions AskingDrivers();

struct RunResult {
  int exit_code = -1;  // 128 + signal for a process that a signal killed
  std::string out;
  std::string err;
};

// Arguments without the program's name. A program that runs for two minutes is killed.
RunResult RunRullama(const std::vector<std::string>& arguments, const RunOptions& options = {});

// The same with stdout on a terminal of this size; `out` is what the terminal received.
RunResult RunOnTerminal(const std::vector<std::string>& arguments, int columns, int rows);

// A running program whose stdout is a pipe.
class RunningProgram {
 public:
  explicit RunningProgram(const std::vector<std::string>& arguments);
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  // At least one byte of stdout, or nothing at its end.
  std::string ReadSome();
  void CloseStdout();
  void Signal(int signal) const;
  int Wait();  // the exit code

 private:
  pid_t pid_ = -1;
  int read_end_ = -1;
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
