#include "server/openai/embedding_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <stop_token>
#include <utility>

#include "server/answer_run.h"
#include "server/media_fields.h"
#include "server/message_fields.h"
#include "server/sampling_fields.h"

namespace rullama::server {
namespace {

using nlohmann::json;

constexpr size_t kMaxInputs = 2'048;  // as OpenAI has it

// What other interfaces call the tasks of sentence-transformers' prompts.
struct TaskName {
  std::string_view name;
  std::string_view task;
};
constexpr TaskName kInputTypes[] = {
    {"query", "query"},
    {"search_query", "query"},
    {"document", "document"},
    {"passage", "document"},
    {"search_document", "document"},
    {"classification", "Classification"},
    {"clustering", "Clustering"},
    {"similarity", "STS"},
    {"semantic_similarity", "STS"},
    {"question_answering", "QuestionAnswering"},
    {"fact_verification", "FactChecking"},
    {"fact_checking", "FactChecking"},
    {"code_retrieval", "CodeRetrieval"},
    {"code_retrieval_query", "CodeRetrieval"},
};
// Gemini's.
constexpr TaskName kTaskTypes[] = {
    {"RETRIEVAL_QUERY", "query"},          {"RETRIEVAL_DOCUMENT", "document"},
    {"SEMANTIC_SIMILARITY", "STS"},        {"CLASSIFICATION", "Classification"},
    {"CLUSTERING", "Clustering"},          {"QUESTION_ANSWERING", "QuestionAnswering"},
    {"FACT_VERIFICATION", "FactChecking"}, {"CODE_RETRIEVAL_QUERY", "CodeRetrieval"},
};

// The members that name a task, and the names that they have; without names, those of the model.
struct TaskField {
  std::string_view field;
  std::span<const TaskName> names;
};
constexpr TaskField kTaskFields[] = {
    {"input_type", kInputTypes}, {"prompt_name", {}}, {"task_type", kTaskTypes}};

// The prompt of a task of the model; null if it has no such task.
const TaskPrompt* FindPrompt(const std::vector<TaskPrompt>& prompts, std::string_view task) {
  const auto found = std::ranges::find(prompts, task, &TaskPrompt::name);
  return found == prompts.end() ? nullptr : &*found;
}

void SetTask(FieldReader& fields, const TaskField& from, const std::string& name,
             const std::vector<TaskPrompt>& prompts, EmbeddingSettings& settings) {
  const auto known = std::ranges::find(from.names, name, &TaskName::name);
  const std::string task(known == from.names.end() ? name : known->task);
  if ((from.names.empty() || known != from.names.end()) && FindPrompt(prompts, task) != nullptr) {
    settings.task = task;
    settings.task_field = from.field;
    return;
  }
  std::string all;
  const auto add = [&all](std::string_view one) {
    all += fmt::format("{}{}", all.empty() ? "" : ", ", one);
  };
  for (const TaskName& one : from.names) add(one.name);
  for (const TaskPrompt& one : prompts) {
    if (from.names.empty()) add(one.name);
  }
  fields.Fail("invalid_value", from.field,
              prompts.empty() ? "is given, but this model is not an embedding model"
                              : fmt::format("is '{}', expected one of {}", name, all));
}

void ReadTask(FieldReader& fields, const std::vector<TaskPrompt>& prompts,
              EmbeddingSettings& settings) {
  for (const TaskField& from : kTaskFields) {
    const auto name = fields.Text(from.field);
    if (!name || name->empty()) continue;
    if (!settings.task.empty()) {
      return fields.Fail(
          "invalid_value", from.field,
          fmt::format("and {} are given, expected one of them", settings.task_field));
    }
    SetTask(fields, from, *name, prompts, settings);
    if (fields.error()) return;
  }
}

// Cuts ids of a text to `most`.
void Truncate(const Engine& engine, std::vector<int32_t>& ids, size_t most) {
  if (ids.size() <= most) return;
  const int32_t last = ids.back();
  ids.resize(most);
  if (engine.info().encodes) ids.back() = last;
}

// `most`: of a text, as in Engine::Tokenize.
ApiResult<std::vector<int32_t>> IdsOf(const Engine& engine, const EmbeddingInput& input,
                                      std::string_view task, int64_t most) {
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&input)) return *ids;
  auto ids = engine.EmbeddingTokens(std::get<std::string>(input), task, most);
  if (!ids && ids.error().id == "text.size") {
    const Error error{ErrorKind::kRuntime, "context.overflow",
                      fmt::format("the prompt has more than {} tokens", most)};
    return tl::unexpected(SubmitError(engine, {}, error));
  }
  if (!ids) return tl::unexpected(FromEngine(ids.error()));
  return *std::move(ids);
}

