// The assistants of models, as `inspect` and `show` tell of them. The pairs are trained: shared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/program.h"

namespace rullama::cli_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kModels = std::string(RULLAMA_SOURCE_DIR) + "/../shared/models/";

json Inspect(const fs::path& model, std::vector<std::string> arguments = {}) {
  arguments.insert(arguments.begin(), {"inspect", model.string(), "--json"});
  const RunResult result = RunRullama(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out);
}

class DrafterTest : public ::testing::Test {
 protected:
  DrafterTest() : folder_(TemporaryDirectory() / "drafter") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    fs::copy_file(kModels + "tiny-e2b-f16.gguf", model_);
  }
  ~DrafterTest() override { fs::remove_all(folder_); }

  void Add(const std::string& drafter, const std::string& as) const {
    fs::copy_file(kModels + "mtp/" + drafter, folder_ / as);
  }

  const fs::path folder_;
  const fs::path model_ = folder_ / "model.gguf";
};

TEST_F(DrafterTest, IsFoundNextToItsModel) {
  EXPECT_TRUE(Inspect(model_).at("drafter").is_null());
  EXPECT_THAT(RunRullama({"show", model_.string()}).out, Not(HasSubstr("\ndrafter ")));
  // The first by name was made for another model.
  Add("tiny-dense-mtp-f16.gguf", "mtp-a.gguf");
  Add("tiny-e2b-mtp-f16.gguf", "mtp-b.gguf");
  Add("tiny-e2b-mtp-f16.gguf", "other.gguf");
  const json drafter = Inspect(model_).at("drafter");
  EXPECT_EQ(drafter.at("path"), (folder_ / "mtp-b.gguf").string());
  EXPECT_EQ(drafter.at("layers"), 4);
  EXPECT_EQ(drafter.at("target_width"), 256);
  EXPECT_EQ(drafter.at("head"), "ordered");
  EXPECT_EQ(drafter.at("clusters"), 64);
  EXPECT_LT(drafter.at("step_bytes"), drafter.at("bytes"));
  EXPECT_THAT(RunRullama({"show", model_.string()}).out, HasSubstr("\ndrafter        "));
}

TEST_F(DrafterTest, OfAnotherModelIsRefusedByWhatDiffers) {
  const json other =
      Inspect(model_, {"--draft-model", kModels + "mtp/tiny-dense-mtp-f16.gguf"}).at("drafter");
  EXPECT_EQ(other.at("code"), "draft.heads");
  EXPECT_THAT(other.at("reason").get<std::string>(), HasSubstr("tiny-dense-mtp-f16.gguf"));
  const json model = Inspect(model_, {"--draft-model", model_.string()}).at("drafter");
  EXPECT_EQ(model.at("code"), "model.arch");
}

TEST_F(DrafterTest, IsNotAModel) {
  const std::string drafter = kModels + "mtp/tiny-e2b-mtp-f16.gguf";
  const RunResult run = RunRullama({"run", "-m", drafter, "-p", "x"});
  EXPECT_EQ(run.exit_code, 4);
  EXPECT_THAT(run.err, HasSubstr("[model.assistant]"));
  EXPECT_THAT(run.err, HasSubstr("width 256"));
  const json file = Inspect(drafter);
  EXPECT_EQ(file.at("runnable").at("code"), "model.assistant");
  EXPECT_EQ(file.at("drafter").at("target_width"), 256);
}

TEST_F(DrafterTest, GuessesAsTheOptionsSay) {
  Add("tiny-e2b-mtp-f16.gguf", "mtp-tiny.gguf");
  const auto run = [this](std::vector<std::string> options) {
    options.insert(options.begin(), {"run", "-m", model_.string(), "--backend", "cpu", "--raw",
                                     "-p", "It was in July", "--temp", "0", "-n", "40", "--json"});
    const RunResult result = RunRullama(options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    // The record of the whole answer is the last line.
    const size_t line = result.out.rfind('\n', result.out.size() - 2);
    return json::parse(result.out.substr(line == std::string::npos ? 0 : line + 1));
  };
  const json plain = run({"--draft-mtp", "false"});
  EXPECT_FALSE(plain.contains("drafts"));
  const json single = run({"--draft-mtp", "true", "--draft-max", "1"});
  const json longer = run({"--draft-mtp", "true", "--draft-max", "6"});
  EXPECT_EQ(single.at("text"), plain.at("text"));
  EXPECT_EQ(longer.at("text"), plain.at("text"));
  EXPECT_EQ(run({}).at("text"), plain.at("text"));  // auto
  EXPECT_GT(single.at("drafts").at("accepted"), 0);
  EXPECT_LT(single.at("drafts").at("drafted"), 40);
  EXPECT_GT(longer.at("drafts").at("drafted"), single.at("drafts").at("drafted"));
  const RunResult wrong =
      RunRullama({"run", "-m", model_.string(), "--draft-max", "17", "-p", "x"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("16"));
}

TEST_F(DrafterTest, ThatTheBackendDoesNotRunIsAnErrorBeforeThePrompt) {
  RunOptions options;
  options.environment.emplace_back("RULLAMA_FAULTY_REFUSES=draft.1.");
  const RunResult run =
      RunRullama({"-m", model_.string(), "--plugin", RULLAMA_FAULTY_PLUGIN, "--backend", "faulty",
                  "--draft-model", kModels + "mtp/tiny-e2b-mtp-f16.gguf", "-p", "x", "-n", "2"},
                 options);
  EXPECT_EQ(run.exit_code, 3) << run.err;
  EXPECT_THAT(run.err, HasSubstr("tiny-e2b-mtp-f16.gguf' does not run with this backend: "));
  EXPECT_THAT(run.err, HasSubstr("is refused by faulty: not today"));
  EXPECT_THAT(run.err, HasSubstr("[draft.refused]"));
}

}  // namespace
}  // namespace rullama::cli_test
