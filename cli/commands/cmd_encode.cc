// rullama encode: the soft tokens of a picture or a sound, as a file of little-endian float32.
#include <array>
#include <memory>
#include <string>

#include "cli/commands/command.h"
#include "cli/commands/json_text.h"
#include "cli/commands/loading.h"
#include "cli/commands/options.h"
#include "core/base/clock.h"
#include "core/gguf/atomic_file.h"
#include "engine/media/request_media.h"

namespace rullama::cli {
namespace {

struct EncodeFlags {
  ConfigFlags config;
  std::string image;
  std::string audio;
  std::string out;
  bool json = false;
};

nlohmann::json FactsAsJson(const DecodedMedium& medium, const SoftTokens& soft, double seconds) {
  nlohmann::json facts = {{"tokens", soft.tokens},
                          {"width", soft.width},
                          {"hash", fmt::format("{:016x}{:016x}", soft.hash.high, soft.hash.low)},
                          {"encode_s", seconds}};
  if (medium.kind == MediaKind::kPicture) {
    facts["kind"] = "image";
    facts["image_tokens"] = medium.image_tokens;
    facts["picture"] = {medium.width, medium.height};
  } else {
    facts["kind"] = "audio";
    facts["sound_s"] = medium.seconds();
  }
  return facts;
}

Result<int> EncodeFile(const EncodeFlags& flags, Console& console) {
  const bool image = !flags.image.empty();
  const std::string& input = image ? flags.image : flags.audio;
  if (input.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.option",
                     "there is neither --image nor --audio, expected one of them");
  }
  RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(flags.out));
  RL_ASSIGN_OR_RETURN(const auto engine, OpenModelSession(flags.config, {}, console));
  const std::array medium = {
      Medium{.kind = image ? MediaKind::kPicture : MediaKind::kSound, .path = input}};
  RL_ASSIGN_OR_RETURN(const DecodedMedia decoded, DecodeMedia(engine->model(), medium));
  const auto start = Clock::now();
  RL_ASSIGN_OR_RETURN(const SoftTokens soft, engine->media().Encode(*decoded.front()));
  const double seconds = SecondsSince(start);
  RL_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(soft.values))));
  RL_RETURN_IF_ERROR(file.Commit());
  if (flags.json) {
    RL_RETURN_IF_ERROR(console.Write(JsonLine(FactsAsJson(*decoded.front(), soft, seconds))));
  }
  console.Note(fmt::format("wrote soft tokens [{}, {}] to '{}' ({:.2f} s)", soft.tokens, soft.width,
                           flags.out, seconds));
  return 0;
}

}  // namespace

void AddEncodeCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<EncodeFlags>();
  CLI::App* command =
      app.add_subcommand("encode", "Write what a model sees of a picture or hears of a sound");
  CLI::Option* image =
      command->add_option("--image", flags->image, "JPEG, PNG, WebP, GIF, BMP, HEIC or AVIF file")
          ->option_text("FILE");
  command->add_option("--audio", flags->audio, "WAV, FLAC, Ogg or MP3 file")
      ->excludes(image)
      ->option_text("FILE");
  command
      ->add_option("--out", flags->out, "The soft tokens: float32 [tokens, width], little-endian")
      ->required()
      ->option_text("FILE");
  AddImageTokensOption(*command, flags->config);
  command->add_flag("--json", flags->json, "Print tokens, width, hash and time as a JSON object");
  AddModelOptions(*command, flags->config);
  AddTowerOption(*command, flags->config);
  command->footer(R"(Examples:
  rullama encode -m gemma4:e2b --image photo.jpg --image-tokens 560 --out photo.f32
  rullama encode -m model.gguf --mmproj mmproj.gguf --audio speech.wav --out speech.f32 --json)");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return EncodeFile(*flags, context.console); };
  });
}

}  // namespace rullama::cli
