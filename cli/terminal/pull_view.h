// Shows how a pull proceeds on stderr: a bar on a terminal, else one line for each file. With JSON,
// lines on stdout for programs instead. Thread safety: none; used by main's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "cli/terminal/console.h"
#include "core/base/clock.h"
#include "downloads/pull_plan.h"

namespace rullama::cli {

// The figures of a download in one line of at most `columns`, shortened as far as needed: size,
// time left and rate go first, then the middle of the name.
struct PullFigures {
  std::string name;
  uint64_t completed = 0;
  uint64_t total = 0;
  double rate = 0;  // bytes a second; 0: unknown
};
std::string PullLine(const PullFigures& figures, int columns);

class PullView {
 public:
  PullView(Console& console, bool json) : console_(console), json_(json) {}
  ~PullView() { Clear(); }
  PullView(const PullView&) = delete;
  PullView& operator=(const PullView&) = delete;

  // A file from its begin to its end, as PullHooks::on_progress gives them.
  void Show(const downloads::PlannedFile& file, uint64_t completed);
  // A line between the others.
  void Note(std::string_view text);
  // Removes the bar.
  void Clear();
  // The same at the end of the pull, and says how to continue after Ctrl-C. Null: no error.
  void Finish(const Error* error);
  // The error of stdout, of the JSON lines.
  Status status() { return std::exchange(status_, OkStatus()); }

 private:
  struct Sample {
    Clock::time_point time;
    uint64_t completed;
  };

  void Begin(const downloads::PlannedFile& file, uint64_t completed);
  void ShowJson(const downloads::PlannedFile& file, uint64_t completed);
  [[nodiscard]] double Rate() const;

  Console& console_;
  bool json_;
  Status status_ = OkStatus();
  std::optional<std::string> file_;  // the digest of the file that is shown
  std::deque<Sample> samples_;       // of the last seconds
  Clock::time_point drawn_;
  bool bar_shown_ = false;
};

}  // namespace rullama::cli
