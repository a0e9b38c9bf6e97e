#include "engine/embeddings.h"

#include <fmt/format.h>
#include <rullama/sdk/slots.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "core/passes/placement.h"
#include "core/runtime/device_program.h"
#include "engine/model_program.h"

namespace rullama {
namespace {

bool AreProcessors(const BackendDevices& devices) {
  return std::ranges::all_of(devices.DescribeLayerDevices(), [](const DeviceDescription& device) {
    return device.type == RL_DEVICE_CPU;
  });
}

// Where the ops of a graph run.
struct Places {
  bool on_processor = false, elsewhere = false;
};

Result<Places> PlacesOf(const BackendDevices& devices, const Graph& graph) {
  const std::vector<Device*> borrowed = devices.Borrow();
  RL_ASSIGN_OR_RETURN(const Placement placement,
                      PlaceOps(graph, SupportOfDevices(borrowed), devices.policy));
  Places places;
  for (size_t i = 0; i < borrowed.size(); ++i) {
    if (placement.report.ops_per_device[i] == 0) continue;
    const bool is_processor = borrowed[i]->description().type == RL_DEVICE_CPU;
    (is_processor ? places.on_processor : places.elsewhere) = true;
  }
  return places;
}

}  // namespace

Result<std::string_view> PromptFor(const Model& model, std::string_view task) {
  if (task.empty()) return std::string_view();
  std::string names;
  for (const EmbeddingPrompt& prompt : model.EmbeddingPrompts()) {
    if (prompt.name == task) return prompt.text;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", prompt.name);
  }
  return MakeError(ErrorKind::kUsage, "usage.request", "task '{}' is not one of {}", task,
                   names.empty() ? "those of this model, which has none" : names);
}

Result<TokenId> EndOfText(const LoadedModel& model) {
  const std::string& name = model.facts().encoder.end;
  const std::optional<TokenId> end = model.tokenizer->FindToken(name);
  if (end) return *end;
  return MakeError(ErrorKind::kModelFile, "chat.markers_missing",
                   "the vocabulary has no token '{}', expected that of an embedding model", name);
}

Status CheckBeginsWithBos(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  const std::optional<TokenId> bos = tokenizer.bos_id();
  if (!bos || (!ids.empty() && ids.front() == *bos)) return OkStatus();
  return MakeError(ErrorKind::kUsage, "usage.request",
                   "the token ids do not begin with the BOS token {}, expected those of this "
                   "model's tokenizer: ids of another one (langchain's OpenAIEmbeddings sends "
                   "tiktoken's unless check_embedding_ctx_length is false) embed noise",
                   *bos);
}

int64_t SharedRowsOf(const BackendDevices& devices) {
  // The values of more rows leave the caches of a processor, which gains nothing by them.
  constexpr int64_t kRows = 2048, kRowsOfProcessors = 512;
  return AreProcessors(devices) ? kRowsOfProcessors : kRows;
}

Result<int64_t> SharedRowsOf(const BackendDevices& devices, const Graph& graph) {
  RL_ASSIGN_OR_RETURN(const Places places, PlacesOf(devices, graph));
  return places.on_processor && places.elsewhere ? 1 : SharedRowsOf(devices);
}

int64_t SharedMeansOf(const BackendDevices& devices) {
  return AreProcessors(devices) ? 1 : kMaxTextsOfStep;
}

Result<int64_t> SharedMeansOf(const BackendDevices& devices, const Session& session,
                              std::optional<GraphHandle> head) {
  if (!head) return SharedMeansOf(devices);
  RL_ASSIGN_OR_RETURN(const Places places, PlacesOf(devices, session.graph(*head)));
  return places.on_processor ? 1 : SharedMeansOf(devices);
}

int64_t TextAlignmentOf(const BackendDevices& devices) {
  return AreProcessors(devices) ? 1 : sdk::kTextAlignment;
}

Result<std::vector<float>> FinishEmbedding(std::vector<float> values, int64_t dimensions) {
  if (!std::ranges::all_of(values, [](float x) { return std::isfinite(x); })) {
    return MakeError(ErrorKind::kRuntime, "backend.nan", "the embedding is not finite");
  }
  if (dimensions > 0) values.resize(static_cast<size_t>(dimensions));
  // The mean and the sum have the same direction, so the length of the prompt does not matter.
  double squares = 0;
  for (const float x : values) squares += static_cast<double>(x) * x;
  if (squares == 0) {
    return MakeError(ErrorKind::kRuntime, "backend.nan", "the embedding is zero");
  }
  const double scale = 1 / std::sqrt(squares);
  for (float& x : values) x = static_cast<float>(x * scale);
  return values;
}

}  // namespace rullama
