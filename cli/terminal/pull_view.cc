#include "cli/terminal/pull_view.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cli/commands/json_text.h"
#include "core/base/printable.h"
#include "core/base/size_text.h"

namespace rullama::cli {
namespace {

constexpr std::chrono::milliseconds kDrawEvery{100};
constexpr std::chrono::seconds kRateWindow{5};
constexpr size_t kMinNameBytes = 12;

std::string TimeLeft(double seconds) {
  const auto whole = std::llround(seconds);
  if (whole >= 360'000) return "> 99 h";
  if (whole >= 3600) return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} s", whole);
}

// The begin and the end of a name, whose end says most: "gemma-4-…Q4_K_M.gguf".
std::string ShortenedName(const std::string& name, size_t size) {
  constexpr std::string_view kGap = "...";
  if (name.size() <= size) return name;
  if (size <= kGap.size()) return name.substr(0, size);
  const size_t kept = size - kGap.size();
  return fmt::format("{}{}{}", name.substr(0, kept / 3), kGap,
                     name.substr(name.size() - (kept - kept / 3)));
}

bool IsAscii(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) { return c < 0x80; });
}

}  // namespace

std::string PullLine(const PullFigures& figures, int columns) {
  const uint64_t total = std::max<uint64_t>(figures.total, 1);
  const bool complete = figures.completed >= figures.total;
  const auto part = static_cast<double>(figures.completed) / static_cast<double>(total);
  const int percent = complete ? 100 : std::min(99, static_cast<int>(part * 100));
  std::vector<std::string> parts = {fmt::format("{:>3} %", percent)};
  if (figures.rate > 0) {
    parts.push_back(SizeText(static_cast<uint64_t>(figures.rate)) + "/s");
    const auto left = static_cast<double>(figures.total - std::min(figures.completed, total));
    if (!complete) parts.push_back(TimeLeft(left / figures.rate) + " left");
  }
  parts.push_back(
      complete ? SizeText(figures.total)
               : fmt::format("{} of {}", SizeText(figures.completed), SizeText(figures.total)));
  const auto width = static_cast<size_t>(std::max(columns, 1));
  // A name of other letters would have to be measured in columns.
  const std::string name = IsAscii(figures.name) ? figures.name : "the model";
  std::string text = fmt::format("{}", fmt::join(parts, "  "));
  while (parts.size() > 1 && text.size() + 2 + std::min(name.size(), kMinNameBytes) > width) {
    parts.pop_back();
    text = fmt::format("{}", fmt::join(parts, "  "));
  }
  if (text.size() + 3 > width) return text.substr(0, width);
  return fmt::format("{}  {}", ShortenedName(name, width - text.size() - 2), text);
}

double PullView::Rate() const {
  if (samples_.size() < 2) return 0;
  const Sample& first = samples_.front();
  const Sample& last = samples_.back();
  const double seconds = std::chrono::duration<double>(last.time - first.time).count();
  if (seconds <= 0 || last.completed <= first.completed) return 0;
  return static_cast<double>(last.completed - first.completed) / seconds;
}

void PullView::Begin(const downloads::PlannedFile& file, uint64_t completed) {
  file_ = file.digest.hex;
  samples_.clear();
  drawn_ = {};
  if (json_ || console_.stderr_draws()) return;
  const std::string name = ShownName(file.name);
  if (completed >= file.bytes && file.bytes > 0) {
    console_.Note(fmt::format("{} is there ({})", name, SizeText(file.bytes)));
  } else if (completed > 0) {
    console_.Note(fmt::format("downloading {} ({}), of which {} are there", name,
                              SizeText(file.bytes), SizeText(completed)));
  } else {
    console_.Note(fmt::format("downloading {} ({})", name, SizeText(file.bytes)));
  }
}

void PullView::ShowJson(const downloads::PlannedFile& file, uint64_t completed) {
  if (!status_) return;
  status_ = console_.Write(JsonLine({{"status", "downloading"},
                                     {"file", file.name},
                                     {"digest", file.digest.ToString()},
                                     {"total", file.bytes},
                                     {"completed", completed}}));
}

void PullView::Show(const downloads::PlannedFile& file, uint64_t completed) {
  if (file_ != file.digest.hex) Begin(file, completed);
  if (json_) return ShowJson(file, completed);
  if (!console_.stderr_draws() || console_.verbosity() < Verbosity::kNotes) return;
  const Clock::time_point now = Clock::now();
  samples_.push_back({now, completed});
  while (samples_.size() > 2 && now - samples_.front().time > kRateWindow) samples_.pop_front();
  const bool complete = completed >= file.bytes;
  if (!complete && now - drawn_ < kDrawEvery) return;
  drawn_ = now;
  // The last column stays free: a cursor beyond it may already be on the next row.
  const int columns = SizeOfTerminal(STDERR_FILENO).columns - 1;
  const PullFigures figures{
      .name = ShownName(file.name), .completed = completed, .total = file.bytes, .rate = Rate()};
  console_.WriteError("\r" + PullLine(figures, columns) + "\x1b[K" + (complete ? "\n" : ""));
  bar_shown_ = !complete;
}

void PullView::Note(std::string_view text) {
  Clear();
  console_.Note(text);
}

void PullView::Clear() {
  if (bar_shown_) console_.WriteError("\r\x1b[K");
  bar_shown_ = false;
}

void PullView::Finish(const Error* error) {
  Clear();
  if (error == nullptr || error->id != "run.cancelled") return;
  console_.Note("interrupted; run the same command again to continue where it stopped");
}

}  // namespace rullama::cli
