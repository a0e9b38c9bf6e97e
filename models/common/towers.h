// Towers: networks in addition to the text model that make soft tokens of a picture or a sound. A
// soft token is a row of the text model's width, which takes the place of the embedding of a
// placeholder token.
//
// The graph of a tower works on the T soft tokens of one medium. Its inputs are those of TowerStep,
// its output is "soft", f32[T, text width]; it has no states, and every value of it is f32.
//
// Thread safety: immutable; const member functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/media_kind.h"
#include "core/base/status.h"
#include "core/ir/graph.h"
#include "media/picture.h"
#include "media/picture_size.h"
#include "models/common/model_graph.h"

namespace rullama {

// The value of general.architecture of an mmproj file: towers without a text model.
inline constexpr std::string_view kProjectorArchitecture = "clip";

// The output of every tower's graph.
inline constexpr std::string_view kSoftTokens = "soft";

// One medium as the inputs of a tower's graph.
struct TowerStep {
  struct Input {
    std::string name;
    std::variant<std::vector<float>, std::vector<int32_t>> values;  // for T = tokens

    [[nodiscard]] std::span<const std::byte> bytes() const {
      return std::visit([](const auto& v) { return std::as_bytes(std::span(v)); }, values);
    }
  };
  int64_t tokens = 0;  // soft tokens that the medium gives
  std::vector<Input> inputs = {};

  template <typename T>
  void Add(std::string_view name, std::vector<T> values) {
    inputs.push_back({std::string(name), std::move(values)});
  }
};

struct TowerGraph {
  Graph graph;
  std::vector<SyntheticConstant> constants = {};
};

struct TowerFacts {
  std::string_view projector;  // the kind, as files name it: "gemma4v"
  int64_t layers = 0;          // 0: the tower only projects its input
  int64_t width = 0;           // of the residual stream, or of the projected input
  uint64_t parameters = 0;
  uint64_t bytes = 0;  // of the tensors in the file
};

class Tower {
 public:
  Tower() = default;
  Tower(const Tower&) = delete;
  Tower& operator=(const Tower&) = delete;
  virtual ~Tower() = default;

  // A graph for media of at most `max_tokens` soft tokens. Its constants are tensors of the file
  // that the tower was read from, matrices of more dimensions among them (GgufWeights).
  [[nodiscard]] virtual Result<TowerGraph> BuildGraph(int64_t max_tokens) const = 0;

  [[nodiscard]] virtual TowerFacts facts() const = 0;
  // The multiply-adds of matrices and attention for a medium of `tokens` soft tokens.
  [[nodiscard]] virtual double MultiplyAdds(int64_t tokens) const = 0;
};

class PictureTower : public Tower {
 public:
  // The numbers of soft tokens that pictures may be limited to, ascending, at least one. One alone
  // is that of every picture.
  [[nodiscard]] virtual std::span<const uint32_t> Budgets() const = 0;
  // The side of the square of pixels that becomes a soft token.
  [[nodiscard]] virtual uint32_t SquareSide() const = 0;
  // The squares, one for each soft token, that a picture of these sides (pixels) is resampled to,
  // at most `budget` of them. Error media.shape for a picture too long for the budget or for the
  // tower's positions.
  [[nodiscard]] virtual Result<BlockGrid> Fit(uint32_t width, uint32_t height,
                                              uint32_t budget) const = 0;
  // A picture resampled to the squares of Fit(). Errors: those of Fit.
  [[nodiscard]] Result<Picture> Scale(Picture picture, uint32_t budget) const;
  // The inputs for a picture that was scaled: its sides are whole squares.
  [[nodiscard]] virtual TowerStep Prepare(const Picture& scaled) const = 0;

 private:
  // A picture stretched to these sides, which are not its own.
  [[nodiscard]] virtual Picture Resize(const Picture& picture, uint32_t width,
                                       uint32_t height) const = 0;
};

class SoundTower : public Tower {
 public:
  // The soft tokens of this many samples at kSoundRate, at most kMaxSoundPiece.
  [[nodiscard]] virtual int64_t Tokens(size_t samples) const = 0;
  // `samples`: kMinSoundSamples to kMaxSoundPiece of them.
  [[nodiscard]] virtual Result<TowerStep> Prepare(std::span<const float> samples) const = 0;
};

// The towers of a file; null where it has none.
struct Towers {
  std::unique_ptr<const PictureTower> picture;
  std::unique_ptr<const SoundTower> sound;
};

}  // namespace rullama
