// The parts that the tests of tests/fakes share: the fakes' files, a scripted environment, a host
// whose log can be read, and a graph of copies.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/plugin/device.h"

namespace rullama::testing {

inline std::filesystem::path FakeFile(const std::string& name) {
  return std::filesystem::path(RULLAMA_FAKES_DIR) / ("librullama_backend_" + name + ".so");
}

// Sets a variable for a scope.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

// A host that logs into a string and keeps no cache.
class TestHost {
 public:
  // `patience` is that with plugins and with devices.
  explicit TestHost(std::chrono::milliseconds patience = kPluginPatience) {
    HostOptions options;
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(log_, true);
    options.logger = std::make_shared<spdlog::logger>("test", std::move(sink));
    options.logger->set_level(spdlog::level::debug);
    options.cache_directory.clear();
    options.patience = patience;
    options.device_patience = patience;
    host_ = std::make_shared<PluginHost>(std::move(options));
  }
  [[nodiscard]] const std::shared_ptr<PluginHost>& get() const { return host_; }
  [[nodiscard]] std::string log() const { return log_.str(); }

 private:
  std::ostringstream log_;
  std::shared_ptr<PluginHost> host_;
};

// count copies of f32[4]: in -> v1 -> v2 ...
inline Graph CopyGraph(int count) {
  Graph graph;
  graph.name = "copies";
  const auto add_value = [&graph](Lifetime lifetime) {
    Value value;
    value.type = TensorType(DType::kF32, {4});
    value.lifetime = lifetime;
    value.name = "v" + std::to_string(graph.values.size());
    graph.values.push_back(value);
    return static_cast<ValueId>(graph.values.size() - 1);
  };
  ValueId last = add_value(Lifetime::kInput);
  for (int i = 0; i < count; ++i) {
    const ValueId next = add_value(Lifetime::kTransient);
    graph.ops.push_back({OpKind::kCopy, {last}, {next}, OpAttrs(OpKind::kCopy)});
    last = next;
  }
  graph.outputs.push_back({"out", last});
  return graph;
}

// Storage of a copy graph: one after another in `buffer`.
inline std::vector<Storage> StorageOf(const Graph& graph, const DeviceBuffer& buffer) {
  std::vector<Storage> storage;
  for (const Value& value : graph.values) {
    Storage place;
    place.buffer = buffer.get();
    place.bytes = value.type.BytesAt({});
    place.offset = storage.size() * place.bytes;
    storage.push_back(place);
  }
  return storage;
}

// A plugin file loaded under a script; the script holds as long as the object.
class Scripted {
 public:
  explicit Scripted(const std::string& script) : script_("RULLAMA_FAKE", script) {}
  [[nodiscard]] Result<std::shared_ptr<Plugin>> Load() const {
    return Plugin::Load(FakeFile("fake"), host_.get());
  }
  [[nodiscard]] const TestHost& host() const { return host_; }

 private:
  ScopedVariable script_;
  TestHost host_;
};

// Expects an error of this id whose message contains all of `parts`.
template <typename T>
void ExpectError(const Result<T>& result, std::string_view id,
                 const std::vector<std::string>& parts) {
  ASSERT_FALSE(result.has_value()) << "expected " << id;
  EXPECT_EQ(result.error().id, id) << result.error().message;
  for (const std::string& part : parts) {
    EXPECT_THAT(result.error().message, ::testing::HasSubstr(part));
  }
}

}  // namespace rullama::testing
