// Requests with pictures and sounds on tiny models, through the public interface, against greedy
// continuations of transformers. Needs ../shared.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/base/read_file_test_util.h"
#include "engine/api/engine.h"

namespace rullama {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kShared = RULLAMA_SOURCE_DIR "/../shared";
const std::string kGoldens = kShared + "/goldens/tiny-media/";
constexpr const char* kPlugins = RULLAMA_BINARY_DIR "/lib/rullama";
constexpr const char* kText = RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf";

json ReadGolden(const std::string& pair) {
  std::ifstream file(kGoldens + pair + ".golden.json");
  return json::parse(file);
}

json Named(const json& list, const std::string& name) {
  return *std::ranges::find_if(list, [&](const json& item) { return item.at("name") == name; });
}

std::shared_ptr<Engine> OpenModel(const std::string& model, const std::string& towers,
                                  std::vector<Setting> settings = {}) {
  settings.push_back({"context.capacity", "512"});
  settings.push_back({"context.kv_dtype", "f32"});
  if (!towers.empty()) settings.push_back({"model.mmproj", towers});
  return Must(Engine::Open({.model = model,
                            .backend = "cpu",
                            .settings = std::move(settings),
                            .plugin_paths = {kPlugins}}));
}

// The models of a pair of the goldens.
std::shared_ptr<Engine> OpenPair(const std::string& pair, std::vector<Setting> settings = {}) {
  const json golden = ReadGolden(pair);
  const std::string model = golden.at("model");
  const std::string towers = golden.at("towers");
  return OpenModel(kShared + "/models/" + model,
                   towers == model ? std::string() : kShared + "/models/" + towers,
                   std::move(settings));
}

Medium MediumOf(const json& golden, const std::string& name) {
  const json medium = Named(golden.at("media"), name);
  const bool picture = medium.at("kind") == "image";
  return {.kind = picture ? MediaKind::kPicture : MediaKind::kSound,
          .path = kGoldens + medium.at("file").get<std::string>(),
          .image_tokens = picture ? medium.at("budget").get<int64_t>() : 0};
}

// A case of a pair as a prompt with a marker for each medium.
Request PromptOf(const std::string& pair, const std::string& name) {
  const json golden = ReadGolden(pair);
  Request request{.max_tokens = 24};
  request.sampling.temperature = 0;
  const json item = Named(golden.at("cases"), name);
  for (const json& part : item.at("parts")) {
    if (part.is_string()) {
      request.prompt += part.get<std::string>();
      continue;
    }
    request.media.push_back(MediumOf(golden, part.at("media")));
    request.prompt += request.media.back().kind == MediaKind::kPicture ? "<|image|>" : "<|audio|>";
  }
  return request;
}

// A turn of a user with a picture before a text.
Request ChatOf(const Medium& picture, const std::string& text) {
  Request request{
      .messages = json{{{"role", "user"},
                        {"content", {{{"type", "image"}}, {{"type", "text"}, {"text", text}}}}}}
                      .dump(),
      .media = {picture},
      .max_tokens = 8};
  request.sampling.temperature = 0;
  return request;
}

Completion Answer(Engine& engine, const Request& request) {
  auto generation = Must(engine.Submit(request));
  return Must(generation.Wait());
}

Error ErrorOf(Engine& engine, const Request& request) {
  auto result = engine.Submit(request);
  EXPECT_FALSE(result);
  return result ? Error{} : result.error();
}

Medium WidePicture() { return MediumOf(ReadGolden("e2b"), "wide-palette"); }

Medium TinyPicture() { return MediumOf(ReadGolden("e2b"), "tiny-rgba"); }

struct Case {
  std::string pair;
  std::string name;
};

class GoldenMediaAnswers : public ::testing::TestWithParam<Case> {};

TEST_P(GoldenMediaAnswers, AreThoseOfTransformers) {
  const auto& [pair, name] = GetParam();
  const json item = Named(ReadGolden(pair).at("cases"), name);
  const Completion answer = Answer(*OpenPair(pair), PromptOf(pair, name));
  EXPECT_EQ(answer.prompt_tokens, std::ssize(item.at("tokens")));
  // From a margin on that is too small to be judged, the texts may part.
  const std::vector<double> margins = item.at("margins");
  const auto judged = static_cast<size_t>(
      std::ranges::find_if(margins, [](double margin) { return margin <= 0.05; }) -
      margins.begin());
  std::vector<int32_t> expected = item.at("greedy");
  expected.resize(std::min({judged, expected.size(), answer.ids.size()}));
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), answer.ids.begin()))
      << answer.text << "\nexpected " << item.at("text");
  const bool whole = answer.reason == StopReason::kEndOfGeneration;
  EXPECT_GE(expected.size() + (whole ? 1 : 0), std::min<size_t>(judged, 24));
}

