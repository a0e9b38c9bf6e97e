// Generating: determinism, limits, JSON records, logits and perplexity.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/program.h"

namespace rullama::cli_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::vector<std::string> With(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"-m", TinyModel(), "--raw", "-p", "The prince", "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

struct Records {
  std::string deltas;
  json final;
};

Records Parse(const RunResult& result) {
  Records records;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    const json record = json::parse(line);
    if (record["type"] == "delta") records.deltas += record["text"].get<std::string>();
    if (record["type"] == "final") records.final = record;
  }
  return records;
}

json Final(const std::vector<std::string>& more) {
  const RunResult result = RunRullama(With(more));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return Parse(result).final;
}

TEST(Generate, GreedyIsDeterministic) {
  const json first = Final({"--greedy", "-n", "24"});
  EXPECT_EQ(first["ids"].size(), 24U);
  EXPECT_EQ(first["ids"], Final({"--greedy", "-n", "24", "-t", "1"})["ids"]);
  EXPECT_EQ(first["ids"], Final({"--temp", "0", "-n", "24"})["ids"]);
}

TEST(Generate, SeedsDecideTheText) {
  const json first = Final({"--seed", "7", "-n", "24"});
  EXPECT_EQ(first["seed"], 7);
  EXPECT_EQ(first["text"], Final({"-s", "7", "-n", "24", "-b", "1"})["text"]);
  EXPECT_NE(first["text"], Final({"--seed", "8", "-n", "24"})["text"]);
}

TEST(Generate, DrawnSeedCanBeUsedAgain) {
  const json drawn = Final({"-n", "12"});
  const std::string seed = drawn["seed"].dump();
  EXPECT_EQ(drawn["text"], Final({"-n", "12", "--seed", seed})["text"]);
}

std::string WithWeights(const std::string& how) {
  return TemporaryFile("weights_" + how + ".yaml",
                       "backend: {name: cpu, options: {weights: " + how + "}}\n");
}

TEST(Generate, PackedWeightsAreCopiedMappedOnesStayInTheFile) {
  const json packed = Final({"--greedy", "-n", "24", "--config", WithWeights("packed")});
  const json mapped = Final({"--greedy", "-n", "24", "--config", WithWeights("mapped")});
  EXPECT_EQ(packed["ids"], mapped["ids"]);
  const auto bytes = [](const json& final, const char* what) {
    return final["memory_bytes"][what].get<int64_t>();
  };
  EXPECT_GT(bytes(packed, "weights"), 0);
  EXPECT_EQ(bytes(mapped, "weights"), 0);
  EXPECT_EQ(bytes(packed, "weights") + bytes(packed, "weights_in_file"),
            bytes(mapped, "weights_in_file"));
}

TEST(Generate, WeightsAreOneOrTheOther) {
  const RunResult result = RunRullama(With({"-n", "1", "--config", WithWeights("swapped")}));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("option weights is 'swapped', expected packed"));
}

