#include "engine/media/request_media.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "core/base/mmap_file.h"
#include "engine/media/media_encoder.h"
#include "engine/media/soft_row_ids.h"
#include "media/picture_size.h"
#include "media/sound.h"

namespace rullama {
namespace {

// The bytes of the pixels of a soft token.
uint64_t BytesOfToken(const PictureTower& tower) {
  constexpr uint64_t kChannels = 3;
  return kChannels * tower.SquareSide() * tower.SquareSide();
}

int64_t TokensOf(const SoundTower& tower, size_t samples) {
  int64_t tokens = static_cast<int64_t>(samples / kMaxSoundPiece) * tower.Tokens(kMaxSoundPiece);
  const size_t rest = samples % kMaxSoundPiece;
  if (rest >= kMinSoundSamples) tokens += tower.Tokens(rest);
  return tokens;
}

// The media of a request on their way from files to the input of towers.
class MediaReader {
 public:
  MediaReader(const LoadedModel& model, std::span<const Medium> media, const MediaLimits& limits)
      : model_(model), media_(media), limits_(limits), plans_(media.size()) {}

  // Reads all headers and checks their sums.
  Status Plan();
  Result<DecodedMedia> Decode();
  Result<DecodedMedia> Measure();

 private:
  // The facts about a medium that are known before it is decoded.
  struct MediumPlan {
    std::optional<MmapFile> mapped;
    std::span<const std::byte> file;
    uint32_t width = 0;  // of a picture, as stored
    uint32_t height = 0;
    uint32_t image_tokens = 0;
    int64_t tokens = 0;  // of a sound: 0 if only decoding tells, else about
    uint64_t decoding_bytes = 0;
    uint64_t decoded_bytes = 0;
  };

  Status PlanOne(size_t index);
  Status PlanPicture(const Medium& medium, MediumPlan& plan) const;
  Status PlanSound(MediumPlan& plan) const;
  Result<DecodedMedium> DecodeOne(size_t index, MediaBudget::Part memory) const;
  Result<DecodedMedium> DecodePictureOf(const MediumPlan& plan) const;
  Result<DecodedMedium> DecodeSoundOf(const MediumPlan& plan) const;
  // How many samples give more tokens than the limit allows.
  [[nodiscard]] size_t EnoughSamples() const;
  [[nodiscard]] Status CheckTokens(int64_t tokens, bool more) const;
  [[nodiscard]] bool IsTooMany(int64_t tokens) const {
    return limits_.max_tokens >= 0 && tokens > limits_.max_tokens;
  }
  // The error with the medium that it is about.
  [[nodiscard]] tl::unexpected<Error> About(size_t index, Error error) const;

