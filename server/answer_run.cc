#include "server/answer_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "server/answer_parts.h"
#include "server/field_reader.h"

namespace rullama::server {
namespace {

constexpr double kPingSeconds = 15;
// Tokens of a text are counted up to as many contexts.
constexpr int64_t kCountedContexts = 4;

struct TokenCount {
  int64_t count = 0;
  bool more_than = false;
};

// "the prompt has 600 tokens, ..." -> 600, of an error context.overflow. Counting again would cost
// as much as the prompt did.
TokenCount TokensIn(std::string_view message) {
  constexpr std::string_view kBegin = "the prompt has ";
  constexpr std::string_view kMore = "more than ";
  if (!message.starts_with(kBegin)) return {};
  message.remove_prefix(kBegin.size());
  TokenCount tokens{.more_than = message.starts_with(kMore)};
  message.remove_prefix(std::min(message.find_first_of("0123456789"), message.size()));
  std::from_chars(message.data(), message.data() + message.size(), tokens.count);
  return tokens;
}

// The error that a request could not be submitted with, at the place where its body has the fault.
ApiError PlacedError(const Engine& engine, const AnswerRequest& request, const Request& prompt,
                     const Error& error, Dialect dialect) {
  ApiError out = SubmitError(engine, prompt, error, dialect);
  if (out.param && request.place_in_body) {
    const std::string place = request.place_in_body(*out.param);
    if (out.message.starts_with(*out.param)) out.message.replace(0, out.param->size(), place);
    out.param = place;
  }
  if (out.code.starts_with("schema.") && !out.param && !request.form_name.empty()) {
    out.param = request.form_name;
  }
  return out;
}

// Those of `loaded` that requests have which choose none.
std::vector<AdapterScale> InForce(const std::vector<AdapterInfo>& loaded) {
  std::vector<AdapterScale> in_force;
  for (size_t i = 0; i < loaded.size(); ++i) {
    if (loaded[i].scale != 0) in_force.push_back({static_cast<int32_t>(i), loaded[i].scale});
  }
  return in_force;
}

// The parameters that /slots shows of a request while it runs.
std::string NoteOf(const Engine& engine, const AnswerRequest& request, const Request& prompt) {
  const SamplingDefaults& defaults = engine.info().sampling;
  const SamplingOptions& sampling = prompt.sampling;
  nlohmann::json adapters = nlohmann::json::array();
  for (const AdapterScale& one : prompt.adapters ? *prompt.adapters : InForce(engine.adapters())) {
    adapters.push_back({{"id", one.id}, {"scale", one.scale}});
  }
  return Dump({
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) \
  {#name, sampling.name.value_or(defaults.name)},
#include "core/config/sampler_settings.def"
      {"stream", request.stream},
      {"ignore_eos", prompt.ignore_end},
      {"max_tokens", prompt.max_tokens},
      {"lora", std::move(adapters)}});
}

// The answers to one request while they are written. There are as many threads as there are slots,
// each of which reads one answer at a time, in the order in which the engine begins them.
class AnswerRun {
 public:
  AnswerRun(const Services& services, Call& call, AnswerRequest& request, AnswerFormat& format,
            RunningRequest& running)
      : services_(services),
        call_(call),
        request_(request),
        format_(format),
        running_(running),
        ignored_(request.ignored) {}

  // Starts the answers and runs them.
  void SubmitAndRun(Engine& engine);

 private:
  // Starts all answers; none is left if one cannot be started, or if `stop` was requested before.
  ApiResult<void> Submit(Engine& engine, const std::stop_token& stop);
  void Run();
  // Reads answers, each of which has no reader yet, until all have one.
  void ReadSome();
  void Read(size_t index);
  void ReadAnswer(size_t index);
  void RunOutOfMemory();
  bool Take(size_t index, const Event& event);
  bool BeginStream();
  // What a choice shows of its prompt, once.
  bool WritePrompt(size_t index);
  bool Write(const std::string& bytes);
  void CountTokens(const Event& event);
  void EndEarly(const ApiError& error);
  void Finish();
  void Cancel() {
    for (Generation& generation : generations_) generation.Cancel();
  }