TEST(Generate, RecordsAddUp) {
  const RunResult result = RunRullama(With({"--greedy", "-n", "16"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Records records = Parse(result);
  EXPECT_EQ(records.final["text"], records.deltas);
  EXPECT_EQ(records.final["generated_tokens"], 16);
  EXPECT_EQ(records.final["stop_reason"], "length");
  EXPECT_EQ(records.final["backend"], "cpu");
  EXPECT_GT(records.final["memory_bytes"]["states"], 0);
}

TEST(Generate, NothingIsCompiledOrAllocatedAfterTheFirstToken) {
  const json counters = Final({"--greedy", "-n", "32"})["counters"];
  for (const char* counter : {"plans", "compilations", "allocations", "recordings"}) {
    EXPECT_EQ(counters["after_first_token"][counter], counters["at_end"][counter]) << counter;
  }
  EXPECT_GT(counters["at_end"]["steps"], counters["after_first_token"]["steps"]);
}

TEST(Generate, ZeroTokensOnlyEvaluateThePrompt) {
  const json record = Final({"-n", "0"});
  EXPECT_EQ(record["text"], "");
  EXPECT_EQ(record["generated_tokens"], 0);
  EXPECT_GT(record["prompt_tokens"], 0);
  EXPECT_TRUE(record["timings"]["generate_per_s"].is_null());
  EXPECT_GT(record["timings"]["prompt_per_s"], 0);
  EXPECT_TRUE(Final({"-n", "1"})["timings"]["generate_per_s"].is_null());
  EXPECT_GT(Final({"-n", "2"})["timings"]["generate_per_s"], 0);
}

TEST(Generate, FullContextIsAStopReason) {
  const json record = Final({"--greedy", "-c", "24", "-n", "-1"});
  EXPECT_EQ(record["stop_reason"], "context");
  // The last token that was drawn is not in the cache.
  EXPECT_EQ(record["prompt_tokens"].get<int>() + record["generated_tokens"].get<int>(), 25);
}

TEST(Generate, PromptLongerThanTheContextIsAnError) {
  const RunResult result = RunRullama(With({"-c", "2"}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("[context.overflow]"));
  const json record = json::parse(result.out);
  EXPECT_EQ(record["type"], "error");
  EXPECT_EQ(record["error"]["code"], "context.overflow");
  EXPECT_EQ(record["error"]["exit_code"], 1);
}

TEST(Generate, AdviceOnLongPromptsCanBeFollowed) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "and ";
  const std::vector<std::string> base = {
      "-m", TinyModel(), "--raw", "-f", TemporaryFile("too_long.txt", text).string(), "-n", "1"};
  std::vector<std::string> small = base;
  small.insert(small.end(), {"-c", "100"});
  EXPECT_THAT(RunRullama(small).err, HasSubstr("raise --ctx-size (this model takes up to 2048)"));
  const std::string at_the_limit = RunRullama(base).err;
  EXPECT_THAT(at_the_limit, HasSubstr("but the context holds 2048; shorten the prompt"));
  EXPECT_THAT(at_the_limit, ::testing::Not(HasSubstr("--ctx-size")));
}

TEST(Generate, StopTextEndsInFrontOfItself) {
  const std::string text = Final({"--greedy", "-n", "32"})["text"];
  ASSERT_GT(text.size(), 20U);
  const std::string stop = text.substr(10, 5);
  const json record = Final({"--greedy", "-n", "32", "--stop", stop});
  EXPECT_EQ(record["stop_reason"], "stop");
  EXPECT_EQ(record["text"], text.substr(0, text.find(stop)));
}

TEST(Generate, EmptyPromptIsOneBos) {
  const RunResult result = RunRullama({"-m", TinyModel(), "--raw", "--json", "-n", "2", "-p", ""});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Parse(result).final["prompt_tokens"], 1);
}

constexpr const char* kPerson =
    R"({"properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "x-order": 1})";
constexpr const char* kTools =
    R"([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object",)"
    R"( "properties": {"city": {"enum": ["Moscow", "Paris"]}}, "required": ["city"]}}}])";

TEST(Form, AnswersAreValidUnderTheSchema) {
  const std::vector<std::string> base = {"-m", TinyModel(), "-p", "Who?", "-n", "60", "-s", "3"};
  std::vector<std::string> typed = base;
  typed.insert(typed.end(), {"-j", kPerson});
  const RunResult result = RunRullama(typed);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(json::parse(result.out)["name"].is_string());
  EXPECT_TRUE(json::parse(result.out)["age"].is_number_integer());
  EXPECT_THAT(result.err, HasSubstr("that have no effect: x-order"));
  std::vector<std::string> from_file = base;
  from_file.insert(from_file.end(), {"-jf", TemporaryFile("person.json", kPerson).string()});
  EXPECT_EQ(RunRullama(from_file).out, result.out);
}

