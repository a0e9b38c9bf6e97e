// Comparing models: divergence, tasks, and the table of `rullama eval`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/base/read_file_test_util.h"
#include "tests/cli/program.h"
#include "tests/fakes/adapter_folder.h"

namespace rullama::cli_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kModel = RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf";

std::string Write(const std::string& name, const std::string& content) {
  const auto path = TemporaryDirectory() / name;
  std::ofstream(path, std::ios::binary) << content;
  return path.string();
}

std::string TextFile() {
  std::string text;
  for (int i = 0; i < 6; ++i) {
    text += "It was in July, 1805, and the speaker was the well-known Anna Pavlovna. ";
  }
  return Write("eval_text.txt", text);
}

json Json(const std::vector<std::string>& arguments) {
  const RunResult result = RunRullama(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out, nullptr, /*allow_exceptions=*/false);
}

// A model with other weights: an adapter is part of them.
const std::string& Changed() {
  static const std::string path = [] {
    const auto folder = TemporaryDirectory() / "eval_adapter";
    WriteAdapterFolder(folder, 512);
    const std::string out = (TemporaryDirectory() / "eval_changed.gguf").string();
    const RunResult merged = RunRullama({"export-lora", "-m", kModel, "--lora",
                                         folder.string() + ":0.1", "-o", out, "--type", "f16"});
    EXPECT_EQ(merged.exit_code, 0) << merged.err;
    return out;
  }();
  return path;
}

std::string LogProbs() {
  const std::string path = (TemporaryDirectory() / "eval.kld").string();
  if (std::filesystem::exists(path)) return path;
  const json halves =
      Json({"perplexity", "-m", kModel, "-f", TextFile(), "-c", "32", "--second-half", "--json"});
  const json written = Json({"perplexity", "-m", kModel, "-f", TextFile(), "-c", "32",
                             "--kl-divergence-base", path, "--json"});
  EXPECT_EQ(written, halves);
  return path;
}

TEST(Eval, AModelIsAtNoDistanceFromItself) {
  const json same = Json({"perplexity", "-m", kModel, "--kl-divergence", "--kl-divergence-base",
                          LogProbs(), "--json"});
  EXPECT_GT(same["tokens"], 30);
  EXPECT_LT(same["kl_divergence"]["value"], 1e-4);
  EXPECT_GE(same["same_best"]["value"], 0.97) << "two best tokens may have one number of steps";
  EXPECT_GE(same["log_ratio"]["value"], -1e-3) << "the file keeps nothing below e^-16";
  const json other = Json({"perplexity", "-m", Changed(), "--kl-divergence", "--kl-divergence-base",
                           LogProbs(), "--json"});
  EXPECT_GT(other["kl_divergence"]["value"], 0.01);
  EXPECT_GE(other["kl_divergence_max"], other["kl_divergence_99"]);
  EXPECT_GE(other["kl_divergence_99"], other["kl_divergence_median"]);
  EXPECT_EQ(other["base_perplexity"], same["base_perplexity"]);
}

TEST(Eval, OneTableHasAllModels) {
  const std::string tasks =
      Write("eval_tasks.txt", "It was in July, 1805, and the\n2\nq q q\nx\nspeaker was\nzz\n");
  const auto table_file = TemporaryDirectory() / "table.kld";
  std::filesystem::remove(table_file);
  const RunResult table =
      RunRullama({"eval", "-m", kModel, "-m", Changed(), "-f", TextFile(), "-c", "32",
                  "--kl-divergence-base", table_file.string(), "--hellaswag", tasks});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("| model "));
  EXPECT_THAT(table.out, HasSubstr("| KL divergence "));
  EXPECT_THAT(table.out, HasSubstr("| HellaSwag "));
  EXPECT_THAT(table.out, HasSubstr("| tiny-e2b-Q4_K_M.gguf "));
  EXPECT_THAT(table.out, HasSubstr("| eval_changed.gguf "));
  EXPECT_EQ(table.out.find("| choice "), std::string::npos) << "nothing was asked for";
  const RunResult lines =
      RunRullama({"eval", "-m", kModel, "-m", Changed(), "--hellaswag", tasks, "--json"});
  ASSERT_EQ(lines.exit_code, 0) << lines.err;
  const json first = json::parse(lines.out.substr(0, lines.out.find('\n')));
  EXPECT_EQ(first["model"], "tiny-e2b-Q4_K_M.gguf");
  EXPECT_EQ(first["hellaswag"]["tasks"], 1);
  EXPECT_EQ(first["hellaswag"]["right"], 1);
  EXPECT_EQ(first["hellaswag"]["chance"], 0.25);
}

TEST(Eval, RowsBeforeAnErrorAreShown) {
  const RunResult result =
      RunRullama({"eval", "-m", kModel, "-m", "none.gguf", "-f", TextFile(), "-c", "32"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("| tiny-e2b-Q4_K_M.gguf "));
  EXPECT_THAT(result.err, HasSubstr("none.gguf"));
}

TEST(Eval, ErrorsOfFilesNameThem) {
  const std::string no_tasks = Write("unnamed_tasks.txt", "a\nb\n");
  EXPECT_THAT(RunRullama({"perplexity", "-m", kModel, "--hellaswag", no_tasks}).err,
              HasSubstr("unnamed_tasks.txt"));
}

TEST(Eval, WrongFilesAndOptionsAreErrors) {
  const std::string damaged = Write("damaged.kld", ReadWholeFile(LogProbs()).substr(0, 1000));
  const std::string no_tasks = Write("no_tasks.txt", "a\nb\n");
  const std::pair<std::vector<std::string>, const char*> runs[] = {
      {{"perplexity", "-m", kModel, "--kl-divergence", "--kl-divergence-base", damaged},
       "eval.file"},
      {{"perplexity", "-m", kModel, "--hellaswag", no_tasks}, "eval.file"},
      {{"perplexity", "-m", kModel, "--multiple-choice", no_tasks}, "eval.file"},
      {{"perplexity", "-m", kModel}, "usage.option"},
      {{"perplexity", "-m", kModel, "--kl-divergence"}, "usage.option"},
      {{"perplexity", "-m", kModel, "-f", TextFile(), "--hellaswag", no_tasks}, "usage.option"},
      {{"perplexity", "-m", kModel, "--hellaswag", no_tasks, "--max", "9"}, "usage.option"},
      {{"perplexity", "-m", kModel, "--hellaswag", no_tasks, "--second-half"}, "usage.option"},
      {{"perplexity", "-m", kModel, "--multiple-choice", no_tasks, "--kl-divergence-base", "x"},
       "usage.option"},
      {{"perplexity", "-m", kModel, "--kl-divergence", "--kl-divergence-base", damaged,
        "--second-half"},
       "usage.option"},
      {{"perplexity", "-m", kModel, "-f", TextFile(), "--tasks", "4"}, "usage.option"},
      {{"eval", "-m", kModel, "-f", TextFile(), "--kl-divergence-base", "x"}, "usage.option"},
      {{"eval", "-m", kModel, "-m", kModel, "-f", TextFile(), "--kl-divergence-base", damaged},
       "usage.option"},
      {{"eval", "-m", kModel}, "usage.option"},
      {{"eval", "-m", kModel, "--hellaswag", no_tasks}, "eval.file"},
      {{"eval", "-m", kModel, "--kl-divergence-base", "x", "--hellaswag", no_tasks},
       "usage.option"}};
  for (const auto& [arguments, id] : runs) {
    const RunResult result = RunRullama(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(id));
  }
}

}  // namespace
}  // namespace rullama::cli_test