  const LoadedModel& model_;
  std::span<const Medium> media_;
  const MediaLimits& limits_;
  std::vector<MediumPlan> plans_;
};

tl::unexpected<Error> MediaReader::About(size_t index, Error error) const {
  if (error.id == "run.cancelled" || error.id == "context.overflow") {
    return tl::unexpected<Error>(std::move(error));
  }
  const Medium& medium = media_[index];
  return tl::unexpected<Error>(std::move(error).WithContext(
      medium.path.empty() ? fmt::format("{} {} of the request", NameOf(medium.kind), index + 1)
                          : fmt::format("{} '{}'", NameOf(medium.kind), medium.path)));
}

Status MediaReader::CheckTokens(int64_t tokens, bool more) const {
  if (!IsTooMany(tokens)) return OkStatus();
  return MakeError(ErrorKind::kRuntime, "context.overflow",
                   "the prompt has {}{} tokens of pictures and sounds, but the context holds {}; "
                   "give fewer or shorter ones, or fewer image tokens",
                   more ? "more than " : "", more ? limits_.max_tokens : tokens,
                   limits_.max_tokens);
}

Status MediaReader::Plan() {
  int64_t tokens = 0;
  for (size_t i = 0; i < media_.size(); ++i) {
    if (Status status = PlanOne(i); !status) return About(i, std::move(status).error());
    tokens += plans_[i].tokens;
  }
  return CheckTokens(tokens, /*more=*/false);
}

Status MediaReader::PlanOne(size_t index) {
  const Medium& medium = media_[index];
  MediumPlan& plan = plans_[index];
  if (medium.path.empty() == medium.bytes.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.request",
                     "a {} has {} of `path` and `bytes`, expected exactly one", NameOf(medium.kind),
                     medium.path.empty() ? "none" : "both");
  }
  plan.file = std::as_bytes(std::span(medium.bytes));
  if (!medium.path.empty()) {
    RL_ASSIGN_OR_RETURN(plan.mapped, MmapFile::Open(medium.path));
    plan.file = plan.mapped->bytes();
  }
  return medium.kind == MediaKind::kPicture ? PlanPicture(medium, plan) : PlanSound(plan);
}

Status MediaReader::PlanPicture(const Medium& medium, MediumPlan& plan) const {
  const PictureTower* tower = model_.towers.towers.picture.get();
  if (tower == nullptr) return UnsupportedMedium(MediaKind::kPicture);
  RL_ASSIGN_OR_RETURN(const PictureHeader header, ReadPictureHeader(plan.file));
  plan.width = header.width;
  plan.height = header.height;
  // Vectors are compared with those that other programs made, of pictures with one budget.
  const int64_t unasked = model_.facts().encodes() ? int64_t{kDefaultImageTokens} : 0;
  const int64_t asked = medium.image_tokens > 0
                            ? medium.image_tokens
                            : model_.config().generation.image_tokens.value_or(unasked);
  RL_ASSIGN_OR_RETURN(plan.image_tokens,
                      PictureBudget(tower->Budgets(), asked, header.width, header.height));
  // A picture on its side has the same squares, in columns instead of rows.
  RL_ASSIGN_OR_RETURN(const BlockGrid grid,
                      tower->Fit(header.width, header.height, plan.image_tokens));
  plan.tokens = grid.tokens();
  plan.decoding_bytes = header.decoding_bytes;
  plan.decoded_bytes = grid.tokens() * BytesOfToken(*tower);
  return OkStatus();
}

size_t MediaReader::EnoughSamples() const {
  constexpr size_t kLongest = size_t{kMaxSoundSeconds} * kSoundRate;
  if (limits_.max_tokens < 0) return kLongest;
  const SoundTower& tower = *model_.towers.towers.sound;
  size_t samples = 0;
  while (samples < kLongest && !IsTooMany(TokensOf(tower, samples))) {
    samples += kMaxSoundPiece / 8;
  }
  return std::min(samples, kLongest);
}

Status MediaReader::PlanSound(MediumPlan& plan) const {
  const SoundTower* tower = model_.towers.towers.sound.get();
  if (tower == nullptr) return UnsupportedMedium(MediaKind::kSound);
  const size_t enough = EnoughSamples();
  const uint64_t samples = SoundSamplesOfHeader(plan.file).value_or(0);
  plan.tokens = TokensOf(*tower, static_cast<size_t>(samples));
  plan.decoded_bytes = (samples > 0 ? std::min<uint64_t>(samples, enough) : enough) * sizeof(float);
  if (samples > size_t{kMaxSoundSeconds} * kSoundRate || IsTooMany(plan.tokens)) {
    // Its beginning tells whether something else is wrong with it.
    RL_RETURN_IF_ERROR(
        DecodeSound(plan.file, {.enough_samples = kMinSoundSamples, .stop = limits_.stop}));
  }
  return OkStatus();
}

Result<DecodedMedium> MediaReader::DecodePictureOf(const MediumPlan& plan) const {
  const PictureTower& tower = *model_.towers.towers.picture;
  DecodedMedium decoded{.kind = MediaKind::kPicture, .image_tokens = plan.image_tokens};
  RL_ASSIGN_OR_RETURN(Picture picture, DecodePicture(plan.file, {.stop = limits_.stop}));
  decoded.width = picture.width;
  decoded.height = picture.height;
  RL_ASSIGN_OR_RETURN(const BlockGrid grid,
                      tower.Fit(picture.width, picture.height, plan.image_tokens));
  decoded.tokens = grid.tokens();
  RL_ASSIGN_OR_RETURN(decoded.scaled, tower.Scale(std::move(picture), plan.image_tokens));
  decoded.hash = HashPicture(decoded.scaled, plan.image_tokens);
  return decoded;
}

Result<DecodedMedium> MediaReader::DecodeSoundOf(const MediumPlan& plan) const {
  const SoundTower& tower = *model_.towers.towers.sound;
  const size_t enough = EnoughSamples();
  DecodedMedium decoded{.kind = MediaKind::kSound};
  RL_ASSIGN_OR_RETURN(decoded.samples,
                      DecodeSound(plan.file, {.enough_samples = enough, .stop = limits_.stop}));
  for (const std::span<const float> piece : SoundPieces(decoded.samples)) {
    decoded.tokens += tower.Tokens(piece.size());
  }
  RL_RETURN_IF_ERROR(CheckTokens(decoded.tokens, decoded.samples.size() > enough));
  decoded.hash = HashSound(decoded.samples);
  return decoded;
}

Result<DecodedMedium> MediaReader::DecodeOne(size_t index, MediaBudget::Part memory) const {
  const MediumPlan& plan = plans_[index];
  MediaBudget::Part decoding;
  if (limits_.budget != nullptr) {
    RL_ASSIGN_OR_RETURN(decoding,
                        limits_.budget->ReserveDecoding(plan.decoding_bytes, limits_.stop));
  }
  auto decoded =
      media_[index].kind == MediaKind::kPicture ? DecodePictureOf(plan) : DecodeSoundOf(plan);
  if (!decoded) return About(index, std::move(decoded).error());
  memory.Keep(decoded->scaled.rgb.size() + decoded->samples.size() * sizeof(float));
  decoded->memory = std::move(memory);
  return decoded;
}

Result<DecodedMedia> MediaReader::Decode() {
  uint64_t bytes = 0;
  for (const MediumPlan& plan : plans_) bytes += plan.decoded_bytes;
  MediaBudget::Part all;
  if (limits_.budget != nullptr && bytes > 0) {
    RL_ASSIGN_OR_RETURN(all, limits_.budget->ReserveDecoded(bytes, limits_.stop));
  }
  DecodedMedia decoded;
  decoded.reserve(media_.size());
  for (size_t i = 0; i < media_.size(); ++i) {
    RL_ASSIGN_OR_RETURN(DecodedMedium one, DecodeOne(i, all.Split(plans_[i].decoded_bytes)));
    decoded.push_back(std::make_shared<const DecodedMedium>(std::move(one)));
    plans_[i].mapped.reset();
  }
  return decoded;
}

Result<DecodedMedia> MediaReader::Measure() {
  DecodedMedia measured;
  for (size_t i = 0; i < media_.size(); ++i) {
    MediumPlan& plan = plans_[i];
    DecodedMedium one{.kind = media_[i].kind,
                      .width = plan.width,
                      .height = plan.height,
                      .image_tokens = plan.image_tokens,
                      .tokens = plan.tokens};
    if (one.kind == MediaKind::kSound) {
      plan.decoding_bytes = plan.decoded_bytes;
      RL_ASSIGN_OR_RETURN(const DecodedMedium sound, DecodeOne(i, {}));
      one.tokens = sound.tokens;
    }
    measured.push_back(std::make_shared<const DecodedMedium>(std::move(one)));
  }
  return measured;
}

// The tokens of the markers of a kind of media; absent where the vocabulary has not all of them.
struct MarkerIds {
  TokenId begin = 0;
  TokenId placeholder = 0;
  TokenId end = 0;
};

std::optional<MarkerIds> FindMarkers(const Model& model, const Tokenizer& tokenizer,
                                     MediaKind kind) {
  const auto markers = model.MarkersOf(kind);
  if (!markers) return std::nullopt;
  const auto begin = tokenizer.FindToken(markers->begin);
  const auto placeholder = tokenizer.FindToken(markers->placeholder);
  const auto end = tokenizer.FindToken(markers->end);
  if (!begin || !placeholder || !end) return std::nullopt;
  return MarkerIds{*begin, *placeholder, *end};
}

// Writes a prompt anew, with soft rows in place of placeholders.
class MediaPlacer {
 public:
  MediaPlacer(const Model& model, const Tokenizer& tokenizer, const DecodedMedia& media)
      : media_(media),
        picture_(FindMarkers(model, tokenizer, MediaKind::kPicture)),
        sound_(FindMarkers(model, tokenizer, MediaKind::kSound)) {}

