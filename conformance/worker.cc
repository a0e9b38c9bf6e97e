#include "conformance/worker.h"

#include <dlfcn.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <utility>

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

Event EndOf(const Status& status, const std::string& written) {
  Event event;
  event.kind = Event::Kind::kEnd;
  if (!status) {
    const bool unsupported = status.error().id == kUnsupportedId;
    event.verdict = unsupported ? Verdict::kUnsupported : Verdict::kFailed;
    event.text = unsupported ? status.error().message : status.error().ToString();
  }
  if (!written.empty()) {
    event.text = event.verdict == Verdict::kFailed
                     ? fmt::format("{}; {}", event.text, WroteToStdout(written))
                     : WroteToStdout(written);
    event.verdict = Verdict::kFailed;
  }
  return event;
}

Status RunAll(const Flags& flags, std::span<const NamedTest> tests,
              const std::function<void(const Event&)>& tell) {
  RL_ASSIGN_OR_RETURN(StdoutCapture capture, StdoutCapture::Begin());
  RL_ASSIGN_OR_RETURN(Suite suite, OpenSuite(flags));
  RL_ASSIGN_OR_RETURN(const auto device, suite.Open());
  suite.written_while_opening = capture.Take();
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
    tell(EndOf(status, capture.Take()));
  }
  return OkStatus();
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
      return MakeError(ErrorKind::kUsage, "usage.option", "'{}' is no KEY=VALUE", option);
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
  if (const Status status = RunAll(flags, tests, tell); !status) {
    last.kind = Event::Kind::kError;
    last.error_kind = static_cast<int>(status.error().kind);
    last.error_id = status.error().id;
    last.text = status.error().message;
  }
  tell(last);
}

void AddOutputTests(std::vector<NamedTest>& tests) {
  tests.push_back({"Contract.stdout_is_left_alone", NothingWrittenWhileOpening});
}

}  // namespace rullama::conformance