  const Services& services_;
  Call& call_;
  AnswerRequest& request_;
  AnswerFormat& format_;
  RunningRequest& running_;
  std::vector<Generation> generations_;
  std::atomic<size_t> next_ = 0;  // the first one without a reader
  int64_t slots_ = 1;
  std::vector<std::string> ignored_;  // members and keywords
  std::mutex mutex_;                  // guards what follows, and the writing
  std::vector<Choice> choices_;
  std::vector<bool> shown_;             // by choice: WritePrompt() was called
  std::optional<ApiError> error_;       // the first one
  ApiError no_memory_ = OutOfMemory();  // made while there is memory
  bool begun_ = false;                  // the head of the stream is out
  Clock::time_point last_write_ = Clock::now();
  Clock::time_point last_token_;
};

void AnswerRun::SubmitAndRun(Engine& engine) {
  call_.OnLeave([this] { running_.Cancel(CancelCause::kLeft); });
  std::stop_source stop;
  running_.SetCancel([&stop] { stop.request_stop(); });
  const auto submitted = Submit(engine, stop.get_token());
  if (submitted) return Run();
  call_.OnLeave({});
  running_.SetCancel({});
  if (running_.cause() == CancelCause::kNone) return EndEarly(submitted.error());
  NoteCancel(services_, call_, running_.cause());
  EndEarly(running_.Failure());
}

ApiResult<void> AnswerRun::Submit(Engine& engine, const std::stop_token& stop) {
  for (Request& prompt : request_.prompts) {
    prompt.client = call_.client();
    prompt.owner = call_.owner();
    prompt.note = NoteOf(engine, request_, prompt);
    auto answers = engine.SubmitChoices(prompt, request_.n, stop);
    if (!answers) {
      return tl::unexpected(
          PlacedError(engine, request_, prompt, answers.error(), call_.dialect()));
    }
    std::ranges::move(*answers, std::back_inserter(generations_));
    prompt.media = {};
  }
  choices_.resize(generations_.size());
  shown_.resize(generations_.size());
  slots_ = engine.info().slots;
  const Completion& first = generations_.front().completion();
  for (const std::string& keyword : first.ignored_keywords) {
    ignored_.push_back("schema." + keyword);
  }
  for (const std::string& place : first.unenforced_keywords) {
    ignored_.push_back(request_.place_in_body ? request_.place_in_body(place) : place);
  }
  return {};
}

void AnswerRun::Run() {
  running_.SetCancel([this] { Cancel(); });
  std::vector<std::thread> readers;
  try {
    const int64_t most = std::min(std::ssize(generations_), slots_);
    for (int64_t i = 1; i < most; ++i) readers.emplace_back([this] { ReadSome(); });
  } catch (const std::exception&) {  // std::system_error or std::bad_alloc
    RunOutOfMemory();
  }
  ReadSome();
  for (std::thread& reader : readers) reader.join();
  call_.OnLeave({});
  running_.SetCancel({});
  Finish();
}

void AnswerRun::RunOutOfMemory() {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(no_memory_);
  Cancel();
}

void AnswerRun::ReadSome() {
  for (size_t i = next_++; i < generations_.size(); i = next_++) Read(i);
}

void AnswerRun::Read(size_t index) {
  try {
    ReadAnswer(index);
  } catch (const std::exception&) {  // std::bad_alloc
    RunOutOfMemory();
  }
}

void AnswerRun::ReadAnswer(size_t index) {
  auto answer = generations_[index].Wait([&](const Event& event) { return Take(index, event); });
  const std::lock_guard lock(mutex_);
  if (!answer) {
    if (!error_) error_ = FromEngine(answer.error());
    return Cancel();
  }
  Choice& choice = choices_[index];
  choice.completion = *std::move(answer);
  if (choice.completion.reason == StopReason::kCancelled) return;
  if (request_.stream && BeginStream() && WritePrompt(index)) {
    Write(format_.End(static_cast<int64_t>(index), choice));
  }
}

bool AnswerRun::Take(size_t index, const Event& event) {
  running_.GotSlot();
  const std::lock_guard lock(mutex_);
  if (event.kind == Event::Kind::kText) {
    std::ranges::copy(event.logprobs, std::back_inserter(choices_[index].logprobs));
  }
  if (event.kind == Event::Kind::kDraft) {
    choices_[index].canvases.resize(static_cast<size_t>(event.draft.canvas) + 1);
    choices_[index].canvases.back() = event.done;
  }
  CountTokens(event);
  bool sent = true;
  if (request_.stream) {
    const bool shows = event.kind != Event::Kind::kProgress;
    sent = BeginStream() && (!shows || WritePrompt(index)) &&
           Write(format_.Part(static_cast<int64_t>(index), event));
    if (sent && SecondsSince(last_write_) > kPingSeconds) sent = Write(format_.Ping());
    if (!sent) running_.Cancel(CancelCause::kSlow);
  } else {
    format_.Watch(static_cast<int64_t>(index), event);
  }
  return sent;
}

void AnswerRun::CountTokens(const Event& event) {
  if (event.kind == Event::Kind::kProgress || event.kind == Event::Kind::kDraft) return;
  const Clock::time_point now = Clock::now();
  if (last_token_ == Clock::time_point()) {
    call_.record().first_seconds = SecondsSince(call_.begin());
    services_.metrics.Observe(Distribution::kFirstTokenSeconds, call_.record().first_seconds);
  } else {
    services_.metrics.Observe(Distribution::kInterTokenSeconds,
                              std::chrono::duration<double>(now - last_token_).count());
  }
  last_token_ = now;
}

bool AnswerRun::BeginStream() {
  if (begun_) return true;
  begun_ = true;
  HttpAnswer head{.status = 200,
                  .content_type = std::string(format_.stream_type()),
                  .body = {},
                  .fields = IgnoredFields(ignored_)};
  head.fields.push_back({"Cache-Control", "no-cache"});
  return call_.Begin(std::move(head)) &&
         Write(format_.Begin(static_cast<int64_t>(generations_.size())));
}

bool AnswerRun::WritePrompt(size_t index) {
  if (shown_[index]) return true;
  shown_[index] = true;
  return Write(format_.Prompt(static_cast<int64_t>(index), generations_[index].completion()));
}

bool AnswerRun::Write(const std::string& bytes) {
  if (bytes.empty()) return true;
  last_write_ = Clock::now();
  return call_.Write(bytes);
}

void AnswerRun::EndEarly(const ApiError& error) {
  if (running_.cause() == CancelCause::kLeft || running_.cause() == CancelCause::kSlow) return;
  if (!begun_) return call_.Fail(error);
  call_.Write(format_.Failure(error));
  call_.End();
}

void AnswerRun::Finish() {
  CallRecord& record = call_.record();
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Completion& answer = choices_[i].completion;
    record.drawn_tokens += std::ssize(answer.ids);
    record.queue_seconds = answer.queue_seconds;
    if (i % static_cast<size_t>(request_.n) > 0) continue;
    record.prompt_tokens += answer.prompt_tokens;
    record.cached_tokens += answer.cached_tokens;
  }
  Metrics& metrics = services_.metrics;
  metrics.Add(Counter::kDrawnTokens, static_cast<double>(record.drawn_tokens));
  metrics.Add(Counter::kCachedTokens, static_cast<double>(record.cached_tokens));
  metrics.Add(Counter::kPromptTokens,
              static_cast<double>(record.prompt_tokens - record.cached_tokens));
  metrics.Observe(Distribution::kQueueSeconds, record.queue_seconds);
  if (running_.cause() != CancelCause::kNone) {
    NoteCancel(services_, call_, running_.cause());
    return EndEarly(running_.Failure());
  }
  if (error_) return EndEarly(*error_);
  const bool over = std::ranges::none_of(choices_, [](const Choice& choice) {
    return choice.completion.reason == StopReason::kCancelled;
  });
  if (!over) return EndEarly(MakeApiError("shutting_down", "the model is being closed"));
  record.reason = FinishReason(choices_.front().completion);
  if (request_.stream) {
    if (Write(format_.Last(choices_))) call_.End();
    return;
  }
  call_.Send({.status = 200,
              .content_type = "application/json",
              .body = format_.Whole(choices_),
              .fields = IgnoredFields(ignored_)});
}

}  // namespace