  Status Place(std::span<const int32_t> prompt) {
    RL_RETURN_IF_ERROR(CheckCount(prompt));
    for (const int32_t id : prompt) {
      const auto kind = KindOf(id);
      if (!kind) {
        ids_.push_back(id);
        continue;
      }
      RL_RETURN_IF_ERROR(PlaceNext(*kind));
    }
    return OkStatus();
  }
  [[nodiscard]] const std::vector<int32_t>& ids() const { return ids_; }
  [[nodiscard]] const std::vector<PlacedMedium>& places() const { return places_; }

 private:
  // The kind of the medium whose placeholder the token is; nothing for any other token.
  [[nodiscard]] std::optional<MediaKind> KindOf(int32_t id) const {
    if (picture_ && id == picture_->placeholder) return MediaKind::kPicture;
    if (sound_ && id == sound_->placeholder) return MediaKind::kSound;
    return std::nullopt;
  }
  [[nodiscard]] Status CheckCount(std::span<const int32_t> prompt) const {
    const auto places =
        std::ranges::count_if(prompt, [this](int32_t id) { return KindOf(id).has_value(); });
    if (places == std::ssize(media_)) return OkStatus();
    return MakeError(ErrorKind::kUsage, "media.count",
                     "the prompt has {} places for pictures and sounds, but the request brings {}; "
                     "give one for each place",
                     places, media_.size());
  }
  Status PlaceNext(MediaKind kind) {
    const std::shared_ptr<const DecodedMedium>& medium = media_[places_.size()];
    if (medium->kind != kind) {
      return MakeError(
          ErrorKind::kUsage, "media.kind",
          "medium {} of the request is a {}, but the prompt has a place for a {} there",
          places_.size() + 1, NameOf(medium->kind), NameOf(kind));
    }
    const MarkerIds& markers = kind == MediaKind::kPicture ? *picture_ : *sound_;
    ids_.push_back(markers.begin);
    places_.push_back({.first = std::ssize(ids_), .medium = medium});
    for (int64_t row = 0; row < medium->tokens; ++row) {
      ids_.push_back(SoftRowId(kind, medium->hash, row));
    }
    ids_.push_back(markers.end);
    return OkStatus();
  }