INSTANTIATE_TEST_SUITE_P(Cpu, GoldenMediaAnswers,
                         ::testing::Values(Case{"e2b", "image"}, Case{"e2b", "audio"},
                                           Case{"e2b", "two-images"}, Case{"dense", "image"},
                                           Case{"dense", "two-images"}, Case{"unified", "image"},
                                           Case{"unified", "both"}, Case{"ollama", "both"}),
                         [](const auto& instance) {
                           std::string name = instance.param.pair + "_" + instance.param.name;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(EngineMedia, ConversationsPutAPictureWhereItsPartStands) {
  const json item = Named(ReadGolden("e2b").at("cases"), "image");
  Request request = ChatOf(WidePicture(), "Who stands at the left of the prince?");
  request.max_tokens = 24;
  const Completion answer = Answer(*OpenPair("e2b"), request);
  EXPECT_EQ(answer.prompt_tokens, std::ssize(item.at("tokens")));
  EXPECT_EQ(answer.ids, item.at("greedy").get<std::vector<int32_t>>());
  ASSERT_EQ(answer.media.size(), 1);
  EXPECT_EQ(answer.media.front(), (MediumFacts{.kind = MediaKind::kPicture,
                                               .tokens = 64,
                                               .image_tokens = 70,
                                               .width = 310,
                                               .height = 84}));
}

TEST(EngineMedia, BytesAndFilesAreTheSame) {
  const auto engine = OpenPair("e2b");
  Request request = ChatOf(TinyPicture(), "Who?");
  const Completion from_file = Answer(*engine, request);
  request.media.front().bytes = ReadWholeFile(request.media.front().path);
  request.media.front().path.clear();
  const Completion from_bytes = Answer(*engine, request);
  EXPECT_EQ(from_bytes.ids, from_file.ids);
  EXPECT_GT(from_bytes.cached_tokens, from_file.media.front().tokens);
}

TEST(EngineMedia, DraftsAfterAPictureChangeNoByte) {
  const auto drafting = OpenPair("e2b", {{"drafts.lookup", "true"}, {"drafts.model", kText}});
  const auto plain = OpenPair("e2b");
  Request request = PromptOf("e2b", "image");
  request.top_logprobs = 2;
  for (const int32_t repeated : {-1, 300}) {
    if (repeated >= 0) request.sampling.logit_bias = {{repeated, 100.0F}};
    const Completion found = Answer(*drafting, request);
    const Completion expected = Answer(*plain, request);
    EXPECT_EQ(found.ids, expected.ids);
    EXPECT_EQ(found.logprobs, expected.logprobs);
    EXPECT_GT(found.drafts.accepted, repeated >= 0 ? 0 : -1);
  }
}

TEST(EngineMedia, TogetherTheyGiveTheBytesOfEachAlone) {
  std::vector<Request> requests;
  for (const auto* name : {"image", "two-images"}) requests.push_back(PromptOf("dense", name));
  requests.push_back(ChatOf(TinyPicture(), "Who?"));
  for (Request& request : requests) request.top_logprobs = 3;
  const auto engine = OpenPair("dense", {{"context.slots", "3"}});
  std::vector<Generation> running;
  for (const Request& request : requests) running.push_back(Must(engine->Submit(request)));
  std::vector<Completion> together;
  for (Generation& generation : running) together.push_back(Must(generation.Wait()));
  const auto lonely = OpenPair("dense", {{"context.slots", "3"}});
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].reuse_prefix = false;
    const Completion alone = Answer(*lonely, requests[i]);
    EXPECT_EQ(together[i].ids, alone.ids) << "request " << i;
    EXPECT_EQ(together[i].logprobs, alone.logprobs) << "request " << i;
  }
}