void NoteCancel(const Services& services, Call& call, CancelCause cause) {
  call.record().reason = NameOf(cause);
  services.metrics.Add(Counter::kCancelled, 1, fmt::format("reason=\"{}\"", NameOf(cause)));
}

int64_t ContextLimit(const Engine& engine, const Request& request) {
  const int64_t capacity = engine.info().capacity;
  return request.max_context > 0 ? std::min(request.max_context, capacity) : capacity;
}

int64_t CanvasAfterPrompt(const Engine& engine, const Request& request) {
  return request.max_tokens == 0 ? 0 : engine.info().canvas_length;
}

ApiError SubmitError(const Engine& engine, const Request& request, const Error& error,
                     Dialect dialect) {
  ApiError out = FromEngine(error);
  const bool chat = !request.messages.empty();
  if (out.code == "invalid_value" && !out.param) out.param = chat ? "messages" : "prompt";
  if (out.code != "context_length_exceeded") return out;
  const TokenCount tokens = TokensIn(error.message);
  const int64_t limit = ContextLimit(engine, request);
  const int64_t canvas = CanvasAfterPrompt(engine, request);
  // The words that clients look for.
  if (dialect == Dialect::kAnthropic) {
    out.message = fmt::format("prompt is too long: {} tokens > {} maximum",
                              tokens.count + (tokens.more_than ? 1 : 0), limit - canvas);
    out.param = "messages";
    return out;
  }
  out.message = fmt::format(
      "This model's maximum context length is {} tokens. However, your messages resulted in {}{} "
      "tokens. Shorten them, or start the server with a larger context.capacity.",
      limit - canvas, tokens.more_than ? "more than " : "", tokens.count);
  if (canvas > 0) {
    out.message += fmt::format(" A canvas takes {} of the {} tokens that fit.", canvas, limit);
  }
  out.param = chat ? "messages" : "prompt";
  out.extra = {{"n_prompt_tokens", tokens.count + (tokens.more_than ? 1 : 0)}, {"n_ctx", limit}};
  return out;
}

