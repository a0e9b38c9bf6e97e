// The numbers of a model that whoever runs it needs, whatever its family. Value types.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/passes/scale_products.h"

namespace rullama {

// Block diffusion: the model denoises a canvas of tokens, all at once, instead of predicting the
// next one.
struct CanvasFacts {
  int64_t length = 0;  // tokens; 0: the model predicts the next token
  // The sampler the model was made for (EntropyBoundSettings says what the numbers mean).
  int64_t max_steps = 48;
  float t_min = 0.4F;
  float t_max = 0.8F;
  float entropy_bound = 0.1F;
  int64_t stability_threshold = 1;
  float confidence_threshold = 0.005F;

  friend bool operator==(const CanvasFacts&, const CanvasFacts&) = default;
};

// Pictures and sounds, which reach the model as soft tokens.
struct MediaFacts {
  bool taken = false;  // whether the model has the graph ModelPass::kMedia
  // Whether the rows of a picture see each other, so that all of them have to be in one step. If
  // not, every row sees the rows before it only.
  bool whole_pictures = false;

  friend bool operator==(const MediaFacts&, const MediaFacts&) = default;
};

// Models that make one vector of a whole text, whose rows see each other, and predict no token.
struct EncoderFacts {
  int64_t embedding = 0;  // numbers of a vector; 0: the model writes text
  int64_t radius = 0;     // rows that a row of a sliding layer sees to each side
  std::string end = {};   // the token after each text
  // Whether layers follow the mean of the rows (Model::BuildEmbeddingHead).
  bool has_head = false;

  friend bool operator==(const EncoderFacts&, const EncoderFacts&) = default;
};

struct ModelFacts {
  int64_t layers = 0;
  int64_t width = 0;           // of the residual stream
  int64_t heads = 0;           // query heads of each layer
  int64_t vocabulary = 0;      // tokens
  int64_t context_length = 0;  // the longest the model was trained for, tokens
  int64_t sliding_window = 0;  // keys that a layer of limited reach sees; 0: there is none
  CanvasFacts canvas = {};
  MediaFacts media = {};
  EncoderFacts encoder = {};
  bool thinks = false;  // it may write thoughts before an answer
  // Names of large tables of which a step reads a few rows, so that they may stay in host memory.
  std::vector<std::string> host_tables = {};
  // Factors of weights, by which the results of their products are multiplied.
  std::vector<WeightScale> weight_scales = {};

  // Whether it denoises canvases instead of predicting the next token.
  [[nodiscard]] bool denoises() const { return canvas.length > 0; }
  // Whether it makes vectors of texts instead of writing text.
  [[nodiscard]] bool encodes() const { return encoder.embedding > 0; }
};

}  // namespace rullama
