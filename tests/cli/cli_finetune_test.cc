// `rullama finetune` from outside: the adapter that it writes is what `run` answers with, a run
// that continues is the run that did not stop, and mistakes are errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cli/program.h"
#include "tests/cli/trace_rules.h"

namespace rullama::cli_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string TrainedModel() {
  return std::string(RULLAMA_SOURCE_DIR) + "/tests/data/tiny-e2b-Q4_K_M.gguf";
}

class FinetuneTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    std::ofstream(folder_ / "data.jsonl")
        << R"({"prompt":"Who is Pierre?","completion":"A count."})"
        << "\n"
        << R"({"prompt":"Who is Andrew?","completion":"A prince."})"
        << "\n"
        << R"({"prompt":"Who is Natasha?","completion":"A daughter."})"
        << "\n";
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::vector<std::string> Arguments(const std::string& output,
                                                   const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"finetune",
                                          "-m",
                                          TrainedModel(),
                                          "--data",
                                          (folder_ / "data.jsonl").string(),
                                          "-o",
                                          (folder_ / output).string(),
                                          "--batch-size",
                                          "3",
                                          "--rank",
                                          "8",
                                          "--lr",
                                          "0.004",
                                          "--threads",
                                          "2",
                                          "--lr-schedule",
                                          "constant",
                                          "--warmup",
                                          "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  RunResult Finetune(const std::string& output, const std::vector<std::string>& more) const {
    return RunRullama(Arguments(output, more));
  }

  const fs::path folder_ = TemporaryDirectory() / "finetune";
};

// Questions and their answers.
const std::vector<std::pair<std::string, std::string>>& People() {
  static const std::vector<std::pair<std::string, std::string>> kPeople = {
      {"Pierre", "A count."},       {"Andrew", "A prince."},      {"Natasha", "A daughter."},
      {"Mary", "A princess."},      {"Nicholas", "A hussar."},    {"Sonya", "A cousin."},
      {"Helene", "A beauty."},      {"Anatole", "A rake."},       {"Kutuzov", "A general."},
      {"Napoleon", "An emperor."},  {"Boris", "An officer."},     {"Denisov", "A friend."},
      {"Dolokhov", "A gambler."},   {"Platon", "A peasant."},     {"Vera", "A sister."},
      {"Petya", "A boy."},          {"Bagration", "A Georgian."}, {"Alexander", "The tsar."},
      {"Bolkonsky", "An old man."}, {"Tikhon", "A servant."}};
  return kPeople;
}