ApiResult<int64_t> CountPromptTokens(const Call& call, const Engine& engine,
                                     const AnswerRequest& request) {
  const Request& prompt = request.prompts.front();
  const int64_t most = std::max(engine.info().context_length, engine.info().capacity);
  const auto tokens = engine.CountPrompt(prompt, most);
  if (tokens) return *tokens;
  return tl::unexpected(PlacedError(engine, request, prompt, tokens.error(), call.dialect()));
}

ApiResult<UsedModel> AcquireModel(const Services& services, Call& call, std::string_view name) {
  const auto left = std::make_shared<std::atomic<bool>>(false);
  call.OnLeave([&services, left] {
    *left = true;
    services.models.LookAtLeft();
  });
  auto model = services.models.Acquire(name, left.get());
  call.OnLeave({});
  if (model) {
    call.record().model = model->id;
  } else if (model.error().code == "client_left") {
    NoteCancel(services, call, CancelCause::kLeft);
  }
  return model;
}

ApiResult<LoadedContext> ContextOf(const Services& services, Call& call,
                                   const nlohmann::json& body) {
  FieldReader fields(body);
  const auto name = fields.Text("model");
  if (fields.error()) return tl::unexpected(*fields.error());
  auto model = AcquireModel(services, call, name.value_or(""));
  if (!model) return tl::unexpected(model.error());
  const BodyContext context = BodyContextOf(*model, call.request().body);
  return LoadedContext{.model = *std::move(model), .body = context};
}