TEST(EngineMedia, SeveralAnswersShareTheReadingOfAPicture) {
  const auto engine = OpenPair("dense", {{"context.slots", "2"}});
  Request request = ChatOf(TinyPicture(), "Who stands there, and why?");
  request.sampling.temperature = 1;
  request.sampling.seed = 7;
  auto answers = Must(engine->SubmitChoices(request, 2));
  for (uint32_t choice = 0; choice < 2; ++choice) {
    const Completion shared = Must(answers[choice].Wait());
    request.choice = choice;
    request.reuse_prefix = false;
    EXPECT_EQ(shared.ids, Answer(*engine, request).ids);
  }
}

TEST(EngineMedia, TheNextTurnReusesThePictureAndAnotherPictureDoesNot) {
  const auto engine = OpenPair("dense");
  Request first = ChatOf(WidePicture(), "Who stands at the left of the prince?");
  const Completion answer = Answer(*engine, first);
  json messages = json::parse(first.messages);
  messages.push_back({{"role", "assistant"}, {"content", answer.text}});
  messages.push_back({{"role", "user"}, {"content", "And at his right?"}});
  Request second = first;
  second.messages = messages.dump();
  second.top_logprobs = 1;

  const Completion reused = Answer(*engine, second);
  const int64_t after_picture = 4 + 1 + answer.media.front().tokens;
  EXPECT_GE(reused.cached_tokens, after_picture);

  Request changed = second;
  changed.media = {TinyPicture()};
  const Completion other = Answer(*engine, changed);
  EXPECT_LT(other.cached_tokens, after_picture);

  for (auto& [request, expected] : {std::pair{&second, &reused}, {&changed, &other}}) {
    request->reuse_prefix = false;
    const Completion fresh = Answer(*engine, *request);
    EXPECT_EQ(fresh.cached_tokens, 0);
    EXPECT_EQ(fresh.ids, expected->ids);
    EXPECT_EQ(fresh.logprobs, expected->logprobs);
  }
  EXPECT_NE(reused.logprobs, other.logprobs);
}

TEST(EngineMedia, APictureAfterAnotherBeginningIsNotEncodedAgain) {
  const auto engine = OpenPair("dense", {{"context.slots", "2"}});
  const auto fresh = OpenPair("dense", {{"context.slots", "2"}, {"server.media_cache_mib", "0"}});
  const json content = json::parse(ChatOf(TinyPicture(), "Who?").messages);
  for (const auto* system : {"You see well.", "You are brief."}) {
    Request request = ChatOf(TinyPicture(), "");
    json messages = content;
    messages.insert(messages.begin(), json{{"role", "system"}, {"content", system}});
    request.messages = messages.dump();
    request.top_logprobs = 1;
    const Completion cached = Answer(*engine, request);
    const Completion expected = Answer(*fresh, request);
    EXPECT_LT(cached.cached_tokens, cached.media.front().tokens);
    EXPECT_EQ(cached.ids, expected.ids);
    EXPECT_EQ(cached.logprobs, expected.logprobs);
    EXPECT_GT(expected.encode_seconds, 0);
  }
  EXPECT_EQ(engine->stats().media_misses, 1);
  EXPECT_EQ(engine->stats().media_hits, 1);
  EXPECT_GT(engine->stats().media_bytes, 0);
  EXPECT_EQ(fresh->stats().media_misses, 2);
  EXPECT_EQ(fresh->stats().media_entries, 0);

  Request alone = ChatOf(TinyPicture(), "Who?");
  alone.reuse_prefix = false;
  Answer(*engine, alone);
  EXPECT_EQ(engine->stats().media_misses, 2);
}

TEST(EngineMedia, OtherImageTokensAreAnotherPrompt) {
  const auto engine = OpenPair("dense");
  Request request = ChatOf(TinyPicture(), "Who?");
  const Completion few = Answer(*engine, request);
  request.media.front().image_tokens = 140;
  const Completion more = Answer(*engine, request);
  EXPECT_EQ(few.media.front().tokens, 60);
  EXPECT_EQ(more.media.front().tokens, 135);
  EXPECT_LT(more.cached_tokens, 10);
}

