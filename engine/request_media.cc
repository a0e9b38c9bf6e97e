#include "engine/request_media.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "core/base/mmap_file.h"
#include "engine/media_encoder.h"
#include "engine/soft_row_ids.h"
#include "media/picture_size.h"
#include "media/sound.h"

namespace rullama {
namespace {

// The budget of a picture: as asked, as configured, or by its size.
Result<uint32_t> BudgetOf(const Config& config, const Medium& medium, const Picture& picture) {
  const int64_t asked =
      medium.image_tokens > 0 ? medium.image_tokens : config.generation.image_tokens.value_or(0);
  if (asked == 0) return DefaultImageTokens(picture.width, picture.height);
  if (std::ranges::find(kImageTokenBudgets, asked) != kImageTokenBudgets.end()) {
    return static_cast<uint32_t>(asked);
  }
  return MakeError(ErrorKind::kUsage, "usage.request",
                   "image_tokens is {}, expected 70, 140, 280, 560 or 1120", asked);
}

Result<DecodedMedium> DecodePictureOf(const LoadedModel& model, const Medium& medium,
                                      std::span<const std::byte> file) {
  const PictureTower* tower = model.towers.towers.picture.get();
  if (tower == nullptr) return UnsupportedMedium(MediaKind::kPicture);
  DecodedMedium decoded{.kind = MediaKind::kPicture};
  RL_ASSIGN_OR_RETURN(decoded.picture, DecodePicture(file));
  const Picture& picture = decoded.picture;
  RL_ASSIGN_OR_RETURN(decoded.image_tokens, BudgetOf(model.config(), medium, picture));
  RL_ASSIGN_OR_RETURN(const BlockGrid grid,
                      tower->Fit(picture.width, picture.height, decoded.image_tokens));
  decoded.tokens = grid.tokens();
  decoded.hash = HashPicture(picture, decoded.image_tokens);
  return decoded;
}

Result<DecodedMedium> DecodeSoundOf(const LoadedModel& model, std::span<const std::byte> file) {
  const SoundTower* tower = model.towers.towers.sound.get();
  if (tower == nullptr) return UnsupportedMedium(MediaKind::kSound);
  DecodedMedium decoded{.kind = MediaKind::kSound};
  RL_ASSIGN_OR_RETURN(decoded.samples, DecodeSound(file));
  for (const std::span<const float> piece : SoundPieces(decoded.samples)) {
    decoded.tokens += tower->Tokens(piece.size());
  }
  decoded.hash = HashSound(decoded.samples);
  return decoded;
}

Result<DecodedMedium> Decode(const LoadedModel& model, const Medium& medium) {
  if (medium.path.empty() == medium.bytes.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.request",
                     "a {} has {} of `path` and `bytes`, expected exactly one", NameOf(medium.kind),
                     medium.path.empty() ? "none" : "both");
  }
  std::optional<MmapFile> mapped;
  std::span<const std::byte> file = std::as_bytes(std::span(medium.bytes));
  if (!medium.path.empty()) {
    RL_ASSIGN_OR_RETURN(mapped, MmapFile::Open(medium.path));
    file = mapped->bytes();
  }
  return medium.kind == MediaKind::kPicture ? DecodePictureOf(model, medium, file)
                                            : DecodeSoundOf(model, file);
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

Result<DecodedMedia> DecodeMedia(const LoadedModel& model, std::span<const Medium> media) {
  DecodedMedia decoded;
  decoded.reserve(media.size());
  for (size_t i = 0; i < media.size(); ++i) {
    auto one = Decode(model, media[i]);
    if (!one) {
      const std::string& path = media[i].path;
      return tl::unexpected<Error>(std::move(one).error().WithContext(
          path.empty() ? fmt::format("{} {} of the request", NameOf(media[i].kind), i + 1)
                       : fmt::format("{} '{}'", NameOf(media[i].kind), path)));
    }
    decoded.push_back(std::make_shared<const DecodedMedium>(*std::move(one)));
  }
  return decoded;
}

MediumFacts FactsOf(const DecodedMedium& medium) {
  return {.kind = medium.kind,
          .tokens = medium.tokens,
          .image_tokens = medium.image_tokens,
          .width = medium.picture.width,
          .height = medium.picture.height,
          .seconds = static_cast<double>(medium.samples.size()) / kSoundRate};
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