  const DecodedMedia& media_;
  std::optional<MarkerIds> picture_;
  std::optional<MarkerIds> sound_;
  std::vector<int32_t> ids_;
  std::vector<PlacedMedium> places_;
};

}  // namespace

Result<uint32_t> PictureBudget(std::span<const uint32_t> budgets, int64_t asked, uint32_t width,
                               uint32_t height) {
  if (asked > 0 && std::ranges::find(budgets, asked) != budgets.end()) {
    return static_cast<uint32_t>(asked);
  }
  const bool has_one = budgets.size() == 1;
  if (has_one && (asked == 0 || std::ranges::find(kImageTokenBudgets, asked) !=
                                    std::ranges::end(kImageTokenBudgets))) {
    return budgets.front();
  }
  if (asked == 0) return DefaultImageTokens(width, height);
  return MakeError(ErrorKind::kUsage, "usage.request", "image_tokens is {}, expected {}{}", asked,
                   has_one ? "" : "one of ", fmt::join(budgets, ", "));
}

Result<DecodedMedia> DecodeMedia(const LoadedModel& model, std::span<const Medium> media,
                                 const MediaLimits& limits) {
  MediaReader reader(model, media, limits);
  RL_RETURN_IF_ERROR(reader.Plan());
  return reader.Decode();
}

Result<DecodedMedia> MeasureMedia(const LoadedModel& model, std::span<const Medium> media,
                                  const MediaLimits& limits) {
  MediaReader reader(model, media, limits);
  RL_RETURN_IF_ERROR(reader.Plan());
  return reader.Measure();
}

MediumFacts FactsOf(const DecodedMedium& medium) {
  return {.kind = medium.kind,
          .tokens = medium.tokens,
          .image_tokens = medium.image_tokens,
          .width = medium.width,
          .height = medium.height,
          .seconds = medium.seconds()};
}

std::string WithTextAroundMedia(const Model& model, std::string prompt) {
  for (const MediaKind kind : {MediaKind::kPicture, MediaKind::kSound}) {
    const auto markers = model.MarkersOf(kind);
    if (!markers || (markers->before.empty() && markers->after.empty())) continue;
    const std::string whole =
        fmt::format("{}{}{}", markers->before, markers->placeholder, markers->after);
    for (size_t at = prompt.find(markers->placeholder); at != std::string::npos;
         at = prompt.find(markers->placeholder, at + whole.size())) {
      prompt.replace(at, markers->placeholder.size(), whole);
    }
  }
  return prompt;
}

Result<std::vector<PlacedMedium>> PlaceMedia(const Model& model, const Tokenizer& tokenizer,
                                             const DecodedMedia& media,
                                             std::vector<int32_t>& prompt) {
  MediaPlacer placer(model, tokenizer, media);
  RL_RETURN_IF_ERROR(placer.Place(prompt));
  prompt = placer.ids();
  return placer.places();
}

}  // namespace rullama
