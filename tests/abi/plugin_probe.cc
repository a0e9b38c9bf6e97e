// plugin_probe FILE NAME: loads a plugin, checks its name, and runs the graph y = -copy(x) on its
// first device twice. Exit code 0 if all of it worked.
#include <fmt/format.h>

#include <array>
#include <cstdio>

#include "core/plugin/call_guard.h"
#include "core/plugin/device.h"

namespace rullama {
namespace {

Graph NegateGraph() {
  Graph graph;
  graph.name = "probe";
  graph.max_t = 2;
  for (const auto& [name, lifetime] :
       {std::pair("x", Lifetime::kInput), std::pair("c", Lifetime::kTransient),
        std::pair("y", Lifetime::kTransient)}) {
    Value value;
    value.name = name;
    value.lifetime = lifetime;
    value.type = TensorType(DType::kF32, {Dim::T(), 2});
    graph.values.push_back(value);
  }
  rl_unary_attrs negate{};
  negate.fn = RL_UNARY_NEG;
  graph.ops.push_back({OpKind::kCopy, {0}, {1}, OpAttrs(OpKind::kCopy)});
  graph.ops.push_back({OpKind::kUnary, {1}, {2}, OpAttrs(negate)});
  graph.outputs.push_back({"y", 2});
  return graph;
}

Status Expect(bool condition, std::string_view what) {
  if (condition) return OkStatus();
  return MakeError(ErrorKind::kThreshold, "probe.failed", "expected {}", what);
}

Status Probe(const std::string& file, std::string_view name) {
  const auto host = std::make_shared<PluginHost>(HostOptions{});
  RL_ASSIGN_OR_RETURN(const auto plugin, Plugin::Load(file, host));
  RL_RETURN_IF_ERROR(Expect(plugin->name() == name, fmt::format("the name {}", name)));
  {
    RL_ASSIGN_OR_RETURN(const auto device, plugin->Open(0, {}));
    const Graph graph = NegateGraph();
    RL_ASSIGN_OR_RETURN(const auto support, device->QueryOps(graph));
    for (const OpSupport& op : support) RL_RETURN_IF_ERROR(Expect(op.supported, "copy and neg"));
    constexpr uint64_t kValueBytes = 16;
    RL_ASSIGN_OR_RETURN(const auto buffer, device->CreateBuffer(3 * kValueBytes, RL_BUFFER_ARENA));
    std::vector<Storage> storage(graph.values.size());
    for (size_t i = 0; i < storage.size(); ++i) {
      storage[i].buffer = buffer.get();
      storage[i].offset = i * kValueBytes;
      storage[i].bytes = kValueBytes;
    }
    RL_ASSIGN_OR_RETURN(const auto plan, device->Compile(graph, storage));
    for (const float factor : {1.0F, 2.0F}) {
      const std::array<float, 4> in = {factor, -2.0F * factor, 0.5F, 8.0F};
      std::array<float, 4> out{};
      RL_RETURN_IF_ERROR(device->Write(buffer, 0, std::as_bytes(std::span(in))));
      RL_RETURN_IF_ERROR(device->Execute(plan, {2, 1}));
      RL_RETURN_IF_ERROR(device->Wait());
      RL_RETURN_IF_ERROR(
          device->Read(buffer, 2 * kValueBytes, std::as_writable_bytes(std::span(out))));
      for (size_t i = 0; i < in.size(); ++i) {
        RL_RETURN_IF_ERROR(Expect(out[i] == -in[i], "y = -x"));
      }
    }
    RL_ASSIGN_OR_RETURN(const rl_plan_stats stats, device->Stats(plan));
    RL_RETURN_IF_ERROR(Expect(stats.executions == 2, "2 executions"));
  }
  plugin->Shutdown();
  return OkStatus();
}

}  // namespace
}  // namespace rullama

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: plugin_probe FILE NAME\n", stderr);
    return static_cast<int>(rullama::ErrorKind::kUsage);
  }
  rullama::InstallTerminateHandler();
  const rullama::Status status = rullama::Probe(argv[1], argv[2]);
  if (status) return 0;
  std::fputs(fmt::format("{}\n", status.error().ToString()).c_str(), stderr);
  return static_cast<int>(status.error().kind);
}