BodyContext BodyContextOf(const UsedModel& model, std::string_view text) {
  const ModelInfo& info = model.engine->info();
  const std::vector<AdapterInfo> adapters = model.engine->adapters();
  std::vector<AdapterScale> in_force = InForce(adapters);
  BodyContext context{.text = text,
                      .slots = info.slots,
                      .capacity = info.capacity,
                      .denoises = info.canvas_length > 0,
                      .adapters = std::ssize(adapters),
                      .chooses_adapters = model.engine->chooses_adapters(),
                      .adapters_in_force = std::move(in_force)};
  if (model.adapter) {
    const double own = adapters[static_cast<size_t>(*model.adapter)].own_scale;
    context.adapter = AdapterScale{*model.adapter, own};
  }
  return context;
}

void PreparePrompts(const Engine& engine, AnswerRequest& request) {
  const auto ids_of = [&](const std::string& text, bool bos) {
    const int64_t most = kCountedContexts * engine.info().capacity;
    return engine.Tokenize(text, /*parse_special=*/true, bos, most)
        .value_or(std::vector<int32_t>());
  };
  for (Request& prompt : request.prompts) {
    if (!prompt.messages.empty()) continue;
    PromptView& view = request.views.emplace_back();
    if (request.echo) view.text = prompt.prompt;
    const bool shown = prompt.prompt_logprobs >= 0 || request.token_ids;
    if (prompt.prompt.empty() && prompt.ids.empty()) {
      prompt.ids = ids_of("", true);
      view.hidden = prompt.ids.size();
    } else if (!prompt.prompt.empty() && (shown || !request.add_bos)) {
      // A text that is far too long stays one, and is refused when it is submitted.
      std::vector<int32_t> ids = ids_of(prompt.prompt, request.add_bos);
      if (!ids.empty()) {
        const std::string first = engine.TokenBytes(ids.front()).value_or("");
        view.hidden = request.add_bos && !prompt.prompt.starts_with(first) ? 1 : 0;
        prompt.ids = std::move(ids);
        prompt.prompt.clear();
      }
    } else if (request.echo) {
      for (const int32_t id : prompt.ids) view.text += engine.TokenBytes(id).value_or("");
      view.text = ValidUtf8(view.text);
    }
    if (shown) view.ids = prompt.ids;
  }
}

ApiResult<void> CheckPromptLogprobs(const Engine& engine, const AnswerRequest& request) {
  constexpr int64_t kMost = 4'000'000;
  int64_t entries = 0;
  for (const Request& prompt : request.prompts) {
    if (prompt.prompt_logprobs < 0) continue;
    const int64_t rows = std::min(std::ssize(prompt.ids), engine.info().capacity);
    entries += rows * (prompt.prompt_logprobs + 1);
  }
  if (entries <= kMost) return {};
  return tl::unexpected(MakeApiError(
      "invalid_value",
      fmt::format("'prompt' leads to {} log-probabilities, expected at most {}; send fewer prompts",
                  entries, kMost),
      "prompt"));
}

AnswerIdentity IdentityOf(const Services& services, const UsedModel& model) {
  return {.model = model.id,
          .fingerprint =
              fmt::format("rullama-{}-{}", services.options.version, model.engine->info().backend),
          .created = SecondsNow(),
          .token_bytes = [engine = model.engine](int32_t token) {
            return engine->TokenBytes(token).value_or("");
          }};
}

void RunAnswer(const Services& services, Call& call, Engine& engine, AnswerRequest& request,
               AnswerFormat& format) {
  // Several prompts take the place of one: they wait for each other.
  auto running = services.running.Admit(call.client(), request.n);
  if (!running) return call.Fail(running.error());
  AnswerRun(services, call, request, format, **running).SubmitAndRun(engine);
}

}  // namespace rullama::server