TEST_F(FinetuneTest, TheModelAnswersWithWhatItLearnt) {
  std::ofstream data(folder_ / "people.jsonl");
  for (const auto& [name, answer] : People()) {
    data << nlohmann::json{{"prompt", "Who is " + name + "?"}, {"completion", answer}} << "\n";
  }
  data.close();
  const fs::path trace = folder_ / "trace.json";
  const RunResult result =
      Finetune("adapter", {"--data", (folder_ / "people.jsonl").string(), "--batch-size", "20",
                           "--iters", "20", "--json", "--trace", trace.string()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  int steps = 0;
  const auto recorded = nlohmann::json::parse(ReadFile(trace));
  EXPECT_EQ(TraceFault(recorded), "");
  const auto& events = recorded["traceEvents"];
  for (const auto& event : events) {
    if (event.value("cat", "") == "step") ++steps;
  }
  EXPECT_GE(steps, 20);
  std::istringstream lines(result.out);
  std::string line;
  nlohmann::json last;
  int reported = 0;
  while (std::getline(lines, line)) {
    last = nlohmann::json::parse(line);
    if (last.at("type") != "train") continue;
    EXPECT_EQ(last.at("step"), ++reported);
    EXPECT_GT(last.at("grad_norm"), 0);
  }
  EXPECT_EQ(reported, 20);
  EXPECT_EQ(last.at("type"), "final");
  EXPECT_EQ(last.at("step"), 20);
  EXPECT_LT(last.at("loss"), 0.1);
  for (const auto& [name, said] : People()) {
    const RunResult answer =
        RunRullama({"-m", TrainedModel(), "--lora", (folder_ / "adapter").string(), "-p",
                    "Who is " + name + "?", "-n", "12", "--greedy"});
    EXPECT_EQ(answer.exit_code, 0) << answer.err;
    EXPECT_THAT(answer.out, HasSubstr(said)) << name;
  }
  for (const char* adapter : {"adapter", "adapter/adapter.gguf"}) {
    const RunResult answer =
        RunRullama({"-m", TrainedModel(), "--lora", (folder_ / adapter).string(), "-p",
                    "Who is Andrew?", "-n", "12", "--greedy"});
    EXPECT_EQ(answer.exit_code, 0) << answer.err;
    EXPECT_THAT(answer.out, HasSubstr("A prince.")) << adapter;
  }
  // An adapter is not a model.
  const std::string gguf = (folder_ / "adapter/adapter.gguf").string();
  EXPECT_THAT(RunRullama({"show", gguf}).out, HasSubstr("use -m MODEL --lora FILE"));
  for (const std::string& wrong : {gguf, (folder_ / "adapter").string()}) {
    const RunResult refused = RunRullama({"-m", wrong, "-p", "Who?"});
    EXPECT_EQ(refused.exit_code, 4);
    EXPECT_THAT(refused.err, HasSubstr("[model.adapter]"));
  }
  // Four bits would lose the change, which q8_0 keeps.
  const std::string smaller = (folder_ / "smaller.gguf").string();
  const RunResult chosen = RunRullama({"export-lora", "-m", TrainedModel(), "--lora",
                                       (folder_ / "adapter").string(), "-o", smaller});
  ASSERT_EQ(chosen.exit_code, 0) << chosen.err;
  EXPECT_THAT(chosen.err, HasSubstr("merged tensors of fewer bits become q8_0"));
  EXPECT_THAT(RunRullama({"-m", smaller, "-p", "Who is Andrew?", "-n", "12", "--greedy"}).out,
              HasSubstr("A prince."));
  const std::string merged = (folder_ / "merged.gguf").string();
  const RunResult written =
      RunRullama({"export-lora", "-m", TrainedModel(), "--lora", (folder_ / "adapter").string(),
                  "-o", merged, "--type", "f16"});
  ASSERT_EQ(written.exit_code, 0) << written.err;
  EXPECT_THAT(written.err, HasSubstr("merged "));
  const RunResult answer =
      RunRullama({"-m", merged, "-p", "Who is Andrew?", "-n", "12", "--greedy"});
  EXPECT_EQ(answer.exit_code, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("A prince."));
}

// Returns the JSON lines of a type.
std::vector<nlohmann::json> LinesOf(const RunResult& result, const char* type) {
  std::vector<nlohmann::json> found;
  std::istringstream lines(result.out);
  std::string line;
  while (std::getline(lines, line)) {
    nlohmann::json object = nlohmann::json::parse(line);
    if (object.at("type") == type) found.push_back(std::move(object));
  }
  return found;
}

// Names of keys, the factor of rsLoRA, names for PEFT, and sets of which a part is measured. The
// results are read again.
TEST_F(FinetuneTest, FilesAreReadAndWrittenAsAsked) {
  const fs::path data = folder_ / "set";
  fs::create_directories(data);
  const std::string line = R"({"q":"Who is Pierre?","a":"A count."})";
  for (const char* name : {"train.jsonl", "valid.jsonl", "test.jsonl"}) {
    std::ofstream(data / name) << line << "\n" << line << "\n" << line << "\n" << line << "\n";
  }
  const std::vector<std::string> more = {"--data",
                                         data.string(),
                                         "--iters",
                                         "1",
                                         "--prompt-key",
                                         "q",
                                         "--hf-prefix",
                                         "multimodal",
                                         "--completion-key",
                                         "a",
                                         "--batch-size",
                                         "1",
                                         "--rslora",
                                         "--val-batches",
                                         "2",
                                         "--test-batches",
                                         "3",
                                         "--json"};
  const RunResult result = Finetune("named", more);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto trained = LinesOf(result, "train");
  ASSERT_EQ(trained.size(), 1u);
  const int64_t tokens = trained[0].at("tokens");
  for (const nlohmann::json& validation : LinesOf(result, "validation")) {
    EXPECT_EQ(validation.at("tokens"), 2 * tokens);
  }
  EXPECT_EQ(LinesOf(result, "final").at(0).at("test").at("tokens"), 3 * tokens);
  const auto config = nlohmann::json::parse(ReadFile(folder_ / "named/adapter_config.json"));
  EXPECT_EQ(config.at("use_rslora"), true);
  EXPECT_NEAR(config.at("lora_alpha"), 32, 1e-9);
  EXPECT_THAT(config.at("target_modules").get<std::string>(),
              HasSubstr(R"(.*language_model\..*\b()"));
  EXPECT_THAT(ReadFile(folder_ / "named/adapter_model.safetensors"),
              HasSubstr("base_model.model.model.language_model.layers.0."));
  std::vector<std::string> again = more;
  again.insert(again.end(), {"--resume", (folder_ / "named").string()});
  EXPECT_EQ(Finetune("named", again).exit_code, 0);
  EXPECT_EQ(RunRullama({"finetune", "--help"}).out, RunRullama({"train", "--help"}).out);
}

// An adapter whose B is zero changes nothing, so the first validation measures the model.
TEST_F(FinetuneTest, ValidationIsThePerplexityOfTheSameTokens) {
  const fs::path set = folder_ / "set";
  fs::create_directories(set);
  const std::string text = "Prince Andrew looked at Natasha, and the count went away in silence.";
  std::ofstream(set / "text.txt") << text;
  const RunResult tokens = RunRullama({"tokenize", "-m", TrainedModel(), "-p", text});
  const auto ids = nlohmann::json::parse(tokens.out);
  nlohmann::json targets(ids.begin() + 1, ids.end());
  targets.push_back(-1);
  const std::string line = nlohmann::json{{"ids", ids}, {"targets", targets}}.dump() + "\n";
  for (const char* name : {"train.jsonl", "valid.jsonl"}) std::ofstream(set / name) << line;
  const RunResult result =
      Finetune("measured", {"--data", set.string(), "--iters", "1", "--batch-size", "1", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const RunResult perplexity = RunRullama({"perplexity", "-m", TrainedModel(), "--json", "-f",
                                           (set / "text.txt").string(), "--backend", "cpu"});
  ASSERT_EQ(perplexity.exit_code, 0) << perplexity.err;
  const auto expected = nlohmann::json::parse(perplexity.out);
  const auto validation = LinesOf(result, "validation").at(0);
  EXPECT_EQ(validation.at("step"), 0);
  EXPECT_EQ(validation.at("tokens"), expected.at("tokens"));
  // Keys and values are f16 in one and f32 in the other.
  EXPECT_NEAR(validation.at("loss"), expected.at("mean_nll"), 2e-3);
}

// A run that is killed continues from its newest checkpoint; one that is interrupted ends with a
// checkpoint.
TEST_F(FinetuneTest, KilledAndInterruptedRunsGoOn) {
  const std::string output = (folder_ / "run").string();
  std::vector<std::string> arguments = {"finetune",
                                        "-m",
                                        TrainedModel(),
                                        "--data",
                                        (folder_ / "data.jsonl").string(),
                                        "-o",
                                        output,
                                        "--batch-size",
                                        "1",
                                        "--rank",
                                        "1",
                                        "--threads",
                                        "1",
                                        "--iters",
                                        "100000",
                                        "--steps-per-report",
                                        "1"};
  // Waits for a report and returns the step of the first one.
  const auto first_step = [](RunningProgram& program, const std::string& awaited) {
    return std::stoi(program.ReadUntil(awaited).substr(std::string("step ").size()));
  };
  std::vector<std::string> first = arguments;
  first.insert(first.end(), {"--save-every", "2"});
  RunningProgram killed(first);
  EXPECT_EQ(first_step(killed, "step 5/"), 1);
  killed.Signal(SIGKILL);
  EXPECT_EQ(killed.Wait(), 128 + SIGKILL);
  // As the message of an interrupted run says: the checkpoint knows all the rest.
  arguments = {"finetune", "--resume", output};
  EXPECT_TRUE(fs::exists(fs::path(output) / "loss.svg"));
  RunningProgram interrupted(arguments);
  const int step = first_step(interrupted, "/100000: loss");
  EXPECT_GE(step, 5);
  interrupted.Signal(SIGINT);
  EXPECT_EQ(interrupted.Wait(), 130);
  RunningProgram again(arguments);
  EXPECT_GT(first_step(again, "/100000: loss"), step);
  again.Signal(SIGTERM);
  EXPECT_EQ(again.Wait(), 143);
}

TEST_F(FinetuneTest, ARunThatGoesOnIsTheRunThatDidNotStop) {
  ASSERT_EQ(Finetune("whole", {"--iters", "5", "--save-every", "3"}).exit_code, 0);
  const RunResult rest =
      Finetune("rest", {"--iters", "5", "--resume", (folder_ / "whole/0000003").string()});
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  for (const char* file : {"adapter_model.safetensors", "0000005/training_state.safetensors",
                           "0000005/training_state.json", "adapter.gguf"}) {
    EXPECT_EQ(ReadFile(folder_ / "whole" / file), ReadFile(folder_ / "rest" / file)) << file;
  }
  const RunResult other = Finetune(
      "other", {"--iters", "5", "--seed", "1", "--resume", (folder_ / "whole/0000003").string()});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("has seed = 0, this run has 1"));
  const RunResult both = Finetune("other", {"--iters", "5", "--seed", "1", "--rank", "4",
                                            "--resume", (folder_ / "whole/0000003").string()});
  EXPECT_THAT(both.err, HasSubstr("rank = 8, this run has 4; seed = 0, this run has 1"));
}

TEST_F(FinetuneTest, ResumeTakesTheSettingsOfTheCheckpoint) {
  ASSERT_EQ(Finetune("whole", {"--iters", "4"}).exit_code, 0);
  const RunResult first = Finetune("run", {"--iters", "2"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("3 examples to train on, 0 to validate with"));
  EXPECT_THAT(first.err, HasSubstr(R"(the model learns "A count.<turn|>")"));
  const std::string run = (folder_ / "run").string();
  const RunResult longer = RunRullama({"finetune", "--resume", run, "--iters", "4"});
  ASSERT_EQ(longer.exit_code, 0) << longer.err;
  EXPECT_THAT(longer.err, HasSubstr("the run had 2 steps until now and has 4 from here on"));
  for (const char* file : {"adapter_model.safetensors", "0000004/training_state.safetensors"}) {
    EXPECT_EQ(ReadFile(folder_ / "run" / file), ReadFile(folder_ / "whole" / file)) << file;
  }
  const RunResult shorter = RunRullama({"finetune", "--resume", run, "--iters", "3"});
  EXPECT_EQ(shorter.exit_code, 2);
  EXPECT_THAT(shorter.err, HasSubstr("has done 4 steps, this run is to have 3"));
}

TEST_F(FinetuneTest, AnAlteredCheckpointIsRefused) {
  ASSERT_EQ(Finetune("run", {"--iters", "1"}).exit_code, 0);
  const fs::path checkpoint = folder_ / "run/0000001";
  for (const char* name : {"adapter_model.safetensors", "training_state.safetensors"}) {
    const std::string right = ReadFile(checkpoint / name);
    std::string wrong = right;
    wrong[wrong.size() - 2] ^= 1;  // in the last number
    std::ofstream(checkpoint / name, std::ios::binary) << wrong;
    const RunResult result =
        RunRullama({"finetune", "--resume", checkpoint.string(), "--iters", "2"});
    EXPECT_EQ(result.exit_code, 2) << name;
    EXPECT_THAT(result.err, HasSubstr("altered or damaged")) << name;
    std::ofstream(checkpoint / name, std::ios::binary) << right;
  }
  std::string place = ReadFile(checkpoint / "training_state.json");
  const size_t at = place.find("\"examples\": 3");
  ASSERT_NE(at, std::string::npos);
  std::ofstream(checkpoint / "training_state.json") << place.replace(at, 13, "\"examples\": 4");
  EXPECT_THAT(RunRullama({"finetune", "--resume", checkpoint.string()}).err,
              HasSubstr("altered or damaged"));
}

TEST_F(FinetuneTest, AnotherRunInTheFolderStays) {
  ASSERT_EQ(Finetune("run", {"--iters", "2"}).exit_code, 0);
  const std::string adapter = ReadFile(folder_ / "run/adapter_model.safetensors");
  const RunResult second = Finetune("run", {"--iters", "1", "--rank", "4"});
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_THAT(second.err, HasSubstr("has another run or adapter ('0000002')"));
  EXPECT_THAT(second.err, HasSubstr("[train.exists]"));
  EXPECT_EQ(ReadFile(folder_ / "run/adapter_model.safetensors"), adapter);
  ASSERT_EQ(Finetune("run", {"--iters", "1", "--rank", "4", "--overwrite"}).exit_code, 0);
  EXPECT_NE(ReadFile(folder_ / "run/adapter_model.safetensors"), adapter);
  EXPECT_TRUE(fs::exists(folder_ / "run/0000001"));
  EXPECT_FALSE(fs::exists(folder_ / "run/0000002"));
}

// The bytes of all files below a folder, by relative path.
std::map<std::string, std::string> FilesBelow(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    files[fs::relative(entry.path(), folder).string()] = ReadFile(entry.path());
  }
  return files;
}

// How often `word` stands in `text`.
int Count(std::string_view text, std::string_view word) {
  int count = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST_F(FinetuneTest, ARunThatIsKilledAgainAndAgainEndsWithTheSameBytes) {
  const std::vector<std::string> more = {"--iters",          "30", "--save-every",       "1",
                                         "--steps-per-eval", "2",  "--val-split",        "0.3",
                                         "--batch-size",     "1",  "--steps-per-report", "1"};
  ASSERT_EQ(Finetune("whole", more).exit_code, 0);
  std::vector<std::string> again = more;
  again.insert(again.end(), {"--resume", (folder_ / "killed").string()});
  const auto has_checkpoint = [&] { return fs::exists(folder_ / "killed/0000001"); };
  int kills = 0;
  bool ended = false;  // the run ended before the signal, as it may on a busy machine
  while (kills < 9 && !ended) {
    RunningProgram program(Arguments("killed", has_checkpoint() ? again : more));
    std::string part = "-";
    for (std::string seen; !part.empty() && Count(seen, "/30: loss") <= kills % 3; seen += part) {
      part = program.ReadSome();
    }
    // A validation and a checkpoint take some milliseconds.
    std::this_thread::sleep_for(std::chrono::milliseconds(3 * kills));
    program.Signal(SIGKILL);
    ended = program.Wait() != 128 + SIGKILL;
    if (!ended) ++kills;
  }
  ASSERT_GE(kills, 3);
  ASSERT_TRUE(has_checkpoint());
  if (!ended) {
    ASSERT_EQ(Finetune("killed", again).exit_code, 0);
  }
  const auto expected = FilesBelow(folder_ / "whole");
  const auto found = FilesBelow(folder_ / "killed");
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, bytes] : expected) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_TRUE(found.at(name) == bytes) << name;
  }
}

// The step's validation follows when the run continues.
TEST_F(FinetuneTest, AValidationThatWasInterruptedIsNotLost) {
  const std::string line = R"({"prompt":"Who is Pierre?","completion":"A count."})";
  fs::create_directories(folder_ / "set");
  std::ofstream(folder_ / "set/train.jsonl") << line << "\n";
  std::ofstream valid(folder_ / "set/valid.jsonl");
  for (int i = 0; i < 100; ++i) valid << line << "\n";
  valid.close();
  const std::vector<std::string> more = {
      "--data", (folder_ / "set").string(), "--iters", "1", "--batch-size", "1", "--json"};
  RunningProgram program(Arguments("run", more));
  program.ReadUntil(R"("type":"train")");
  program.Signal(SIGINT);
  EXPECT_EQ(program.Wait(), 130);
  EXPECT_FALSE(fs::exists(folder_ / "run/best"));
  std::vector<std::string> again = more;
  again.insert(again.end(), {"--resume", (folder_ / "run").string()});
  const RunResult rest = Finetune("run", again);
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  const auto validations = LinesOf(rest, "validation");
  ASSERT_EQ(validations.size(), 1u);
  EXPECT_EQ(validations[0].at("step"), 1);
  EXPECT_EQ(validations[0].at("best"), true);
  EXPECT_GT(LinesOf(rest, "final").at(0).at("loss"), 0);
  EXPECT_EQ(ReadFile(folder_ / "run/best/adapter.gguf"), ReadFile(folder_ / "run/adapter.gguf"));
}

TEST_F(FinetuneTest, ATerminalShowsHowFarItIs) {
  ProgramOnTerminal program(Arguments("bar", {"--iters", "3"}));
  EXPECT_EQ(program.Wait(), 0);
  EXPECT_THAT(program.received(), HasSubstr("training ["));
  EXPECT_THAT(program.received(), HasSubstr("] 2/3, loss "));
  EXPECT_THAT(program.received(), HasSubstr(" s left"));
  EXPECT_THAT(ReadFile(folder_ / "bar/loss.svg"), HasSubstr("step 3: "));
}

TEST_F(FinetuneTest, FlagsOfLlamaFinetuneMeanTheSame) {
  const RunResult result = RunRullama({"finetune",
                                       "--model",
                                       TrainedModel(),
                                       "--train-file",
                                       (folder_ / "data.jsonl").string(),
                                       "--output-file",
                                       (folder_ / "named").string(),
                                       "-lr",
                                       "0.003",
                                       "-lr-min",
                                       "0.001",
                                       "-wd",
                                       "1e-9",
                                       "-epochs",
                                       "2",
                                       "-val-split",
                                       "0.3",
                                       "-s",
                                       "7",
                                       "-t",
                                       "2",
                                       "-ngl",
                                       "0",
                                       "-fa",
                                       "auto",
                                       "--lora-rank",
                                       "2",
                                       "--lora-alpha",
                                       "6",
                                       "--save-every",
                                       "1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto state = nlohmann::json::parse(ReadFile(folder_ / "named/0000001/training_state.json"));
  const std::pair<const char*, const char*> expected[] = {{"learning_rate", "0.003"},
                                                          {"min_learning_rate", "0.001"},
                                                          {"weight_decay", "1e-09"},
                                                          {"val_split", "0.3"},
                                                          {"seed", "7"},
                                                          {"rank", "2"},
                                                          {"alpha", "6"}};
  for (const auto& [key, value] : expected) EXPECT_EQ(state.at("run").at(key), value) << key;
}

TEST_F(FinetuneTest, FlagsOfOtherTrainersSayWhatToUse) {
  const std::pair<std::vector<std::string>, const char*> habits[] = {
      {{"-f", "F"}, "use --data FILE"},
      {{"--file", "F"}, "use --data FILE"},
      {{"-c", "512"}, "use --max-seq-length N"},
      {{"--ctx-size", "512"}, "use --max-seq-length N"},
      {{"-b", "512"}, "use --batch-size N"},
      {{"-ub", "512"}, "use --batch-size N"},
      {{"-np", "4"}, "use --batch-size N"},
      {{"-n", "4"}, "not needed: training generates no text"},
      {{"-ctk", "f32"}, "not needed: keys and values are always f32"},
      {{"-opt", "sgd"}, "the optimizer is AdamW"},
      {{"--optimizer", "adamw"}, "the optimizer is AdamW"},
      {{"-decay-epochs", "1"}, "use --lr-schedule"},
      {{"--lora-out", "F"}, "use -o FOLDER"},
      {{"--no-mmap"}, "not supported: model files"},
      {{"--train"}, "not needed: 'finetune' trains"},
      {{"--lora-parameters", "rank=8"}, "use --rank R and --alpha A"},
      {{"--dropout", "0.1"}, "there is no dropout"},
      {{"--num_train_epochs", "1"}, "use --epochs N"},
      {{"--learning_rate", "1"}, "did you mean '--learning-rate'?"},
  };
  for (const auto& [typed, advice] : habits) {
    const RunResult result = Finetune("wrong", typed);
    EXPECT_EQ(result.exit_code, 2) << typed[0];
    EXPECT_THAT(result.err, HasSubstr("'finetune' has no option '" + typed[0] + "'"));
    EXPECT_THAT(result.err, HasSubstr(advice)) << typed[0];
  }
  EXPECT_THAT(RunRullama({"-m", TrainedModel(), "-ub", "512"}).err, HasSubstr("use -b N"));
}

TEST_F(FinetuneTest, ComputingActivationsAgainChangesNoByte) {
  ASSERT_EQ(Finetune("kept", {"--iters", "2", "--no-grad-checkpoint"}).exit_code, 0);
  ASSERT_EQ(Finetune("again", {"--iters", "2", "--grad-checkpoint"}).exit_code, 0);
  EXPECT_EQ(ReadFile(folder_ / "kept/adapter_model.safetensors"),
            ReadFile(folder_ / "again/adapter_model.safetensors"));
}

TEST_F(FinetuneTest, GradientsOfBackendsAreCompared) {
  const std::vector<std::string> arguments = {
      "diff",  "--train", "-m", TrainedModel(), "--data", (folder_ / "data.jsonl").string(),
      "--json"};
  std::vector<std::string> same = arguments;
  same.insert(same.end(), {"--backends", "cpu,reference"});
  const RunResult result = RunRullama(same);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto report = nlohmann::json::parse(result.out);
  EXPECT_EQ(report.at("baseline"), "reference");
  EXPECT_NEAR(report.at("loss"), report.at("baseline_loss"), 1e-3);
  const auto& gradients = report.at("gradients");
  EXPECT_EQ(gradients.size(), 96u);
  EXPECT_GT(gradients.front().at("nmse"), gradients.back().at("nmse"));
  // With a threshold that rounding exceeds.
  std::ofstream(folder_ / "strict.yaml") << "diff: {nmse: 1e-14}\n";
  same.insert(same.end(), {"--config", (folder_ / "strict.yaml").string()});
  EXPECT_EQ(RunRullama(same).exit_code, 7);
  std::vector<std::string> bad = arguments;
  bad.insert(bad.end(), {"--backends", "cpu,reference", "--bisect"});
  EXPECT_EQ(RunRullama(bad).exit_code, 2);
}

// The golden's tokens, targets and adapter, as a user of other tools has them in files.
TEST_F(FinetuneTest, TokensAndHalvesOfPairsGiveTheLossOfTheGolden) {
  const std::string golden = std::string(RULLAMA_SOURCE_DIR) + "/../shared/goldens/train-e2b/";
  const auto cases = nlohmann::json::parse(ReadFile(golden + "golden.json")).at("cases");
  const nlohmann::json& chat = cases.at("chat");
  std::ofstream(folder_ / "tokens.jsonl")
      << nlohmann::json{{"ids", chat.at("ids")}, {"targets", chat.at("targets")}} << "\n";
  const std::string gradients = (folder_ / "gradients.safetensors").string();
  const auto dump = [&](const std::string& first, const char* rank, const std::string& output) {
    return RunRullama({"finetune", "-m", TrainedModel(), "--backend", "reference", "--data",
                       (folder_ / "tokens.jsonl").string(), "-o", (folder_ / "unused").string(),
                       "--alpha", "8", "--rank", rank, "--adapter-init", first, "--dump-gradients",
                       output});
  };
  const RunResult result = dump(golden + "lora.init.safetensors", "4", gradients);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::ostringstream expected;
  expected << std::fixed << std::setprecision(4) << "gradients of 96 tensors, loss "
           << cases.at("chat.Q4_K_M").at("loss_mean").get<double>();
  EXPECT_THAT(result.err, HasSubstr(expected.str()));
  // The gradients have the same names and shapes, so that a run can begin with them.
  EXPECT_EQ(dump(gradients, "4", gradients + ".again").exit_code, 0);
  const RunResult other = dump(gradients, "5", gradients + ".again");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("expected [5, 256]"));
}

TEST_F(FinetuneTest, MistakesAreErrors) {
  const auto expect = [&](const std::vector<std::string>& more, int code, const char* text) {
    const RunResult result = Finetune("wrong", more);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(text));
  };
  expect({"--iters", "2", "--epochs", "2"}, 2, "[train.option]");
  std::ofstream(folder_ / "blocks.yaml") << "context: {kv_dtype: q8_0}\n";
  expect({"--config", (folder_ / "blocks.yaml").string()}, 2, "blocks have no gradients");
  expect({"--lora-targets", "attn,nose"}, 2, "training.targets has 'nose'");
  expect({"--lora-targets", "per_layer_model_proj"}, 2,
         "expected attn, mlp, all, or names of attn_k, attn_output, attn_q, attn_v, ffn_down, "
         "ffn_gate, ffn_up, inp_gate, proj");
  expect({"--num-layers", "99"}, 2, "training.num_layers is 99");
  expect({"--rank", "100"}, 2, "training.rank is 100, expected at most 64");
  expect({"--rank", "0"}, 2, "training.rank");
  expect({"--prompt-key", "q"}, 2, "found no 'q', but 'completion', 'prompt'; expected a string");
  expect({"--test"}, 2, "there is no test set");
  expect({"-o", (folder_ / "model.gguf").string()}, 2, "a file; expected a folder");
  expect({"--data", "/nowhere.jsonl"}, 6, "/nowhere.jsonl");
  std::ofstream(folder_ / "bad.jsonl") << "{\n";
  expect({"--data", (folder_ / "bad.jsonl").string()}, 2, "bad.jsonl', line 1: found no JSON");
  EXPECT_FALSE(fs::exists(folder_ / "wrong"));
}

}  // namespace
}  // namespace rullama::cli_test
