// The native module rullama._rullama: the C++ interface of librullama with plain arguments and
// results. The types that users see are made in python/rullama; _rullama.pyi has the signatures.
//
// Every function that blocks releases the GIL. `on_main_thread` is explained at Await().
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <rullama/engine/engine.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "python/native/await.h"
#include "python/native/failure.h"
#include "python/native/finetune.h"
#include "python/native/interpreter.h"
#include "python/native/logits_stream.h"

namespace nb = nanobind;

namespace rullama::python {
namespace {

using FloatRows = nb::ndarray<nb::numpy, float, nb::ndim<2>, nb::c_contig>;

// A str; bytes that are not UTF-8 become U+FFFD.
nb::object Text(std::string_view text) {
  PyObject* object =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (object == nullptr) nb::raise_python_error();
  return nb::steal(object);
}

// An array that owns its numbers.
FloatRows RowsOf(std::unique_ptr<float[]> values, int64_t rows, int64_t columns) {
  float* data = values.get();
  const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  values.release();
  return {data, {static_cast<size_t>(rows), static_cast<size_t>(columns)}, owner};
}
FloatRows RowsOf(std::vector<float> values, int64_t columns) {
  auto kept = std::make_unique<std::vector<float>>(std::move(values));
  const int64_t rows = static_cast<int64_t>(kept->size()) / columns;
  float* data = kept->data();
  const nb::capsule owner(kept.get(),
                          [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  kept.release();
  return {data, {static_cast<size_t>(rows), static_cast<size_t>(columns)}, owner};
}

// One running answer. The reader is one thread at a time; cancel() is for any thread.
class Answer {
 public:
  explicit Answer(Generation generation) : generation_(std::move(generation)) {}
  ~Answer() {
    at_exit_.reset();
    // The last owner of an engine waits for its thread.
    const GilReleased released;
    generation_.reset();
  }
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  nb::object Next(bool on_main_thread) {
    const auto event = Unwrap(Await(
        on_main_thread, [this] { return Read(); }, [this] { Cancel(); }));
    if (!event) return nb::none();
    return nb::make_tuple(static_cast<int>(event->kind), Text(event->text), Text(event->call.name),
                          Text(event->call.arguments), event->done, event->total);
  }
  void Cancel() { generation_->Cancel(); }
  nb::dict Whole();

 private:
  [[nodiscard]] bool IsForked() const { return ::getpid() != home_; }
  // In a forked child the lock may be held forever, by a reader that exists in the parent only.
  Result<std::optional<Event>> Read() {
    if (IsForked()) return generation_->Next();  // an error
    const std::scoped_lock lock(reader_);
    return generation_->Next();
  }
  // The part that has been read so far. Error engine.forked in a child, if it was being read at the
  // fork.
  Result<Completion> ReadSoFar() {
    std::unique_lock lock(reader_, std::defer_lock);
    if (!IsForked()) {
      lock.lock();
    } else if (!lock.try_lock()) {
      return tl::unexpected(generation_->Next().error());
    }
    return generation_->completion();
  }

  const pid_t home_ = ::getpid();
  std::mutex reader_;  // two threads that read one answer take turns
  std::optional<Generation> generation_;
  std::optional<CancelledAtExit> at_exit_{std::in_place, [this] { Cancel(); }};
};

nb::dict Answer::Whole() {
  const Completion whole = Unwrap([this] {
    const GilReleased released;
    return ReadSoFar();
  }());
  nb::list calls;
  for (const ToolCall& call : whole.tool_calls) {
    calls.append(nb::make_tuple(Text(call.name), Text(call.arguments)));
  }
  nb::list logprobs;
  for (const LogprobStep& step : whole.logprobs) {
    nb::list top;
    for (const TokenLogprob& one : step.top) top.append(nb::make_tuple(one.token, one.logprob));
    logprobs.append(nb::make_tuple(step.drawn.token, step.drawn.logprob, top));
  }
  nb::dict result;
  result["text"] = Text(whole.text);
  result["thoughts"] = Text(whole.thoughts);
  result["tool_calls"] = calls;
  result["ids"] = nb::cast(whole.ids);
  result["logprobs"] = logprobs;
  result["reason"] = static_cast<int>(whole.reason);
  result["seed"] = whole.seed;
  result["prompt_tokens"] = whole.prompt_tokens;
  result["cached_tokens"] = whole.cached_tokens;
  result["drafted_tokens"] = whole.drafts.drafted;
  result["accepted_tokens"] = whole.drafts.accepted;
  result["queue_seconds"] = whole.queue_seconds;
  result["prompt_seconds"] = whole.prompt_seconds;
  result["generate_seconds"] = whole.generate_seconds;
  return result;
}

template <typename T>
std::optional<T> Find(const nb::dict& values, const char* name) {
  if (!values.contains(name)) return std::nullopt;
  T value{};
  if (!nb::try_cast<T>(values[name], value)) {
    throw nb::type_error(
        ("'" + std::string(name) + "' has a wrong type, or is out of range").c_str());
  }
  return value;
}

// The same for a count. Negative values are refused: the engine would take them for "not given".
template <typename T>
std::optional<T> FindCount(const nb::dict& values, const char* name) {
  const std::optional<T> value = Find<T>(values, name);
  if (!value || *value >= 0) return value;
  throw nb::value_error(("'" + std::string(name) + "' is " + std::to_string(*value) +
                         ", expected 0 or more; leave it out to do without")
                            .c_str());
}

// Constraints of the answer.
void SetForm(const nb::dict& values, Request& request) {
  request.json_schema = Find<std::string>(values, "json_schema").value_or("");
  request.allowed_tools =
      Find<std::vector<std::string>>(values, "allowed_tools").value_or(std::vector<std::string>());
  request.parallel_tool_calls = Find<bool>(values, "parallel_tool_calls").value_or(true);
  const std::string choice = Find<std::string>(values, "tool_choice").value_or("auto");
  if (choice == "none") {
    request.tool_choice = ToolChoice::kNone;
  } else if (choice == "required") {
    request.tool_choice = ToolChoice::kRequired;
  } else if (choice != "auto") {
    throw nb::value_error("'tool_choice' is not one of 'auto', 'none' and 'required'");
  }
}

// Pictures and sounds: tuples of kind, path, bytes and image tokens.
void SetMedia(const nb::dict& values, Request& request) {
  if (!values.contains("media")) return;
  for (const nb::handle entry : nb::cast<nb::list>(values["media"])) {
    const auto bytes = nb::borrow<nb::bytes>(entry[2]);
    request.media.push_back({.kind = static_cast<MediaKind>(nb::cast<int>(entry[0])),
                             .path = nb::cast<std::string>(entry[1]),
                             .bytes = std::string(bytes.c_str(), bytes.size()),
                             .image_tokens = nb::cast<int64_t>(entry[3])});
  }
}

Request RequestOf(const nb::dict& values) {
  Request request;
  SetMedia(values, request);
  request.messages = Find<std::string>(values, "messages").value_or("");
  request.prompt = Find<std::string>(values, "prompt").value_or("");
  request.ids = Find<std::vector<int32_t>>(values, "ids").value_or(std::vector<int32_t>());
  request.tools = Find<std::string>(values, "tools").value_or("");
  request.thinking = Find<bool>(values, "thinking");
  SetForm(values, request);
  request.max_tokens = Find<int64_t>(values, "max_tokens").value_or(-1);
  request.stop =
      Find<std::vector<std::string>>(values, "stop").value_or(std::vector<std::string>());
  request.top_logprobs = FindCount<int32_t>(values, "top_logprobs").value_or(-1);
  request.reuse_prefix = Find<bool>(values, "reuse_prefix").value_or(true);
  request.slot = FindCount<int32_t>(values, "slot").value_or(-1);
  request.drafts = Find<bool>(values, "drafts").value_or(true);
  request.max_draft = Find<int64_t>(values, "max_draft").value_or(-1);
  request.min_draft_probability = Find<double>(values, "min_draft_probability").value_or(-1);
  SamplingOptions& sampling = request.sampling;
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) \
  sampling.name = Find<Type>(values, #name);
#include "core/config/sampler_settings.def"
  sampling.seed = FindCount<int64_t>(values, "seed");
  sampling.logit_bias =
      Find<std::map<int32_t, float>>(values, "logit_bias").value_or(std::map<int32_t, float>());
  return request;
}

using Settings = std::vector<std::pair<std::string, std::string>>;

// An engine until close(). All functions may be called from any thread.
class Model {
 public:
  Model(const std::string& model, const std::string& backend, const std::string& config_file,
        const Settings& settings, const std::vector<std::string>& plugin_paths,
        bool on_main_thread) {
    EngineOptions options{.model = model,
                          .backend = backend,
                          .config_file = config_file,
                          .plugin_paths = plugin_paths,
                          .log = [log = log_](LogLevel level, std::string_view text) {
                            const std::scoped_lock lock(log->mutex);
                            log->lines.emplace_back(static_cast<int>(level), text);
                          }};
    for (const auto& [key, value] : settings) options.settings.push_back({key, value});
    engine_ = Unwrap(Await(
        on_main_thread, [&options] { return Engine::Open(options); }, [] {}));
  }
  ~Model() { Close(); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void Close() {
    // Taken out first: the last owner of an engine waits for its thread.
    std::shared_ptr<Engine> engine;
    {
      const std::scoped_lock lock(mutex_);
      engine.swap(engine_);
    }
    const GilReleased released;
    engine.reset();
  }
  bool Closed() const {
    const std::scoped_lock lock(mutex_);
    return engine_ == nullptr;
  }
  nb::dict Info() const;
  std::vector<std::pair<int, std::string>> TakeLog() {
    const std::scoped_lock lock(log_->mutex);
    return std::exchange(log_->lines, {});
  }

  std::unique_ptr<Answer> Submit(const nb::dict& values) {
    const Request request = RequestOf(values);
    const std::shared_ptr<Engine> engine = Open();
    return std::make_unique<Answer>(Unwrap(Released([&] { return engine->Submit(request); })));
  }
  std::vector<int32_t> Tokenize(const std::string& text, bool parse_special, bool add_bos) const {
    const std::shared_ptr<Engine> engine = Open();
    return Unwrap(Released([&] { return engine->Tokenize(text, parse_special, add_bos); }));
  }
  nb::object Detokenize(const std::vector<int32_t>& ids, bool show_control) const {
    return Text(Unwrap(Open()->Detokenize(ids, show_control)));
  }
  std::vector<int32_t> ChatTokens(const std::string& messages, const std::string& tools,
                                  bool thinking) const {
    return Unwrap(Open()->ChatTokens(messages, tools, thinking));
  }
  int64_t SaveSlot(int32_t slot, const std::string& path, bool on_main_thread);
  int64_t RestoreSlot(int32_t slot, const std::string& path, bool on_main_thread);
  int64_t EraseSlot(int32_t slot, bool on_main_thread);
  FloatRows Embed(const std::vector<std::string>& texts, const std::string& task,
                  int64_t dimensions, bool on_main_thread);
  FloatRows EmbedContent(const nb::dict& values, const std::string& task, int64_t dimensions,
                         bool on_main_thread);
  FloatRows Logits(const std::vector<int32_t>& ids, bool on_main_thread);
  std::unique_ptr<LogitsStream> LogitsParts(const std::vector<int32_t>& ids) {
    return std::make_unique<LogitsStream>(Open(), ids);
  }

 private:
  struct Log {
    std::mutex mutex;
    std::vector<std::pair<int, std::string>> lines;
  };

  template <typename Work>
  static auto Released(const Work& work) -> decltype(work()) {
    const GilReleased released;
    return work();
  }
  std::shared_ptr<Engine> Open() const {
    const std::scoped_lock lock(mutex_);
    if (engine_ == nullptr) {
      throw Failure({.kind = ErrorKind::kUsage,
                     .id = "usage.request",
                     .message = "the model has been closed; open another rullama.Model"});
    }
    return engine_;
  }

  std::shared_ptr<Log> log_ = std::make_shared<Log>();
  mutable std::mutex mutex_;
  std::shared_ptr<Engine> engine_;
};

nb::dict Model::Info() const {
  const ModelInfo info = Open()->info();
  nb::dict result;
  result["name"] = Text(info.name);
  result["architecture"] = Text(info.architecture);
  result["backend"] = Text(info.backend);
  result["device"] = Text(info.device);
  result["layers"] = info.layers;
  result["width"] = info.width;
  result["vocabulary"] = info.vocabulary;
  result["context_length"] = info.context_length;
  result["capacity"] = info.capacity;
  result["slots"] = info.slots;
  result["canvas_length"] = info.canvas_length;
  result["embedding_width"] = info.embedding_width;
  result["encodes"] = info.encodes;
  result["takes_pictures"] = info.takes_pictures;
  result["takes_sound"] = info.takes_sound;
  return result;
}

int64_t Model::SaveSlot(int32_t slot, const std::string& path, bool on_main_thread) {
  const std::shared_ptr<Engine> engine = Open();
  std::stop_source stop;
  return Unwrap(Await(
                    on_main_thread,
                    [&] {
                      return engine->SaveSlot(slot, /*client=*/0, {.path = path}, stop.get_token());
                    },
                    [&] { stop.request_stop(); }))
      .tokens;
}

int64_t Model::RestoreSlot(int32_t slot, const std::string& path, bool on_main_thread) {
  const std::shared_ptr<Engine> engine = Open();
  std::stop_source stop;
  return Unwrap(Await(
                    on_main_thread,
                    [&] {
                      return engine->RestoreSlot(slot, /*client=*/0, {.path = path},
                                                 stop.get_token());
                    },
                    [&] { stop.request_stop(); }))
      .tokens;
}

int64_t Model::EraseSlot(int32_t slot, bool on_main_thread) {
  const std::shared_ptr<Engine> engine = Open();
  std::stop_source stop;
  return Unwrap(Await(
      on_main_thread, [&] { return engine->EraseSlot(slot, /*client=*/0, {}, stop.get_token()); },
      [&] { stop.request_stop(); }));
}

FloatRows Model::Embed(const std::vector<std::string>& texts, const std::string& task,
                       int64_t dimensions, bool on_main_thread) {
  const std::shared_ptr<Engine> engine = Open();
  std::stop_source stop;
  const CancelledAtExit at_exit([&] { stop.request_stop(); });
  auto values = Unwrap(Await(
      on_main_thread,
      [&]() -> Result<std::vector<float>> {
        std::vector<std::vector<int32_t>> ids;
        for (const std::string& text : texts) {
          auto of_text = engine->EmbeddingTokens(text, task);
          if (!of_text) return tl::unexpected(std::move(of_text).error());
          ids.push_back(*std::move(of_text));
        }
        std::vector<float> all;
        for (auto& one : engine->EmbedEach(ids, {.dimensions = dimensions}, stop.get_token())) {
          if (!one) return std::move(one);
          all.insert(all.end(), one->begin(), one->end());
        }
        return all;
      },
      [&] { stop.request_stop(); }));
  return RowsOf(std::move(values), dimensions > 0 ? dimensions : engine->info().embedding_width);
}

FloatRows Model::EmbedContent(const nb::dict& values, const std::string& task, int64_t dimensions,
                              bool on_main_thread) {
  const std::shared_ptr<Engine> engine = Open();
  const Request content = RequestOf(values);
  const EmbeddingOptions options{.task = task, .dimensions = dimensions};
  auto vector = Unwrap(Await(
      on_main_thread, [&] { return engine->EmbedContent(content, options); }, [] {}));
  const auto width = static_cast<int64_t>(vector.size());
  return RowsOf(std::move(vector), width);
}

FloatRows Model::Logits(const std::vector<int32_t>& ids, bool on_main_thread) {
  const std::shared_ptr<Engine> engine = Open();
  const int64_t vocabulary = engine->info().vocabulary;
  // As many rows as fit at all: longer input is an error of the engine.
  const auto rows = static_cast<int64_t>(ids.size());
  if (rows > engine->info().capacity) {
    Unwrap(Await(
        on_main_thread, [&] { return engine->Logits(ids, [](auto, auto) { return false; }); },
        [] {}));
  }
  std::unique_ptr<float[]> values(new float[static_cast<size_t>(rows * vocabulary)]);
  std::atomic<bool> cancelled = false;
  const CancelledAtExit at_exit([&] { cancelled = true; });
  Unwrap(Await(
      on_main_thread,
      [&] {
        return engine->Logits(ids, [&](int64_t first, std::span<const float> logits) {
          std::ranges::copy(logits, values.get() + first * vocabulary);
          return !cancelled;
        });
      },
      [&] { cancelled = true; }));
  return RowsOf(std::move(values), rows, vocabulary);
}

nb::object NextPart(LogitsStream& stream, bool on_main_thread) {
  auto part = Unwrap(Await(
      on_main_thread, [&] { return stream.Next(); }, [&] { stream.Cancel(); }));
  if (!part) return nb::none();
  return nb::make_tuple(part->first, RowsOf(std::move(part->logits), stream.vocabulary()));
}

void RaiseInPython(const std::exception_ptr& thrown, void* /*payload*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Failure& failure) {
    const Error& error = failure.error();
    const nb::object make = nb::module_::import_("rullama._errors").attr("make_error");
    const nb::object exception =
        make(static_cast<int>(error.kind), Text(error.id), Text(error.message));
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  }
}

}  // namespace
}  // namespace rullama::python

NB_MODULE(_rullama, module) {
  using rullama::python::Answer;
  using rullama::python::LogitsStream;
  using rullama::python::Model;
  module.attr("__version__") = RULLAMA_VERSION;
  nb::module_::import_("atexit").attr("register")(
      nb::cpp_function(&rullama::python::OnInterpreterExit));
  module.def("interpreter_ends", &rullama::python::InterpreterEnds);
  nb::register_exception_translator(&rullama::python::RaiseInPython, nullptr);
  module.def(
      "split_message",
      [](const std::string& message) {
        rullama::Error error;
        error.message = message;
        return nb::make_tuple(rullama::python::Text(error.finding()),
                              rullama::python::Text(error.hint()));
      },
      nb::arg("message"));
  module.def("finetune", &rullama::python::FineTuneFromPython, nb::arg("model"), nb::arg("backend"),
             nb::arg("config_file"), nb::arg("settings"), nb::arg("plugin_paths"),
             nb::arg("resume"), nb::arg("first_adapter"), nb::arg("overwrite"),
             nb::arg("on_report").none(), nb::arg("group").none(), nb::arg("on_main_thread"));
  nb::class_<Answer>(module, "Answer")
      .def("next", &Answer::Next, nb::arg("on_main_thread"))
      .def("cancel", &Answer::Cancel)
      .def("whole", &Answer::Whole);
  nb::class_<LogitsStream>(module, "LogitsStream")
      .def("next", &rullama::python::NextPart, nb::arg("on_main_thread"))
      .def("cancel", [](LogitsStream& stream) {
        const rullama::python::GilReleased released;
        stream.Cancel();
      });
  nb::class_<Model>(module, "Model")
      .def(nb::init<const std::string&, const std::string&, const std::string&,
                    const rullama::python::Settings&, const std::vector<std::string>&, bool>(),
           nb::arg("model"), nb::arg("backend"), nb::arg("config_file"), nb::arg("settings"),
           nb::arg("plugin_paths"), nb::arg("on_main_thread"))
      .def("close", &Model::Close)
      .def("closed", &Model::Closed)
      .def("info", &Model::Info)
      .def("take_log", &Model::TakeLog)
      .def("submit", &Model::Submit, nb::arg("values"))
      .def("tokenize", &Model::Tokenize, nb::arg("text"), nb::arg("parse_special"),
           nb::arg("add_bos"))
      .def("detokenize", &Model::Detokenize, nb::arg("ids"), nb::arg("show_control"))
      .def("chat_tokens", &Model::ChatTokens, nb::arg("messages"), nb::arg("tools"),
           nb::arg("thinking"))
      .def("embed", &Model::Embed, nb::arg("texts"), nb::arg("task"), nb::arg("dimensions"),
           nb::arg("on_main_thread"))
      .def("embed_content", &Model::EmbedContent, nb::arg("values"), nb::arg("task"),
           nb::arg("dimensions"), nb::arg("on_main_thread"))
      .def("save_slot", &Model::SaveSlot, nb::arg("slot"), nb::arg("path"),
           nb::arg("on_main_thread"))
      .def("restore_slot", &Model::RestoreSlot, nb::arg("slot"), nb::arg("path"),
           nb::arg("on_main_thread"))
      .def("erase_slot", &Model::EraseSlot, nb::arg("slot"), nb::arg("on_main_thread"))
      .def("logits", &Model::Logits, nb::arg("ids"), nb::arg("on_main_thread"))
      .def("logits_parts", &Model::LogitsParts, nb::arg("ids"));
}