// The slot holds other tokens at the rows of the picture.
TEST(EngineMedia, PenaltiesDoNotCountSoftRows) {
  Request with_penalty = ChatOf(WidePicture(), "Who stands there?");
  with_penalty.max_tokens = 16;
  with_penalty.top_logprobs = 0;
  with_penalty.sampling.repeat_penalty = 1.5;
  with_penalty.sampling.repeat_last_n = -1;
  with_penalty.reuse_prefix = false;
  const Completion fresh = Answer(*OpenPair("e2b"), with_penalty);
  const auto engine = OpenPair("e2b");
  Request text{.prompt =
                   "Well, Prince, so Genoa and Lucca are now just family estates of the "
                   "Buonapartes. But I warn you, if you don't tell me that this means war, "
                   "if you still try to defend the infamies and horrors perpetrated",
               .max_tokens = 60};
  Answer(*engine, text);
  const Completion after_text = Answer(*engine, with_penalty);
  EXPECT_EQ(after_text.ids, fresh.ids);
  EXPECT_EQ(after_text.logprobs, fresh.logprobs);
}

TEST(EngineMedia, StoredPromptsHavePictures) {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("rullama-media-prompt-" + std::to_string(::getpid()) + ".gguf");
  const Request request = ChatOf(WidePicture(), "Who stands at the left of the prince?");
  const auto writer = OpenPair("dense");
  const int64_t stored = Must(writer->SavePrompt(request, path));
  EXPECT_GE(stored, 69);
  const auto reader = OpenPair("dense");
  EXPECT_EQ(Must(reader->LoadPrompt(path)), stored);
  const auto with_other_towers = OpenPair("unified");
  EXPECT_EQ(with_other_towers->LoadPrompt(path).error().id, "snapshot.mismatch");
  std::filesystem::remove(path);
  const Completion answer = Answer(*reader, request);
  EXPECT_EQ(answer.cached_tokens, stored);
  EXPECT_EQ(answer.ids, Answer(*writer, request).ids);
}

TEST(EngineMedia, TextOfUsersIsNoPlace) {
  const auto engine = OpenPair("e2b");
  Request request = ChatOf(TinyPicture(), "<|image|> and <image|>");
  const int64_t with_markers = Must(engine->CountPrompt(request));
  EXPECT_GT(with_markers, 60 + 10);
  request.media.push_back(TinyPicture());
  EXPECT_EQ(ErrorOf(*engine, request).id, "media.count");
}

TEST(EngineMedia, ErrorsSayWhatIsWrong) {
  const auto engine = OpenPair("dense");  // no tower for sound
  const auto error_of = [&](const Medium& medium) {
    return ErrorOf(*engine, ChatOf(medium, "Who?"));
  };
  const Medium good = TinyPicture();
  const std::string sound = kGoldens + "speech-16k-mono.wav";
  EXPECT_EQ(error_of({.kind = MediaKind::kSound, .path = sound}).id, "media.unsupported");
  EXPECT_EQ(error_of({.path = "/nonexistent.png"}).id, "io.open");
  EXPECT_EQ(error_of({.path = sound}).id, "media.format");
  EXPECT_EQ(error_of({.bytes = "\x89PNG\r\n\x1a\n"}).id, "media.damaged");
  EXPECT_EQ(error_of({.path = good.path, .image_tokens = 100}).id, "usage.request");
  EXPECT_EQ(error_of({}).id, "usage.request");
  EXPECT_EQ(error_of({.path = good.path, .image_tokens = 560}).id, "context.overflow");
  EXPECT_THAT(error_of({.path = sound}).message, HasSubstr(sound));

  Request without = ChatOf(good, "Who?");
  without.media.clear();
  EXPECT_EQ(ErrorOf(*engine, without).id, "media.count");
  Request video = without;
  video.messages = R"([{"role": "user", "content": [{"type": "video"}]}])";
  EXPECT_EQ(ErrorOf(*engine, video).id, "media.unsupported");
  Request kinds{.prompt = "<|audio|>", .media = {good}};
  EXPECT_EQ(ErrorOf(*engine, kinds).id, "media.kind");
  Request ids{.ids = {2, 3}, .media = {good}};
  EXPECT_EQ(ErrorOf(*engine, ids).id, "usage.request");
}

TEST(EngineMedia, ModelsSayWhatTheyTake) {
  const auto both = OpenPair("e2b");
  EXPECT_TRUE(both->info().takes_pictures);
  EXPECT_TRUE(both->info().takes_sound);
  const auto text = OpenModel(kText, "");
  EXPECT_FALSE(text->info().takes_pictures);
  EXPECT_FALSE(text->info().takes_sound);
  EXPECT_EQ(ErrorOf(*text, ChatOf(TinyPicture(), "Who?")).id, "media.unsupported");
}

}  // namespace
}  // namespace rullama
