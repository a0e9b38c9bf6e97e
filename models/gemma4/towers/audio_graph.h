// The audio tower as a graph of ops, and a sound as its inputs.
//
// Inputs, for T soft tokens of 40 ms each:
//   frames  f32[4 T, mel bins]  log-mel features, zeros after the last frame
//   valid   f32[2 T, 1]         1 for rows of the first convolution that begin in the sound, else 0
// and of the unified model:
//   frames  f32[T, samples]     the samples of each token, zeros after the last one
// Output: soft, f32[T, text width]. The graph has no states, and every value of it is f32.
// Value names that tests rely on: "embd", and "blk.N.out" of each layer, f32[T, width].
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/status.h"
#include "models/common/towers.h"
#include "models/gemma4/towers/audio_tower.h"

namespace rullama::gemma4 {

// The rows that attention sees, the row itself included.
inline constexpr int64_t kAttentionWindow = 12;

// The graph for sounds of up to `max_tokens` soft tokens. The weight of a convolution is a constant
// [channels out, 9 * channels in]. `tower` was read from a file, so the graph is well formed;
// errors are those of GraphBuilder.
Result<TowerGraph> BuildAudioGraph(const AudioTower& tower, int64_t max_tokens);

// The soft tokens of this many samples at kSoundRate, 0 for fewer than kMinSoundSamples.
int64_t AudioTokens(const AudioConfig& config, size_t samples);

// The inputs of the graph for kMinSoundSamples to kMaxSoundPiece samples at kSoundRate.
TowerStep SoundInputs(const AudioConfig& config, std::span<const float> samples);
// The same for the conformer, of log-mel features [frames, mel bins].
TowerStep MelInputs(const AudioConfig& config, std::span<const float> mel);

}  // namespace rullama::gemma4