// The text that an input begins with; empty if that is something else.
std::string FirstText(const EmbeddingInput& input) {
  if (const auto* text = std::get_if<std::string>(&input)) return *text;
  const auto* content = std::get_if<EmbeddingContent>(&input);
  if (content == nullptr) return {};
  if (content->parts.is_string()) return content->parts.get<std::string>();
  return content->parts.empty() ? std::string() : content->parts[0].value("text", std::string());
}

bool HasPrompt(const EmbeddingInput& input, const TaskPrompt* prompt) {
  return prompt != nullptr && FirstText(input).starts_with(prompt->text);
}

// An input as a vector and the number of its tokens.
struct OneEmbedded {
  std::vector<float> values;
  int64_t tokens = 0;
};

// `prompt`: of the task; null: none.
ApiResult<OneEmbedded> EmbedContent(Engine& engine, const EmbeddingContent& content,
                                    const EmbeddingSettings& settings, const TaskPrompt* prompt) {
  json parts = content.parts;
  if (parts.is_string()) parts = json::array({{{"type", "text"}, {"text", content.parts}}});
  if (prompt != nullptr) {
    parts.insert(parts.begin(), json{{"type", "text"}, {"text", prompt->text}});
  }
  const json messages = json::array({{{"role", "user"}, {"content", std::move(parts)}}});
  const Request request{.messages = messages.dump(), .media = content.media};
  auto values = engine.EmbedContent(request, {.dimensions = settings.dimensions});
  if (!values) return tl::unexpected(SubmitError(engine, request, values.error()));
  const auto tokens = engine.CountPrompt(request);
  if (!tokens) return tl::unexpected(SubmitError(engine, request, tokens.error()));
  return OneEmbedded{*std::move(values), *tokens};
}

// The vectors of inputs, and what is done once with all of them.
class InputEmbedder {
 public:
  InputEmbedder(Engine& engine, const EmbeddingSettings& settings, RunningRequest& request,
                std::stop_token stop)
      : engine_(engine),
        settings_(settings),
        request_(request),
        stop_(std::move(stop)),
        prompt_(FindPrompt(engine.info().embedding_prompts, settings.task)) {}

  ApiResult<Embedded> Run(const std::vector<EmbeddingInput>& inputs) {
    many_ = inputs.size() > 1;
    out_.vectors.resize(inputs.size());
    if (engine_.info().encodes) request_.GotSlot();  // texts wait for a step, not for a slot
    for (size_t i = 0; i < inputs.size() && !stop_.stop_requested(); ++i) {
      auto added = Add(i, inputs[i]);
      // Texts of a language model take turns with the requests of others.
      if (added && !engine_.info().encodes) added = EmbedTexts();
      if (!added) return tl::unexpected(std::move(added).error());
      if (!engine_.info().encodes) request_.GotSlot();
    }
    if (auto done = EmbedTexts(); !done) return tl::unexpected(std::move(done).error());
    return std::move(out_);
  }

 private:
  [[nodiscard]] tl::unexpected<ApiError> ErrorOf(size_t input, ApiError error) const {
    if (many_) error.message += fmt::format(" (input {})", input);
    return tl::unexpected(std::move(error));
  }
  ApiResult<void> Add(size_t i, const EmbeddingInput& input) {
    const bool prompted = HasPrompt(input, prompt_);
    if (prompted && out_.ignored.empty()) out_.ignored.push_back(settings_.task_field);
    const TaskPrompt* prompt = prompted ? nullptr : prompt_;
    if (const auto* content = std::get_if<EmbeddingContent>(&input)) {
      auto one = EmbedContent(engine_, *content, settings_, prompt);
      if (!one) return ErrorOf(i, std::move(one).error());
      out_.tokens += one->tokens;
      out_.vectors[i] = std::move(one->values);
      return {};
    }
    // Longer ones than this are not counted exactly.
    const int64_t most = settings_.truncate ? -1 : 4 * engine_.info().capacity;
    auto ids = IdsOf(engine_, input, prompt == nullptr ? "" : std::string_view(prompt->name), most);
    if (!ids) return ErrorOf(i, std::move(ids).error());
    if (settings_.truncate) Truncate(engine_, *ids, static_cast<size_t>(engine_.info().capacity));
    out_.tokens += std::ssize(*ids);
    texts_.push_back(*std::move(ids));
    inputs_of_texts_.push_back(i);
    return {};
  }
  // Runs texts_, which then is empty.
  ApiResult<void> EmbedTexts() {
    const EmbeddingOptions options{.dimensions = settings_.dimensions,
                                   .adapters = settings_.adapters};
    auto vectors = engine_.EmbedEach(texts_, options, stop_);
    for (size_t k = 0; k < vectors.size(); ++k) {
      const size_t i = inputs_of_texts_[k];
      if (!vectors[k]) {
        return ErrorOf(i, SubmitError(engine_, {.ids = texts_[k]}, vectors[k].error()));
      }
      out_.vectors[i] = *std::move(vectors[k]);
    }
    texts_.clear();
    inputs_of_texts_.clear();
    return {};
  }

