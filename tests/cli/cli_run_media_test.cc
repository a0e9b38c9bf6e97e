// The program with pictures and sound, against texts of transformers. Needs ../shared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/program.h"
#include "tests/gpu_backends.h"

namespace rullama::cli_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kShared = RULLAMA_SOURCE_DIR "/../shared";
const std::string kMedia = kShared + "/goldens/tiny-media/";

// A question about the wide picture, and what the tiny E2B says.
const std::string kPicture = kMedia + "wide-palette.png";
constexpr const char* kQuestion = "Who stands at the left of the prince?";
constexpr const char* kAnswer =
    "\"Oh, yes, master, I was found worthy. Such a brightness on the face like the light";

std::vector<std::string> WithTowers(const std::string& backend, std::vector<std::string> more) {
  std::vector<std::string> arguments = {"run",
                                        "-m",
                                        kShared + "/models/tiny-e2b-f16.gguf",
                                        "--mmproj",
                                        kShared + "/models/tiny-e2b-mmproj-f16.gguf",
                                        "--backend",
                                        backend,
                                        "--greedy"};
  if (backend != "cpu") arguments.insert(arguments.end(), {"--device", "0"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

class RunWithMedia : public ::testing::TestWithParam<const char*> {};

TEST_P(RunWithMedia, AnswersAboutAPicture) {
  const RunResult run = RunRullama(
      WithTowers(GetParam(), {"--image", kPicture, "--image-tokens", "70", "-n", "24", kQuestion}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, std::string(kAnswer) + "\n");
  EXPECT_THAT(run.err,
              HasSubstr("wide-palette.png': 310 x 84 pixels, 64 image tokens of at most 70"));
}

INSTANTIATE_TEST_SUITE_P(Backends, RunWithMedia, ::testing::ValuesIn(BackendNames()), kBackendName);

TEST(Media, SoundIsHeard) {
  const RunResult run = RunRullama(WithTowers(
      "cpu", {"--audio", kMedia + "speech-16k-mono.wav", "Write down what was said.", "--json"}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const json last = json::parse(run.out.substr(run.out.rfind('\n', run.out.size() - 2) + 1));
  EXPECT_EQ(last.at("text"), "\"Think? What about?\" asked Prince Andrew with surprise.");
  EXPECT_EQ(last.at("media"), json({{{"kind", "sound"}, {"tokens", 34}, {"seconds", 1.37}}}));
}

// As the options stand on the command line, so the media stand before the prompt; markers in
// raw text are their places.
TEST(Media, KeepTheOrderOfTheOptions) {
  const auto run = [](std::vector<std::string> more) {
    more.insert(more.end(), {"-n", "8", "--image-tokens", "70"});
    const RunResult result = RunRullama(WithTowers("cpu", std::move(more)));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const std::string picture = kMedia + "tiny-rgba.png";
  const std::string sound = kMedia + "mix-44k-stereo.wav";
  const auto raw = [](const std::string& markers) {
    return "<|turn>user\n" + markers + "Well?<turn|>\n<|turn>model\n";
  };
  EXPECT_EQ(run({"--image", picture, "--audio", sound, "Well?"}),
            run({"--raw", "--image", picture, "--audio", sound, raw("<|image|><|audio|>")}));
  EXPECT_EQ(run({"--audio", sound, "--image", picture, "Well?"}),
            run({"--raw", "--audio", sound, "--image", picture, raw("<|audio|><|image|>")}));
}

// A program named ffmpeg that writes a list of three frames, half a second apart, or the frames.
std::string FolderOfFakeFfmpeg() {
  const std::filesystem::path folder = TemporaryDirectory() / "fake";
  std::filesystem::create_directory(folder);
  const std::string frames = kMedia + "wide-palette.png " + kMedia + "tiny-rgba.png ";
  const std::filesystem::path program = folder / "ffmpeg";
  std::ofstream(program) << "#!/bin/sh\ncase \"$*\" in\n"
                            "*framecrc*) printf '#tb 0: 1/2\\n0, 5\\n0, 6\\n0, 7\\n' ;;\n"
                            "*'eq(n,0)+eq(n,1)+eq(n,2)'*) /bin/cat "
                         << frames << kMedia << "strip-grey.png ;;\nesac\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  return folder.string();
}

TEST(Media, FramesOfAVideoArePicturesAfterTheirTimes) {
  const auto video = TemporaryFile("clip.mp4", "made by nobody").string();
  const auto run = [](std::vector<std::string> more, const std::string& path) {
    more.insert(more.end(), {"-n", "8", "--image-tokens", "70"});
    return RunRullama(WithTowers("cpu", std::move(more)), {.environment = {"PATH=" + path}});
  };
  const RunResult seen = run({"--video", video, "Well?"}, FolderOfFakeFfmpeg());
  EXPECT_EQ(seen.exit_code, 0) << seen.err;
  EXPECT_THAT(seen.err, HasSubstr("clip.mp4': 3 frames of 310 x 84 pixels, the last one after 1.0 "
                                  "s, 194 image tokens"));
  std::vector<std::string> same = {
      "--raw",
      "<|turn>user\n00:00 <|image|> 00:00 <|image|> 00:01 <|image|>Well?<turn|>\n<|turn>model\n"};
  for (const char* frame : {"wide-palette.png", "tiny-rgba.png", "strip-grey.png"}) {
    same.insert(same.end(), {"--image", kMedia + frame});
  }
  EXPECT_EQ(seen.out, run(same, "").out);

  const RunResult without = run({"--video", video, "Well?"}, "/nowhere");
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_THAT(without.err, HasSubstr("[media.ffmpeg]"));
  EXPECT_THAT(run({"--video", "/nowhere.mp4", "Well?"}, "").err, HasSubstr("[io.open]"));
  EXPECT_THAT(run({"--raw", "--video", video, "Well?"}, FolderOfFakeFfmpeg()).err,
              HasSubstr("--raw has no place for a video"));
}

TEST(Media, ErrorsSayWhatIsWrong) {
  const auto error_of = [](const std::vector<std::string>& arguments) {
    const RunResult run = RunRullama(arguments);
    EXPECT_EQ(run.exit_code, 2);
    return run.err;
  };
  EXPECT_THAT(error_of({"run", "-m", TinyModel(), "--image", kPicture, "Who?"}),
              HasSubstr("--mmproj"));
  EXPECT_THAT(error_of(WithTowers("cpu", {"--image", kMedia + "speech-16k-mono.wav", "Who?"})),
              HasSubstr("[media.format]"));
  EXPECT_THAT(error_of(WithTowers("cpu", {"--image", kPicture, "--image-tokens", "100", "Who?"})),
              HasSubstr("--image-tokens"));
  EXPECT_THAT(error_of(WithTowers("cpu", {"--raw", "--image", kPicture, "no marker"})),
              HasSubstr("[media.count]"));
}

TEST(Media, AreSentInAChat) {
  const auto arguments = WithTowers("cpu", {"--no-history", "--image-tokens", "70", "-n", "24"});
  ProgramOnTerminal program(arguments, {.columns = 120, .rows = 60});
  program.Expect("/help lists the commands");
  program.Type("/image /nowhere.png\r");
  program.Expect("[io.open]");
  program.Type("/video /nowhere.mp4\r");
  program.Expect("[io.open]", 2);
  program.Type("/image " + kPicture + "\r");
  program.Expect("The next message has the picture");
  program.Type(std::string(kQuestion) + "\r");
  program.Expect("a brightness");
  program.Type("/clear\r");
  program.Expect("begins anew");
  program.Type("'" + kPicture + "' " + kQuestion + "\r");
  program.Expect("a brightness", 2);
  program.Type("/bye\r");
  EXPECT_EQ(program.Wait(), 0);
}

}  // namespace
}  // namespace rullama::cli_test
