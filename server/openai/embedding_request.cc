#include "server/openai/embedding_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>

#include "server/answer_run.h"
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

ApiResult<OneEmbedded> EmbedInput(Engine& engine, const EmbeddingInput& input,
                                  const EmbeddingSettings& settings, const TaskPrompt* prompt) {
  if (const auto* content = std::get_if<EmbeddingContent>(&input)) {
    return EmbedContent(engine, *content, settings, prompt);
  }
  // Longer ones than this are not counted exactly.
  const int64_t most = settings.truncate ? -1 : 4 * engine.info().capacity;
  auto ids = IdsOf(engine, input, prompt == nullptr ? "" : std::string_view(prompt->name), most);
  if (!ids) return tl::unexpected(ids.error());
  if (settings.truncate) Truncate(engine, *ids, static_cast<size_t>(engine.info().capacity));
  auto values = engine.Embed(*ids, settings.dimensions, settings.adapters);
  if (!values) return tl::unexpected(SubmitError(engine, {.ids = *ids}, values.error()));
  return OneEmbedded{*std::move(values), std::ssize(*ids)};
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
  const auto left = std::make_shared<std::atomic<bool>>(false);
  call.OnLeave([left] { *left = true; });
  Embedded out;
  const std::vector<TaskPrompt>& prompts = engine.info().embedding_prompts;
  const TaskPrompt* prompt = FindPrompt(prompts, settings.task);
  for (const EmbeddingInput& input : inputs) {
    if (*left) request.Cancel(CancelCause::kLeft);
    if (request.cause() != CancelCause::kNone) {
      NoteCancel(services, call, request.cause());
      return tl::unexpected(*left ? MakeApiError("client_left", "the client has left")
                                  : request.Failure());
    }
    const bool prompted = HasPrompt(input, prompt);
    if (prompted && out.ignored.empty()) out.ignored.push_back(settings.task_field);
    auto one = EmbedInput(engine, input, settings, prompted ? nullptr : prompt);
    if (!one) {
      if (inputs.size() > 1) one.error().message += fmt::format(" (input {})", out.vectors.size());
      return tl::unexpected(std::move(one).error());
    }
    request.GotSlot();
    out.tokens += one->tokens;
    out.vectors.push_back(std::move(one->values));
  }
  call.OnLeave({});
  call.record().prompt_tokens = out.tokens;
  services.metrics.Add(Counter::kPromptTokens, static_cast<double>(out.tokens));
  return out;
}

}  // namespace rullama::server
