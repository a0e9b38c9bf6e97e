// The case that the golden tests of training share: a tiny model, its untrained adapter, and the
// numbers of ../shared/goldens/train-*.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/gguf/gguf.h"
#include "core/passes/adapt.h"
#include "core/safetensors/safetensors.h"
#include "engine/training/example.h"
#include "models/registry.h"

namespace rullama::training {

struct GoldenCase {
  const char* model;  // "e2b"
  const char* type;   // "f16"
};
inline void PrintTo(const GoldenCase& test, std::ostream* out) {
  *out << test.model << "_" << test.type;
}

inline std::string SharedFolder() { return std::string(RULLAMA_SOURCE_DIR) + "/../shared"; }

using Tensors = std::map<std::string, std::vector<float>>;

struct Golden {
  explicit Golden(const GoldenCase& test)
      : folder(SharedFolder() + "/goldens/train-" + test.model),
        chat(std::string(test.type) == "f16" ? "chat" : std::string("chat.") + test.type),
        file(Must(GgufFile::Open(SharedFolder() + "/models/tiny-" + test.model + "-" + test.type +
                                 ".gguf"))),
        model(Must(OpenModel(file))) {
    std::ifstream stream(folder + "/golden.json");
    json = nlohmann::json::parse(stream);
    for (const auto& target : json.at("targets")) {
      const std::string weight = target.at("name");
      const double rank = json.at("rank");
      pairs.push_back({.weight = weight,
                       .rank = static_cast<int64_t>(rank),
                       .inputs = target.at("inp"),
                       .outputs = target.at("out"),
                       .lifetime = Lifetime::kState,
                       .a = weight + ".lora_a",
                       .b = weight + ".lora_b",
                       .scale = json.at("scale")});
    }
  }

  [[nodiscard]] Tensors Read(const std::string& name) const {
    const SafetensorsFile tensors = Must(SafetensorsFile::Open(folder + "/" + name));
    Tensors values;
    for (const SafetensorsTensor& tensor : tensors.tensors()) {
      if (tensor.dtype == "F32") values[tensor.name] = Must(tensors.Floats(tensor));
    }
    return values;
  }

  std::string folder;
  std::string chat;  // the case of the chat on weights of this type
  GgufFile file;
  std::unique_ptr<Model> model;
  nlohmann::json json;
  std::vector<LowRankPair> pairs;
};

// A sequence of the goldens. Targets outside the vocabulary do not count.
inline Example ExampleOf(const nlohmann::json& sequence, int64_t vocabulary) {
  Example example{.ids = sequence.at("ids").get<std::vector<int32_t>>(),
                  .targets = sequence.at("targets").get<std::vector<int32_t>>()};
  for (int32_t& target : example.targets) {
    if (target < 0 || target >= vocabulary) target = kNoTarget;
  }
  return example;
}

// |found - expected| / |expected|, over all elements.
class RelativeError {
 public:
  template <typename T, typename U>
  double Add(const std::vector<T>& found, const std::vector<U>& expected) {
    if (found.size() != expected.size()) return INFINITY;
    double difference = 0;
    double norm = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      const double d = static_cast<double>(found[i]) - static_cast<double>(expected[i]);
      difference += d * d;
      norm += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
    }
    difference_ += difference;
    norm_ += norm;
    return std::sqrt(difference / norm);
  }
  [[nodiscard]] double value() const { return std::sqrt(difference_ / norm_); }

 private:
  double difference_ = 0;
  double norm_ = 0;
};

}  // namespace rullama::training
