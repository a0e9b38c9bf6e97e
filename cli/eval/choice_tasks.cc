#include "cli/eval/choice_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "core/base/utf8.h"

namespace rullama::cli {
namespace {

constexpr size_t kHellaSwagLines = 6;
constexpr size_t kHellaSwagAnswers = 4;
constexpr size_t kMaxAnswers = 100;

tl::unexpected<Error> Wrong(size_t task, std::string_view what) {
  return MakeError(ErrorKind::kUsage, "eval.file", "task {} of the file {}", task, what);
}

std::vector<std::string_view> LinesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
  }
  return lines;
}

Status CheckTask(size_t number, const ChoiceTask& task) {
  const auto is_wrong = [](const std::string& text) {
    return text.empty() || FindInvalidUtf8(text);
  };
  if (is_wrong(task.question) || std::ranges::any_of(task.answers, is_wrong)) {
    return Wrong(number, "has a text that is empty or not UTF-8");
  }
  if (task.answers.size() < 2) return Wrong(number, "has fewer than two answers");
  if (std::ranges::none_of(task.right, [](bool right) { return right; })) {
    return Wrong(number, "has no right answer");
  }
  return OkStatus();
}

// Reads parts of a file one after another. Nothing if it ends before.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  std::optional<uint32_t> Number() {
    const auto bytes = Bytes(sizeof(uint32_t));
    if (!bytes) return std::nullopt;
    uint32_t number = 0;
    std::memcpy(&number, bytes->data(), sizeof(number));
    return number;
  }
  std::optional<std::string_view> Bytes(size_t count) {
    if (count > rest_.size()) return std::nullopt;
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }
  std::optional<std::string_view> Text() {
    const auto length = Number();
    return length ? Bytes(*length) : std::nullopt;
  }
  [[nodiscard]] size_t left() const { return rest_.size(); }

 private:
  std::string_view rest_;
};

// Adds the answers of a list to a task; false if the file is wrong.
bool ReadAnswers(Reader& reader, ChoiceTask& task) {
  const auto count = reader.Number();
  if (!count || *count > kMaxAnswers) return false;
  for (uint32_t i = 0; i < *count; ++i) {
    const auto answer = reader.Text();
    if (!answer) return false;
    task.answers.emplace_back(*answer);
  }
  for (uint32_t i = 0; i < *count; ++i) {
    const auto label = reader.Number();
    if (!label) return false;
    task.right.push_back(*label == 1);
  }
  return true;
}

}  // namespace

Result<std::vector<ChoiceTask>> ParseHellaSwag(std::string_view text) {
  const std::vector<std::string_view> lines = LinesOf(text);
  if (lines.empty() || lines.size() % kHellaSwagLines != 0) {
    return MakeError(ErrorKind::kUsage, "eval.file",
                     "the file has {} lines, expected {} for each task", lines.size(),
                     kHellaSwagLines);
  }
  std::vector<ChoiceTask> tasks;
  for (size_t first = 0; first < lines.size(); first += kHellaSwagLines) {
    const std::string_view right = lines[first + 1];
    const size_t number = tasks.size();
    if (right.size() != 1 || right[0] < '0' ||
        right[0] >= '0' + static_cast<int>(kHellaSwagAnswers)) {
      return Wrong(number, "has no number from 0 to 3 in its second line");
    }
    ChoiceTask& task = tasks.emplace_back();
    task.question = lines[first];
    for (size_t i = 0; i < kHellaSwagAnswers; ++i) {
      task.answers.emplace_back(lines[first + 2 + i]);
      task.right.push_back(i == static_cast<size_t>(right[0] - '0'));
    }
    RL_RETURN_IF_ERROR(CheckTask(number, task));
  }
  return tasks;
}

Result<std::vector<ChoiceTask>> ParseMultipleChoice(std::string_view bytes) {
  Reader reader(bytes);
  const auto count = reader.Number();
  if (!count || *count == 0 || !reader.Bytes(size_t{*count} * sizeof(uint32_t))) {
    return MakeError(ErrorKind::kUsage, "eval.file",
                     "the file has {} bytes and does not begin with the number and the places of "
                     "its tasks",
                     bytes.size());
  }
  std::vector<ChoiceTask> tasks;
  for (uint32_t i = 0; i < *count; ++i) {
    ChoiceTask& task = tasks.emplace_back();
    const auto question = reader.Text();
    ChoiceTask unused;
    if (!question || !ReadAnswers(reader, task) || !ReadAnswers(reader, unused)) {
      return Wrong(i, fmt::format("does not end {} bytes before the end of the file, or has more "
                                  "than {} answers",
                                  reader.left(), kMaxAnswers));
    }
    task.question = *question;
    RL_RETURN_IF_ERROR(CheckTask(i, task));
  }
  return tasks;
}

std::vector<ChoiceTask> SomeOf(std::vector<ChoiceTask> tasks, size_t count) {
  if (count == 0 || count >= tasks.size()) return tasks;
  std::vector<ChoiceTask> some;
  some.reserve(count);
  for (size_t i = 0; i < count; ++i) some.push_back(std::move(tasks[i * tasks.size() / count]));
  return some;
}

}  // namespace rullama::cli