TEST(Form, WrongFormsAreRefused) {
  const struct {
    std::vector<std::string> arguments;
    int exit_code;
    const char* error;
  } cases[] = {
      {{"-j", R"({"not": {}})"}, 2, "schema.not: the keyword is not supported"},
      {{"-j", "{"}, 2, "[schema.invalid]"},
      {{"-j", ""}, 2, "the JSON text of --json-schema is empty"},
      {{"-j", "{}", "-jf", "x"}, 2, "exclude each other"},
      {{"--json-schema-file", "no_such_file"}, 6, "[io.open]"},
      {{"--tools", TemporaryFile("object.json", "{}").string()}, 2, "tools: expected a list"},
      {{"--tools", TemporaryFile("tools.json", kTools).string(), "--raw"}, 2, "leave one of them"},
  };
  for (const auto& [arguments, exit_code, error] : cases) {
    std::vector<std::string> all = {"-m", TinyModel(), "-p", "Who?", "-n", "1"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const RunResult result = RunRullama(all);
    EXPECT_EQ(result.exit_code, exit_code) << error;
    EXPECT_THAT(result.err, HasSubstr(error));
    EXPECT_EQ(result.out, "");
  }
}

TEST(Form, CallsOfToolsAreShown) {
  // The model calls nothing by itself.
  const RunResult marker = RunRullama({"tokenize", "-m", TinyModel(), "--no-bos", "<|tool_call>"});
  const json ids = json::parse(marker.out);
  ASSERT_EQ(ids.size(), 1U) << marker.out;
  std::vector<std::string> arguments = {
      "-m",       TinyModel(),    "-p",
      "Rain?",    "--tools",      TemporaryFile("tools.json", kTools).string(),
      "--greedy", "-n",           "40",
      "-q",       "--logit-bias", ids[0].dump() + "=100"};
  const json call = json::parse(RunRullama(arguments).out);
  EXPECT_EQ(call["name"], "weather");
  EXPECT_THAT(call["arguments"]["city"], ::testing::AnyOf("Moscow", "Paris"));
  arguments.emplace_back("--json");
  std::istringstream lines(RunRullama(arguments).out);
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(json::parse(line), json({{"type", "delta"}, {"tool_call", call}}));
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(json::parse(line)["tool_calls"], json::array({call}));
}

TEST(Generate, ReferenceAgreesWithCpu) {
  const json cpu = Final({"--greedy", "-n", "8"});
  const json reference = Final({"--greedy", "-n", "8", "--backend", "reference"});
  EXPECT_EQ(cpu["ids"], reference["ids"]);
  EXPECT_EQ(reference["backend"], "reference");
}

TEST(Generate, ShippedConfigurationRuns) {
  const RunResult result = RunRullama({"--config", RULLAMA_SOURCE_DIR "/configs/tiny.yaml", "-p",
                                       "The prince", "-n", "8", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Parse(result).final["seed"], 1812);
}

TEST(Logits, EveryPositionIsWritten) {
  const auto out = TemporaryDirectory() / "logits.f32";
  const json prompt =
      json::parse(RunRullama({"tokenize", "-m", TinyModel(), "-p", "The prince"}).out);
  const auto ids = TemporaryFile("ids.json", prompt.dump());
  const auto run = [&](const std::string& chunk) {
    const RunResult result = RunRullama({"logits", "-m", TinyModel(), "--tokens-file", ids.string(),
                                         "--out", out.string(), "--chunk", chunk});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::string bytes = ReadFile(out);
    std::vector<float> logits(bytes.size() / sizeof(float));
    std::memcpy(logits.data(), bytes.data(), bytes.size());
    return logits;
  };
  const std::vector<float> logits = run("64");
  ASSERT_EQ(logits.size(), prompt.size() * kTinyVocabulary);
  const auto last = logits.end() - kTinyVocabulary;
  const auto best = std::max_element(last, logits.end()) - last;
  EXPECT_EQ(Final({"--greedy", "-n", "1"})["ids"][0], best);
  EXPECT_EQ(run("1").size(), logits.size());
}

TEST(Logits, BadIdsAreRefused) {
  const auto run = [](const std::string& ids) {
    return RunRullama({"logits", "-m", TinyModel(), "--tokens-file",
                       TemporaryFile("ids", ids).string(), "--out",
                       (TemporaryDirectory() / "x").string()})
        .exit_code;
  };
  EXPECT_EQ(run("1,2,x"), 2);
  EXPECT_EQ(run("99999"), 2);
  EXPECT_EQ(run(""), 2);
}

TEST(Embed, LinesAndNumpyFilesHaveTheSameNumbers) {
  const auto lines = TemporaryFile("texts.jsonl", "\"The prince\"\n\n{\"text\": \"It was\"}\n");
  const std::string out = (TemporaryDirectory() / "vectors.npy").string();
  const std::vector<std::string> arguments = {"embed", "-m",      TinyModel(), "--dimensions",
                                              "8",     "--jsonl", "-f",        lines.string()};
  const RunResult printed = RunRullama(arguments);
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  std::vector<float> numbers;
  std::istringstream records(printed.out);
  for (std::string line; std::getline(records, line);) {
    const json record = json::parse(line);
    for (const json& value : record["embedding"]) numbers.push_back(value);
  }
  EXPECT_EQ(numbers.size(), 16u);
  std::vector<std::string> with_out = arguments;
  with_out.insert(with_out.end(), {"--out", out});
  EXPECT_EQ(RunRullama(with_out).exit_code, 0);
  const std::string file = ReadFile(out);
  EXPECT_THAT(file, ::testing::StartsWith(std::string("\x93NUMPY\x01\x00", 8)));
  EXPECT_THAT(file, HasSubstr("'descr': '<f4', 'fortran_order': False, 'shape': (2, 8)"));
  ASSERT_EQ(file.size(), 192u) << "two blocks of 64 before the numbers";
  EXPECT_EQ(std::memcmp(file.data() + file.size() - 64, numbers.data(), 64), 0);
}

TEST(Embed, ADashIsStdin) {
  const auto vectors = [](std::vector<std::string> more, const std::string& input) {
    more.insert(more.begin(), {"embed", "-m", TinyModel(), "--dimensions", "2"});
    const RunResult result = RunRullama(more, {.input = input});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<json> found;
    std::istringstream records(result.out);
    for (std::string line; std::getline(records, line);) {
      found.push_back(json::parse(line)["embedding"]);
    }
    return found;
  };
  const auto words = vectors({"The prince", "It was"}, "");
  ASSERT_EQ(words.size(), 2u);
  EXPECT_EQ(vectors({"-"}, "The prince\nIt was\n"), words);
  EXPECT_EQ(vectors({"--jsonl", "-"}, "\"The prince\"\n\"It was\"\n"), words);
  // A file is one text, and what follows its name is another, which comes first.
  const auto file = TemporaryFile("text.txt", "It was");
  EXPECT_EQ(vectors({"-f", file.string(), "The prince"}, ""), words);
  EXPECT_EQ(vectors({"-f", "-", "The prince"}, "It was"), words);
}

TEST(Embed, WhatItRefuses) {
  EXPECT_EQ(RunRullama({"embed", "-m", TinyModel(), "--task", "query", "a"}).exit_code, 2);
  EXPECT_EQ(RunRullama({"embed", "-m", TinyModel(), "--dimensions", "100000", "a"}).exit_code, 2);
  EXPECT_EQ(RunRullama({"embed", "-m", TinyModel(), "--jsonl"}, {.input = "1\n"}).exit_code, 2);
}

TEST(Perplexity, ThresholdDecidesTheExitCode) {
  const auto text = TemporaryFile(
      "text.txt", "The prince looked at the princess and said nothing. The general came in.");
  const RunResult result =
      RunRullama({"perplexity", "-m", TinyModel(), "--file", text.string(), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const double perplexity = json::parse(result.out)["perplexity"];
  EXPECT_GT(perplexity, 1);
  EXPECT_LT(perplexity, kTinyVocabulary);
  EXPECT_EQ(RunRullama({"perplexity", "-m", TinyModel(), "--file", text.string(), "--max", "1"})
                .exit_code,
            7);
}

// The tokens that llama-perplexity counts: of each whole chunk those after the first half and one.
TEST(Perplexity, SecondHalvesOfWholeChunks) {
  const char* kSentences =
      "The prince looked at the princess and said nothing. The general came in.";
  const auto text = TemporaryFile("halves.txt", kSentences);
  const auto run = [&](const char* context) {
    return RunRullama({"perplexity", "-m", TinyModel(), "--file", text.string(), "-c", context,
                       "--second-half", "--json"});
  };
  const RunResult result = run("8");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const RunResult ids = RunRullama({"tokenize", "-m", TinyModel(), kSentences});
  const size_t tokens = json::parse(ids.out).size();  // BOS included
  EXPECT_EQ(json::parse(result.out).at("tokens"), tokens / 8 * 3);
  const RunResult short_text = run("512");
  EXPECT_EQ(short_text.exit_code, 2);
  EXPECT_THAT(short_text.err, HasSubstr("expected at least 512"));
}

// The names of a run's tests; checks that each one measured something, twice.
std::vector<std::string> BenchTests(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"-m", TinyModel(), "-r", "2", "--json"});
  arguments.insert(arguments.begin(), "bench");
  const RunResult result = RunRullama(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(result.out);
  std::vector<std::string> tests;
  for (std::string line; std::getline(lines, line);) {
    const json record = json::parse(line);
    tests.push_back(record["test"]);
    EXPECT_GT(record["median_per_s"], 0);
    EXPECT_GT(record["bytes_per_token"], 0);
    EXPECT_GT(record["flops_per_token"], 0);
    EXPECT_EQ(record["repetitions"], 2);
  }
  return tests;
}

TEST(Bench, ReportsRatesAndTraffic) {
  EXPECT_THAT(BenchTests({"-p", "16", "-n", "4", "-d", "8"}),
              ::testing::ElementsAre("pp16 @ d8", "tg4 @ d8"));
}

TEST(Bench, MeasuresPromptsWithAllRows) {
  EXPECT_THAT(BenchTests({"--all-rows", "-p", "2,600", "-d", "0,8"}),
              ::testing::ElementsAre("pa2", "pa600", "pa2 @ d8", "pa600 @ d8"));
}

}  // namespace
}  // namespace rullama::cli_test
