#include "server/openai/embedding_request.h"

#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <memory>

#include "server/answer_run.h"
#include "server/sampling_fields.h"

namespace rullama::server {
namespace {

using nlohmann::json;

constexpr size_t kMaxInputs = 2'048;  // as OpenAI has it

// The first `dimensions` numbers, scaled to length 1 again.
void Shorten(std::vector<float>& values, size_t dimensions) {
  if (dimensions >= values.size()) return;
  values.resize(dimensions);
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  if (squares == 0) return;
  for (float& value : values) value = static_cast<float>(value / std::sqrt(squares));
}

// `most`: of a text, as in Engine::Tokenize.
ApiResult<std::vector<int32_t>> IdsOf(const Engine& engine, const EmbeddingInput& input,
                                      int64_t most) {
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&input)) return *ids;
  auto ids = engine.Tokenize(std::get<std::string>(input), /*parse_special=*/false,
                             /*add_bos=*/true, most);
  if (!ids && ids.error().id == "text.size") {
    const Error error{ErrorKind::kRuntime, "context.overflow",
                      fmt::format("the prompt has more than {} tokens", most)};
    return tl::unexpected(SubmitError(engine, {}, error));
  }
  if (!ids) return tl::unexpected(FromEngine(ids.error()));
  return *std::move(ids);
}

}  // namespace

std::vector<EmbeddingInput> ReadInputs(FieldReader& fields, std::string_view name, bool ids,
                                       bool may_be_empty) {
  std::vector<EmbeddingInput> inputs;
  const json* input = fields.Find(name);
  if (input == nullptr) {
    fields.Fail("missing_required_parameter", name, "is missing; give a text");
    return inputs;
  }
  if (ids && input->is_array() && !input->empty() && input->front().is_number()) {
    inputs.emplace_back(ReadIds(fields, name, *input));
    return inputs;
  }
  const json list = input->is_array() ? *input : json::array({*input});
  if (list.size() > kMaxInputs || (list.empty() && !may_be_empty)) {
    fields.Fail("invalid_value", name,
                fmt::format("has {} texts, expected {} to {}", list.size(), may_be_empty ? 0 : 1,
                            kMaxInputs));
    return inputs;
  }
  for (const json& one : list) {
    if (ids && one.is_array()) {
      inputs.emplace_back(ReadIds(fields, name, one));
    } else if (!one.is_string()) {
      fields.Fail("invalid_type", name, "is neither a text nor a list of texts");
    } else if (one.get_ref<const std::string&>().empty()) {
      fields.Fail("invalid_value", name, "has an empty text");
    } else {
      inputs.emplace_back(one.get<std::string>());
    }
    if (fields.error()) break;
  }
  return inputs;
}

ApiResult<Embedded> EmbedAll(const Services& services, Call& call, Engine& engine,
                             const std::vector<EmbeddingInput>& inputs,
                             std::optional<int64_t> dimensions, bool truncate) {
  auto running = services.running.Admit(call.client(), 1);
  if (!running) return tl::unexpected(running.error());
  RunningRequest& request = **running;
  const auto left = std::make_shared<std::atomic<bool>>(false);
  call.OnLeave([left] { *left = true; });
  Embedded out;
  const auto capacity = static_cast<size_t>(engine.info().capacity);
  for (const EmbeddingInput& input : inputs) {
    if (*left) request.Cancel(CancelCause::kLeft);
    if (request.cause() != CancelCause::kNone) {
      NoteCancel(services, call, request.cause());
      return tl::unexpected(*left ? MakeApiError("client_left", "the client has left")
                                  : request.Failure());
    }
    // Longer ones than this are not counted exactly.
    auto ids = IdsOf(engine, input, truncate ? -1 : 4 * engine.info().capacity);
    if (!ids) return tl::unexpected(ids.error());
    if (truncate && ids->size() > capacity) ids->resize(capacity);
    auto values = engine.Embed(*ids);
    if (!values) return tl::unexpected(SubmitError(engine, {.ids = *ids}, values.error()));
    request.GotSlot();
    out.tokens += std::ssize(*ids);
    if (dimensions) Shorten(*values, static_cast<size_t>(*dimensions));
    out.vectors.push_back(*std::move(values));
  }
  call.OnLeave({});
  call.record().prompt_tokens = out.tokens;
  services.metrics.Add(Counter::kPromptTokens, static_cast<double>(out.tokens));
  return out;
}

}  // namespace rullama::server
