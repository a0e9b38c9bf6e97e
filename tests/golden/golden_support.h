// The parts that the golden tests share: a model file run by the reference interpreter, and
// comparison with numbers that an independent implementation computed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/reference/interpreter.h"
#include "models/gemma4/graph/model.h"

namespace rullama::golden {

inline nlohmann::json ReadJson(const std::filesystem::path& path) {
  std::ifstream file(path);
  // A missing or broken file gives a discarded value, whose use fails the test.
  return nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
}

// The item of a list whose "name" is `name`; a failure, and null, if there is none.
inline const nlohmann::json& Named(const nlohmann::json& list, const std::string& name) {
  const auto found = std::ranges::find_if(
      list, [&](const nlohmann::json& item) { return item.at("name") == name; });
  if (found != list.end()) return *found;
  ADD_FAILURE() << "the golden has no '" << name << "'";
  static const nlohmann::json none;
  return none;
}

// Little-endian f32; empty if the file is missing.
inline std::vector<float> ReadFloats(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  std::vector<float> values(static_cast<size_t>(file.tellg()) / sizeof(float));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

inline double RelativeL2(std::span<const double> found, std::span<const float> expected) {
  if (found.size() != expected.size() || expected.empty()) return INFINITY;
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = found[i] - static_cast<double>(expected[i]);
    difference += d * d;
    norm += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  return std::sqrt(difference / norm);
}

inline int32_t ArgMax(std::span<const double> row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

// A model file on the reference interpreter: one slot, every row's logits.
class ReferenceModel {
 public:
  static Result<std::unique_ptr<ReferenceModel>> Open(const std::filesystem::path& path,
                                                      DType kv_dtype, int64_t capacity) {
    RL_ASSIGN_OR_RETURN(GgufFile file, GgufFile::Open(path));
    std::unique_ptr<ReferenceModel> self(new ReferenceModel(std::move(file)));
    RL_ASSIGN_OR_RETURN(self->config_, Gemma4Config::FromFile(self->file_));
    RL_ASSIGN_OR_RETURN(const auto weights, Gemma4Weights::FromFile(self->config_, self->file_));
    RL_ASSIGN_OR_RETURN(ModelGraph model, BuildModel(self->config_, weights,
                                                     {.slots = 1,
                                                      .capacity = capacity,
                                                      .kv_dtype = kv_dtype,
                                                      .max_t = capacity,
                                                      .max_r = capacity}));
    AddLogitsOutput(model.builder, model.logits, RowDemand::kAll);
    self->hidden_ = model.hidden;
    self->constants_ = std::move(model.constants);
    RL_ASSIGN_OR_RETURN(Graph graph, std::move(model.builder).Finish());
    RL_ASSIGN_OR_RETURN(auto interpreter,
                        reference::Interpreter::Create(
                            std::move(graph), [&self](std::string_view source, int64_t first_row,
                                                      const TensorType& type) {
                              return self->Constant(source, first_row, type);
                            }));
    self->interpreter_.emplace(std::move(interpreter));
    return self;
  }

  // Runs the next rows of the sequence.
  Status Step(std::span<const int32_t> tokens) {
    const auto count = static_cast<int64_t>(tokens.size());
    std::vector<int32_t> pos;
    for (int64_t i = 0; i < count; ++i) pos.push_back(static_cast<int32_t>(past_ + i));
    const auto bind = [this](std::string_view name, const std::vector<int32_t>& values) {
      return interpreter_->Bind(
          name, reference::Tensor::I32({static_cast<int64_t>(values.size())}, values));
    };
    RL_RETURN_IF_ERROR(bind(input_names::kTokens, {tokens.begin(), tokens.end()}));
    RL_RETURN_IF_ERROR(bind(input_names::kPos, pos));
    RL_RETURN_IF_ERROR(bind(input_names::kSlot, std::vector<int32_t>(tokens.size(), 0)));
    RL_RETURN_IF_ERROR(bind(input_names::kPast, {static_cast<int32_t>(past_)}));
    RL_RETURN_IF_ERROR(bind(input_names::kRows, {0}));
    RL_RETURN_IF_ERROR(interpreter_->Run({.t = count, .r = 1}));
    past_ += count;
    return OkStatus();
  }

  // The logits [rows, vocabulary] and hidden states [rows, width] of the last step; null if the
  // step failed.
  [[nodiscard]] const std::vector<double>* logits() const {
    const reference::Tensor* tensor = interpreter_->GetOutput("logits");
    return tensor == nullptr ? nullptr : &tensor->f;
  }
  [[nodiscard]] const std::vector<double>* hidden(size_t layer) const {
    const reference::Tensor* tensor = interpreter_->Get(hidden_[layer]);
    return tensor == nullptr ? nullptr : &tensor->f;
  }
  [[nodiscard]] const std::vector<double>* value(std::string_view name) const {
    const reference::Tensor* tensor = interpreter_->Get(name);
    return tensor == nullptr ? nullptr : &tensor->f;
  }

  // The cache forgets its rows: old positions become invisible.
  void Restart() { past_ = 0; }
  [[nodiscard]] const Gemma4Config& config() const { return config_; }

 private:
  explicit ReferenceModel(GgufFile file) : file_(std::move(file)) {}

  Result<reference::Tensor> Constant(std::string_view source, int64_t first_row,
                                     const TensorType& type) const {
    reference::Tensor tensor{
        .dtype = type.dtype, .dims = reference::DimsAt(type, {}), .f = {}, .i = {}, .packed = {}};
    for (const SyntheticConstant& constant : constants_) {
      if (constant.name == source) {
        tensor.packed = constant.bytes;
        return tensor;
      }
    }
    const TensorInfo* info = file_.FindTensor(source);
    if (info == nullptr) {
      return MakeError(ErrorKind::kModelFile, "model.missing_tensor", "no tensor '{}'", source);
    }
    const uint64_t row_bytes = info->rank == 1 ? info->bytes : RowBytes(info->dtype, info->dims[0]);
    const uint64_t rows = info->rank == 1 ? 1 : static_cast<uint64_t>(tensor.dims[0]);
    tensor.packed =
        file_.data(*info).subspan(static_cast<uint64_t>(first_row) * row_bytes, rows * row_bytes);
    return tensor;
  }

  GgufFile file_;
  Gemma4Config config_;
  std::vector<SyntheticConstant> constants_;
  std::vector<ValueId> hidden_;
  std::optional<reference::Interpreter> interpreter_;
  int64_t past_ = 0;
};

// Feeds prompt and expected continuation in one step: if every row's best token is the expected
// next one, greedy generation would have written the same text. Rows whose two best tokens are
// closer than the differences between correct implementations are not judged.
inline constexpr double kJudgedMargin = 0.05;
struct GreedyOutcome {
  int64_t first_wrong = -1;  // index into the continuation, -1: none
  int64_t judged = 0;
};
inline Result<GreedyOutcome> CheckGreedy(ReferenceModel& model, const nlohmann::json& golden) {
  auto tokens = golden.at("prompt").get<std::vector<int32_t>>();
  const auto expected = golden.at("greedy").get<std::vector<int32_t>>();
  const auto margins = golden.at("margins").get<std::vector<double>>();
  const size_t prompt = tokens.size();
  tokens.insert(tokens.end(), expected.begin(), expected.end());
  model.Restart();
  RL_RETURN_IF_ERROR(model.Step(tokens));
  const auto width = static_cast<size_t>(model.config().vocabulary);
  GreedyOutcome outcome;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (margins[i] <= kJudgedMargin) continue;
    ++outcome.judged;
    const std::span<const double> row =
        std::span(*model.logits()).subspan((prompt - 1 + i) * width, width);
    if (ArgMax(row) != expected[i] && outcome.first_wrong < 0) {
      outcome.first_wrong = static_cast<int64_t>(i);
    }
  }
  return outcome;
}

}  // namespace rullama::golden
