#include "engine/media/media_encoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "media/picture_size.h"
#include "media/sound.h"

namespace rullama {
namespace {

// The step sizes for which plans are compiled: these budgets, which most pictures nearly fill, up
// to the longest medium.
std::vector<int64_t> BucketsUpTo(int64_t max_tokens, std::span<const uint32_t> budgets) {
  std::vector<int64_t> buckets;
  for (const uint32_t budget : budgets) {
    if (budget < max_tokens) buckets.push_back(budget);
  }
  buckets.push_back(max_tokens);
  return buckets;
}

// A step of all rows of one medium. Towers read no token, but a step says by them how many rows it
// has.
StepRows AllRows(int64_t tokens) {
  const auto count = static_cast<size_t>(tokens);
  StepRows rows{.demand = DemandMode::kAllRows,
                .tokens = std::vector<int32_t>(count, 0),
                .pos = std::vector<int32_t>(count),
                .slot = std::vector<int32_t>(count, 0),
                .wanted = {}};
  std::iota(rows.pos.begin(), rows.pos.end(), 0);
  return rows;
}

// `values`: the last rows of `soft`. Error backend.nan.
Status CheckFinite(std::span<const float> values, const SoftTokens& soft) {
  const auto bad = std::ranges::find_if(values, [](float x) { return !std::isfinite(x); });
  if (bad == values.end()) return OkStatus();
  const auto at = static_cast<int64_t>(soft.values.size() - values.size()) + (bad - values.begin());
  return MakeError(
      ErrorKind::kRuntime, "backend.nan",
      "value {} of soft token {} of the {} is {}, expected a finite number; the file of "
      "the towers may be damaged, or try another backend (--backend)",
      at % soft.width, at / soft.width, NameOf(soft.kind), *bad);
}

}  // namespace

tl::unexpected<Error> UnsupportedMedium(MediaKind kind) {
  return MakeError(ErrorKind::kUsage, "media.unsupported",
                   "the model takes no {}: no tower for it is loaded, expected one in the model "
                   "file or in an mmproj file; name one (model.mmproj, --mmproj)",
                   kind == MediaKind::kPicture ? "pictures" : "sound");
}

MediaEncoder::MediaEncoder(const Towers& towers, const GgufFile& file, std::vector<Device*> devices,
                           PlacementPolicy policy, std::shared_ptr<AllocatedBytes> allocated,
                           StepObserver* observer)
    : towers_(towers),
      file_(file),
      devices_(std::move(devices)),
      policy_(std::move(policy)),
      allocated_(std::move(allocated)),
      observer_(observer) {}

MediaEncoder::~MediaEncoder() = default;

bool MediaEncoder::Takes(MediaKind kind) const {
  return kind == MediaKind::kPicture ? towers_.picture != nullptr : towers_.sound != nullptr;
}

void MediaEncoder::Release() {
  for (Running* running : {&picture_, &sound_}) {
    running->session.reset();
    running->weights.reset();
  }
}

const Tower& MediaEncoder::TowerOf(MediaKind kind) const {
  if (kind == MediaKind::kPicture) return *towers_.picture;
  return *towers_.sound;
}

int64_t MediaEncoder::LongestOf(MediaKind kind) const {
  if (!Takes(kind)) return 0;
  return kind == MediaKind::kPicture ? towers_.picture->Budgets().back()
                                     : towers_.sound->Tokens(kMaxSoundPiece);
}

Result<MediaEncoder::Running> MediaEncoder::Start(MediaKind kind, int64_t max_tokens) const {
  RL_RETURN_IF_ERROR(file_.CheckUnchanged());
  RL_ASSIGN_OR_RETURN(TowerGraph built, TowerOf(kind).BuildGraph(max_tokens));
  Running running;
  running.weights = std::make_unique<GgufWeights>(file_);
  for (SyntheticConstant& constant : built.constants) {
    running.weights->AddConstant(std::move(constant.name), constant.type,
                                 std::move(constant.bytes));
  }
  running.width = built.graph.type(built.graph.outputs.front().value).last().constant;
  const std::span<const uint32_t> budgets =
      kind == MediaKind::kPicture ? towers_.picture->Budgets() : kImageTokenBudgets;
  std::vector<SessionGraph> graphs;
  graphs.push_back({.graph = std::move(built.graph),
                    .buckets = BucketsUpTo(max_tokens, budgets),
                    .extends_past = false});
  RL_ASSIGN_OR_RETURN(running.session, Session::Create(std::move(graphs), *running.weights,
                                                       {.devices = devices_,
                                                        .policy = policy_,
                                                        .limits = {.max_t = max_tokens},
                                                        .slots = 1,
                                                        .observer = observer_,
                                                        .allocated = allocated_}));
  return running;
}

Result<std::vector<MemoryNeed>> MediaEncoder::PredictMemory(MediaKind kind, int64_t tokens) const {
  if (!Takes(kind)) return std::vector<MemoryNeed>(devices_.size());
  RL_ASSIGN_OR_RETURN(const Running tower, Start(kind, tokens));
  return tower.session->PredictMemory();
}

Result<MediaEncoder::Running*> MediaEncoder::Find(MediaKind kind) {
  Running& running = kind == MediaKind::kPicture ? picture_ : sound_;
  if (!running.session) {
    RL_ASSIGN_OR_RETURN(running, Start(kind, LongestOf(kind)));
  }
  return &running;
}

Status MediaEncoder::Prepare() {
  for (const MediaKind kind : {MediaKind::kPicture, MediaKind::kSound}) {
    if (!Takes(kind)) continue;
    RL_ASSIGN_OR_RETURN(const Running* running, Find(kind));
    const int64_t most = kind == MediaKind::kPicture ? kDefaultImageTokens : LongestOf(kind);
    for (const int64_t tokens : running->session->graphs().front().buckets) {
      if (tokens > most) break;
      RL_RETURN_IF_ERROR(running->session->Prepare(tokens, DemandMode::kAllRows));
    }
  }
  return OkStatus();
}

Status MediaEncoder::Append(const TowerStep& step, SoftTokens& soft) {
  RL_ASSIGN_OR_RETURN(Running * found, Find(soft.kind));
  Running& running = *found;
  for (const TowerStep::Input& input : step.inputs) {
    RL_RETURN_IF_ERROR(running.session->SetInput(input.name, input.bytes()));
  }
  RL_RETURN_IF_ERROR(running.session->Run(AllRows(step.tokens)));
  const size_t first = soft.values.size();
  soft.width = running.width;
  soft.tokens += step.tokens;
  soft.values.resize(static_cast<size_t>(soft.tokens * soft.width));
  const std::span<float> values = std::span(soft.values).subspan(first);
  RL_RETURN_IF_ERROR(running.session->ReadOutput(kSoftTokens, std::as_writable_bytes(values)));
  return CheckFinite(values, soft);
}

Result<SoftTokens> MediaEncoder::Encode(const Picture& picture, uint32_t budget) {
  if (!towers_.picture) return UnsupportedMedium(MediaKind::kPicture);
  RL_ASSIGN_OR_RETURN(const Picture scaled, towers_.picture->Scale(picture, budget));
  return EncodeScaled(scaled, HashPicture(scaled, budget));
}

Result<SoftTokens> MediaEncoder::EncodeScaled(const Picture& scaled, const MediaHash& hash) {
  if (!towers_.picture) return UnsupportedMedium(MediaKind::kPicture);
  SoftTokens soft{.kind = MediaKind::kPicture, .hash = hash, .values = {}};
  RL_RETURN_IF_ERROR(Append(towers_.picture->Prepare(scaled), soft));
  return soft;
}

Result<SoftTokens> MediaEncoder::Encode(std::span<const float> samples) {
  if (!towers_.sound) return UnsupportedMedium(MediaKind::kSound);
  if (samples.size() < kMinSoundSamples) {
    return MakeError(ErrorKind::kUsage, "media.too_short",
                     "the sound has {} samples, expected at least {}", samples.size(),
                     kMinSoundSamples);
  }
  const SoundTower& tower = *towers_.sound;
  SoftTokens soft{.kind = MediaKind::kSound, .hash = HashSound(samples), .values = {}};
  for (const std::span<const float> piece : SoundPieces(samples)) {
    RL_ASSIGN_OR_RETURN(const TowerStep step, tower.Prepare(piece));
    RL_RETURN_IF_ERROR(Append(step, soft));
  }
  return soft;
}

Result<SoftTokens> MediaEncoder::Encode(const DecodedMedium& medium) {
  if (medium.kind == MediaKind::kSound) return Encode(medium.samples);
  return EncodeScaled(medium.scaled, medium.hash);
}

}  // namespace rullama