  Engine& engine_;
  const EmbeddingSettings& settings_;
  RunningRequest& request_;
  const std::stop_token stop_;
  const TaskPrompt* prompt_;  // of the task; null: none
  bool many_ = false;
  Embedded out_;
  std::vector<std::vector<int32_t>> texts_;
  std::vector<size_t> inputs_of_texts_;
};

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
    } else if (ids && one.is_object()) {
      EmbeddingContent content;
      const json found = one.value("content", json());
      content.parts =
          ReadUserContent(fields, fmt::format("{}.content", name), found, content.media);
      inputs.emplace_back(std::move(content));
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

void ReadImages(FieldReader& fields, std::vector<EmbeddingInput>& inputs) {
  const json* images = fields.Find("images");
  if (images == nullptr || fields.error()) return;
  if (!images->is_array() || images->size() != inputs.size()) {
    return fields.Fail("invalid_value", "images",
                       fmt::format("is not a list with one entry for each of {} inputs: a picture "
                                   "or a sound in base64, or null",
                                   inputs.size()));
  }
  for (size_t i = 0; i < inputs.size() && !fields.error(); ++i) {
    const json& image = (*images)[i];
    if (image.is_null()) continue;
    EmbeddingContent content;
    content.parts =
        ReadMediaList(fields, fmt::format("images[{}]", i), json::array({image}), content.media);
    content.parts.push_back({{"type", "text"}, {"text", std::get<std::string>(inputs[i])}});
    inputs[i] = std::move(content);
  }
}

EmbeddingSettings ReadSettings(FieldReader& fields, const Engine& engine) {
  EmbeddingSettings settings;
  const std::vector<TaskPrompt>& prompts = engine.info().embedding_prompts;
  const int64_t width = std::max<int64_t>(engine.info().embedding_width, 1);
  settings.dimensions = fields.Integer("dimensions", 1, width).value_or(0);
  if (!fields.Boolean("normalize").value_or(true)) {
    fields.Fail("invalid_value", "normalize", "is false, expected true: vectors have length 1");
  }
  ReadTask(fields, prompts, settings);
  const json* extra = fields.Object("extra_body");
  if (extra == nullptr || fields.error()) return settings;
  FieldReader inner(*extra, "extra_body.");
  ReadTask(inner, prompts, settings);
  fields.Fail(inner.error());
  return settings;
}

ApiResult<Embedded> EmbedAll(const Services& services, Call& call, Engine& engine,
                             const std::vector<EmbeddingInput>& inputs,
                             const EmbeddingSettings& settings) {
  auto running = services.running.Admit(call.client(), 1);
  if (!running) return tl::unexpected(running.error());
  RunningRequest& request = **running;
  std::stop_source stop;
  request.SetCancel([&stop] { stop.request_stop(); });
  call.OnLeave([&request] { request.Cancel(CancelCause::kLeft); });
  auto out = InputEmbedder(engine, settings, request, stop.get_token()).Run(inputs);
  call.OnLeave({});
  request.SetCancel({});
  if (const CancelCause cause = request.cause(); cause != CancelCause::kNone) {
    NoteCancel(services, call, cause);
    return tl::unexpected(request.Failure());
  }
  if (!out) return out;
  call.record().prompt_tokens = out->tokens;
  services.metrics.Add(Counter::kPromptTokens, static_cast<double>(out->tokens));
  return out;
}

}  // namespace rullama::server
