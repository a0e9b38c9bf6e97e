// A model without a file, for tests of the scheduler: the token after i is (i + 1) modulo the
// vocabulary, on the reference backend. The last token ends an answer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/runtime/session.h"
#include "core/runtime/step_test_util.h"
#include "engine/model_program.h"
#include "models/common/model.h"

namespace rullama {

inline constexpr int64_t kCountedTokens = 32;
inline constexpr int32_t kEndToken = kCountedTokens - 1;

class CountingModel final : public Model {
 public:
  CountingModel() : Model(Facts(), {}) {}

  [[nodiscard]] Status CheckAgainst(const ArchitectureConfig& /*architecture*/) const override {
    return OkStatus();
  }
  [[nodiscard]] Result<ModelGraph> BuildGraph(const BuildOptions& options) const override {
    Graph empty;
    empty.name = "counting";
    empty.max_t = options.max_t;
    empty.max_r = options.max_r;
    ModelGraph model{.builder = GraphBuilder(std::move(empty))};
    GraphBuilder& b = model.builder;
    const TensorType rows(DType::kI32, {Dim::T()});
    model.tokens = b.Input(input_names::kTokens, rows);
    model.pos = b.Input(input_names::kPos, rows);
    model.slot = b.Input(input_names::kSlot, rows);
    model.past = b.Input(input_names::kPast, {DType::kI32, {options.slots}});
    model.rows = b.Input(input_names::kRows, {DType::kI32, {Dim::R()}});
    b.WantedRows(model.rows);
    model.attention_rows = {model.pos, model.slot, model.pos, model.slot, model.past};
    const ValueId table = b.Constant("table", {DType::kF32, {kCountedTokens, kCountedTokens}});
    model.last_norm = b.Add(ops::GatherRows{.table = table, .ids = model.tokens}, "norm");
    model.logits = b.Add(ops::Copy{.x = model.last_norm}, "logits");
    return model;
  }
  [[nodiscard]] Result<Graph> BuildConditioning() const override { return None(); }
  [[nodiscard]] uint64_t CacheBytes(const BuildOptions& /*options*/) const override { return 0; }
  [[nodiscard]] Result<Adapter> ReadAdapter(const std::string& /*path*/) const override {
    return None();
  }
  [[nodiscard]] Result<EncodedChat> EncodeChat(
      const Tokenizer& /*tokenizer*/, const nlohmann::json& /*messages*/,
      const nlohmann::json& /*tools*/, const EncodeChatOptions& /*options*/) const override {
    return None();
  }
  [[nodiscard]] PromptBorders BordersOf(const Tokenizer& /*tokenizer*/,
                                        std::span<const TokenId> /*ids*/) const override {
    return {};
  }
  [[nodiscard]] std::unique_ptr<OutputParser> MakeOutputParser(
      const OutputParserOptions& /*options*/) const override {
    return nullptr;
  }
  [[nodiscard]] std::span<const std::string_view> AnswerMarkers() const override { return {}; }
  [[nodiscard]] Result<AnswerGrammar> MakeAnswerGrammar(const AnswerForm& /*form*/) const override {
    return None();
  }

 private:
  static ModelFacts Facts() {
    ModelFacts facts;
    facts.layers = 1;
    facts.width = kCountedTokens;
    facts.heads = 1;
    facts.vocabulary = kCountedTokens;
    return facts;
  }
  static tl::unexpected<Error> None() {
    return MakeError(ErrorKind::kRuntime, "session.internal", "a model of tests has none");
  }
};

// A session that several requests share.
class CountingBatch {
 public:
  CountingBatch(int64_t slots, int64_t capacity, int64_t chunk) {
    const StepLimits limits = BatchLimits(slots, chunk);
    ModelProgram program = *BuildModelProgram(
        CountingModel(),
        {.outputs = GraphOutputs::kBatch, .slots = slots, .capacity = capacity, .limits = limits});
    graphs_ = program.handles;
    SessionOptions options{.devices = {devices_.Open()}, .policy = {}, .limits = limits};
    session_ = *Session::Create(std::move(program.graphs), weights_, std::move(options));
  }

  [[nodiscard]] Session& session() { return *session_; }
  [[nodiscard]] const ProgramGraphs& graphs() const { return graphs_; }

 private:
  CountingWeights weights_{kCountedTokens};
  ReferenceDevices devices_;
  ProgramGraphs graphs_;
  std::unique_ptr<Session> session_;
};

}  // namespace rullama
