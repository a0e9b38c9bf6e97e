// Pictures and sounds as soft tokens: the towers of a model on its devices.
//
// Nothing is loaded before Prepare() or the first medium of a kind. Working memory grows with the
// longest medium so far, and Release() gives all memory back.
//
// Ownership: borrows towers, file and devices, which outlive it. Thread safety: one thread at a
// time. Calls block until the rows are computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/passes/placement.h"
#include "core/plugin/device.h"
#include "core/runtime/memory_need.h"
#include "core/runtime/session.h"
#include "engine/media/prompt_media.h"
#include "media/media_hash.h"
#include "media/picture.h"
#include "models/common/towers.h"

namespace rullama {

// One medium as the text model reads it.
struct SoftTokens {
  MediaKind kind = MediaKind::kPicture;
  MediaHash hash = {};  // of pixels and budget, or of samples
  int64_t tokens = 0;
  int64_t width = 0;          // of the text model
  std::vector<float> values;  // [tokens, width]
};

// Error media.unsupported (kUsage) of a model without a tower for this kind.
[[nodiscard]] tl::unexpected<Error> UnsupportedMedium(MediaKind kind);

class MediaEncoder {
 public:
  // `file` has the tensors of the towers. `devices`: main device first, as `policy` names them.
  // `allocated`: that of the other sessions on these devices; null: there is none. `observer`: of
  // the steps of towers; borrowed, outlives the encoder, may be null.
  MediaEncoder(const Towers& towers, const GgufFile& file, std::vector<Device*> devices,
               PlacementPolicy policy, std::shared_ptr<AllocatedBytes> allocated = {},
               StepObserver* observer = nullptr);
  ~MediaEncoder();
  MediaEncoder(const MediaEncoder&) = delete;
  MediaEncoder& operator=(const MediaEncoder&) = delete;

  [[nodiscard]] bool Takes(MediaKind kind) const;
  // The soft tokens of the longest medium that a tower encodes at once; 0 without the tower.
  [[nodiscard]] int64_t LongestOf(MediaKind kind) const;

  // At most `budget` soft tokens of a picture; `budget` is at most the last of the tower's.
  // Errors: media.unsupported (kUsage), those of PictureTower, and of sessions; backend.nan
  // (kRuntime) for a soft token that is not finite; io.mapped_file_changed.
  Result<SoftTokens> Encode(const Picture& picture, uint32_t budget);
  // The soft tokens of a sound at kSoundRate, which is encoded in pieces of kMaxSoundPiece samples
  // one after another. Errors: media.unsupported, media.too_short (kUsage), backend.nan, and those
  // of sessions.
  Result<SoftTokens> Encode(std::span<const float> samples);

  // The soft tokens of a medium that was decoded. Errors: those of the two above but media.shape.
  Result<SoftTokens> Encode(const DecodedMedium& medium);

  // Loads the towers and compiles what pictures of up to kDefaultImageTokens soft tokens and sounds
  // of all lengths need. Errors: those of sessions; io.mapped_file_changed.
  Status Prepare();

  // The bytes that the tower for media of this kind needs on each device for a medium of `tokens`
  // soft tokens; nothing without such a tower. Loads nothing.
  [[nodiscard]] Result<std::vector<MemoryNeed>> PredictMemory(MediaKind kind, int64_t tokens) const;

  // Gives the weights, the plans and all other memory of the devices back. The next medium loads
  // them again.
  void Release();

 private:
  // A tower that is ready to run.
  struct Running {
    std::unique_ptr<GgufWeights> weights;
    std::unique_ptr<Session> session;
    int64_t width = 0;
  };

  // The tower for media of this kind, which exists.
  [[nodiscard]] const Tower& TowerOf(MediaKind kind) const;
  [[nodiscard]] Result<Running> Start(MediaKind kind, int64_t max_tokens) const;
  // The tower for media of this kind, which is started unless it is running.
  Result<Running*> Find(MediaKind kind);
  Result<SoftTokens> EncodeScaled(const Picture& scaled, const MediaHash& hash);
  // Appends the rows of one step to `soft`.
  Status Append(const TowerStep& step, SoftTokens& soft);

  const Towers& towers_;
  const GgufFile& file_;
  std::vector<Device*> devices_;
  PlacementPolicy policy_;
  std::shared_ptr<AllocatedBytes> allocated_;
  StepObserver* observer_;
  Running picture_;
  Running sound_;
};

}  // namespace rullama
