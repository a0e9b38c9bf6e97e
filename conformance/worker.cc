#include "conformance/worker.h"

#include <dlfcn.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <utility>

#include "conformance/last_words.h"
#include "conformance/process_state.h"
#include "conformance/stdout_capture.h"
#include "core/plugin/host_table.h"
#include "core/reference/reference_backend.h"

namespace rullama::conformance {
namespace {

Result<rl_plugin_query_fn> EntryPoint(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* symbol = library == nullptr ? nullptr : ::dlsym(library, RL_PLUGIN_QUERY_NAME);
  if (symbol == nullptr) {
    return MakeError(ErrorKind::kBackend, "plugin.load", "{}", ::dlerror());
  }
  return reinterpret_cast<rl_plugin_query_fn>(symbol);
}

std::string WroteToStdout(const std::string& text) {
  return fmt::format(
      "the plugin wrote to standard output, which belongs to the program: '{}'; log through the "
      "host's table (sdk::Host::Log) instead",
      Printable({text.data(), text.size()}, text.size()));
}

std::string ChangedTheProcess(const std::string& changes) {
  return fmt::format("the plugin changed what belongs to the program: {}", changes);
}

// Joins two descriptions of faults, each of which may be empty.
std::string Join(std::string first, const std::string& second) {
  if (first.empty() || second.empty()) return first + second;
  return first + "; " + second;
}

// Describes side effects of a plugin: text on standard output, and changes of the process.
std::string SideEffects(const std::string& written, const std::string& changes) {
  return Join(written.empty() ? "" : WroteToStdout(written),
              changes.empty() ? "" : ChangedTheProcess(changes));
}

Event EndOf(const Status& status, const std::string& side_effects) {
  Event event;
  event.kind = Event::Kind::kEnd;
  if (!status) {
    const bool unsupported = status.error().id == kUnsupportedId;
    event.verdict = unsupported ? Verdict::kUnsupported : Verdict::kFailed;
    event.text = unsupported ? status.error().message : status.error().ToString();
  }
  if (!side_effects.empty()) {
    event.text = event.verdict == Verdict::kFailed ? Join(event.text, side_effects) : side_effects;
    event.verdict = Verdict::kFailed;
  }
  return event;
}

// The state of the process between two looks at it.
class Watched {
 public:
  // What has changed since the last look. Floats are rounded as in the beginning afterwards, so
  // that the next test has its own results.
  std::string TakeChanges() {
    ProcessState now = ProcessState::Now();
    std::string changes = now.ChangesSince(last_);
    first_.RestoreFloats();
    last_ = changes.empty() ? std::move(now) : ProcessState::Now();
    return changes;
  }

 private:
  ProcessState first_ = ProcessState::Now();
  ProcessState last_ = first_;
};

Status RunAll(const Flags& flags, std::span<const NamedTest> tests, StdoutCapture& capture,
              Watched& process, const std::function<void(const Event&)>& tell) {
  RL_ASSIGN_OR_RETURN(Suite suite, OpenSuite(flags));
  RL_ASSIGN_OR_RETURN(const auto device, suite.Open());
  suite.written_while_opening = capture.Take();
  suite.changed_while_opening = process.TakeChanges();
  TakeCrashSignalsBack();
  Event ready;
  ready.plugin = suite.plugin->name();
  ready.version = suite.plugin->version();
  ready.device = device->description().name;
  tell(ready);
  for (const NamedTest& test : tests) {
    Event begin;
    begin.kind = Event::Kind::kBegin;
    tell(begin);
    const Status status = test.run(suite, *device);
    const std::string written = capture.Take();
    tell(EndOf(status, SideEffects(written, process.TakeChanges())));
  }
  return OkStatus();
}

Status NothingChangedWhileOpening(Suite& suite, Device&) {
  if (suite.changed_while_opening.empty()) return OkStatus();
  return Failed("while it was loaded and its device opened, {}",
                ChangedTheProcess(suite.changed_while_opening));
}

Status NothingWrittenWhileOpening(Suite& suite, Device&) {
  if (suite.written_while_opening.empty()) return OkStatus();
  return Failed("while it was loaded and its device opened, {}",
                WroteToStdout(suite.written_while_opening));
}

}  // namespace

Result<Suite> OpenSuite(const Flags& flags) {
  Suite suite;
  suite.seed = flags.seed;
  suite.device_index = flags.device;
  suite.cancelled = std::make_shared<std::atomic<bool>>(false);
  RL_ASSIGN_OR_RETURN(suite.manifest, Manifest::Load(flags.manifest, flags.activations));
  for (const std::string& option : flags.options) {
    const size_t equals = option.find('=');
    if (equals == std::string::npos) {
      return MakeError(ErrorKind::kUsage, "usage.option", "'{}' is not of the form KEY=VALUE",
                       option);
    }
    suite.options.emplace_back(option.substr(0, equals), option.substr(equals + 1));
  }
  HostOptions host;
  host.cancelled = suite.cancelled;
  host.logger = std::make_shared<spdlog::logger>("rullama",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  const auto shared = std::make_shared<PluginHost>(std::move(host));
  if (flags.plugin == "reference") {
    suite.query = ReferencePluginQuery;
    RL_ASSIGN_OR_RETURN(suite.plugin, Plugin::FromQuery(suite.query, "built in", shared));
  } else {
    RL_ASSIGN_OR_RETURN(suite.plugin, Plugin::Load(flags.plugin, shared));
    RL_ASSIGN_OR_RETURN(suite.query, EntryPoint(flags.plugin));
  }
  return suite;
}

void RunWorker(const Flags& flags, std::span<const NamedTest> tests,
               const std::function<void(const Event&)>& tell) {
  Event last;
  last.kind = Event::Kind::kDone;
  auto capture = StdoutCapture::Begin();
  Watched process;
  const Status status = capture ? RunAll(flags, tests, *capture, process, tell)
                                : Status(tl::unexpected(capture.error()));
  if (status) {
    const std::string written = capture->Take();
    last.text = SideEffects(written, process.TakeChanges());
  } else {
    last.kind = Event::Kind::kError;
    last.error_kind = static_cast<int>(status.error().kind);
    last.error_id = status.error().id;
    last.text = status.error().message;
  }
  tell(last);
}

void AddProcessTests(std::vector<NamedTest>& tests) {
  tests.push_back({"Contract.process_is_left_alone", NothingChangedWhileOpening});
  tests.push_back({"Contract.stdout_is_left_alone", NothingWrittenWhileOpening});
}

}  // namespace rullama::conformance
