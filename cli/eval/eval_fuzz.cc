// Files of evaluations from arbitrary bytes: of log-probabilities, of HellaSwag and of questions.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>

#include "cli/eval/choice_tasks.h"
#include "cli/eval/log_prob_file.h"

namespace {

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

void CheckTasks(const rullama::Result<std::vector<rullama::cli::ChoiceTask>>& tasks) {
  if (!tasks) return Require(tasks.error().id == "eval.file", "errors have one id");
  for (const rullama::cli::ChoiceTask& task : *tasks) {
    Require(task.answers.size() >= 2, "there is a choice");
    Require(task.answers.size() == task.right.size(), "each answer is right or wrong");
  }
}

void CheckRows(std::span<const std::byte> bytes) {
  const auto rows = rullama::cli::LogProbRows::Parse(bytes);
  if (!rows) return Require(rows.error().id == "eval.file", "errors have one id");
  const rullama::cli::LogProbHeader& header = rows->header();
  for (int64_t chunk = 0; chunk < header.chunks; ++chunk) {
    Require(std::ssize(header.Chunk(chunk)) == header.context, "chunks are whole");
    for (int64_t counted = 0; counted < header.counted(); ++counted) {
      const auto row = rows->Row(chunk, counted);
      if (!row) continue;
      const float last = row->At(static_cast<size_t>(header.vocabulary - 1));
      Require(!std::isnan(last), "values are numbers");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  CheckTasks(rullama::cli::ParseHellaSwag(text));
  CheckTasks(rullama::cli::ParseMultipleChoice(text));
  CheckRows(std::as_bytes(std::span(data, size)));
  return 0;
}
