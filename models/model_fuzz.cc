// Any bytes give a model or an error; models that were read have well-formed graphs.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "core/base/check.h"
#include "models/registry.h"

namespace rullama {
namespace {

void CheckError(const Error& error) { RL_CHECK(!error.id.empty() && !error.message.empty()); }

void UseModel(const Model& model) {
  constexpr int64_t kCapacity = 64;
  const ModelFacts& facts = model.facts();
  RL_CHECK(facts.layers > 0 && facts.width > 0 && facts.vocabulary > 0);
  BuildOptions options{.capacity = std::min(facts.context_length, kCapacity), .max_t = 4};
  if (facts.encodes()) {
    options.pass = ModelPass::kEncode;
    options.caches = false;
    options.kv_dtype = DType::kF32;
  }
  auto graph = model.BuildGraph(options);
  RL_CHECK(graph.has_value());
  const ValueId result = facts.encodes() ? graph->last_norm : graph->logits;
  graph->builder.Output("result", result, RowDemand::kAll);
  RL_CHECK(std::move(graph->builder).Finish().has_value());
  if (!facts.encoder.has_head) return;
  auto head = model.BuildEmbeddingHead();
  RL_CHECK(head.has_value() && std::move(head->builder).Finish().has_value());
}

}  // namespace
}  // namespace rullama

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = rullama::GgufFile::Parse(std::as_bytes(std::span(data, size)));
  if (!file) return 0;
  const auto model = rullama::OpenModel(*file);
  if (model) {
    rullama::UseModel(**model);
  } else {
    rullama::CheckError(model.error());
  }
  return 0;
}
