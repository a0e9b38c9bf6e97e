#include "core/passes/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/ir/weight_uses.h"
#include "core/passes/decompose.h"
#include "core/passes/layers.h"

namespace rullama {
namespace {

class Placer {
 public:
  Placer(const SupportQuery& query, const PlacementPolicy& policy)
      : query_(query), policy_(policy) {}

  Result<Placement> Run(const Graph& graph) && {
    graph_ = graph;
    FindHostExperts();
    for (;;) {
      RL_RETURN_IF_ERROR(FindHomes());
      RL_RETURN_IF_ERROR(AskDevices());
      const std::vector<bool> refused = CompositesToDecompose();
      if (std::ranges::find(refused, true) == refused.end()) break;
      RL_ASSIGN_OR_RETURN(graph_, Decompose(graph_, refused));
    }
    std::vector<size_t> refused;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!Assign(i)) refused.push_back(i);
    }
    if (!refused.empty()) return Refused(refused);
    PullTowardsHost();
    report_.ops_per_device.assign(refusals_.size(), 0);
    for (const Op& op : graph_.ops) ++report_.ops_per_device[static_cast<size_t>(op.device)];
    return Placement{std::move(graph_), std::move(report_)};
  }

 private:
  // Whether there is a host other than the home of an op.
  [[nodiscard]] bool HasHost(size_t i) const {
    return policy_.host_device >= 0 && policy_.host_device != home_[i];
  }

  [[nodiscard]] const std::string& RefusalOf(int device, size_t i) const {
    return refusals_.at(static_cast<size_t>(device))[i];
  }
  // Why the home of an op refuses it; empty if it does not.
  [[nodiscard]] const std::string& HomeRefusal(size_t i) const { return RefusalOf(home_[i], i); }
  // The same of the host, if there is one.
  [[nodiscard]] const std::string& HostRefusal(size_t i) const {
    return RefusalOf(policy_.host_device, i);
  }

  [[nodiscard]] std::string NameOfDevice(int device) const {
    const auto index = static_cast<size_t>(device);
    if (index < policy_.device_names.size()) return policy_.device_names[index];
    return fmt::format("device {}", device);
  }

  [[nodiscard]] std::string NameOfOp(const Op& op) const {
    return graph_.value(op.results[0]).name;
  }

  // Before anything is decomposed, so that the mixtures of experts can be counted.
  void FindHostExperts() {
    int64_t left = policy_.host_device >= 0 ? policy_.host_expert_layers : 0;
    for (const Op& op : graph_.ops) {
      if (op.kind != OpKind::kMoeFfn || left == 0) continue;
      host_experts_.insert(NameOfOp(op));
      --left;
    }
  }

  Status FindHomes() {
    home_.assign(graph_.ops.size(), policy_.main_device);
    if (policy_.layer_devices.empty()) return OkStatus();
    RL_ASSIGN_OR_RETURN(const std::vector<size_t> layers, LayersOf(graph_, policy_.layer_outputs));
    const size_t last = policy_.layer_devices.size() - 1;
    for (size_t i = 0; i < home_.size(); ++i) {
      home_[i] = policy_.layer_devices[std::min(layers[i], last)];
    }
    return OkStatus();
  }

  Status AskDevices() {
    std::set<int> devices(policy_.layer_devices.begin(), policy_.layer_devices.end());
    if (devices.empty()) devices.insert(policy_.main_device);
    if (policy_.host_device >= 0) devices.insert(policy_.host_device);
    refusals_.resize(static_cast<size_t>(*devices.rbegin()) + 1);
    for (const int device : devices) {
      RL_RETURN_IF_ERROR(Ask(device, refusals_[static_cast<size_t>(device)]));
    }
    return OkStatus();
  }

  Status Ask(int device, std::vector<std::string>& refusals) {
    RL_ASSIGN_OR_RETURN(refusals, query_(device, graph_));
    if (refusals.size() == graph_.ops.size()) return OkStatus();
    return MakeError(ErrorKind::kBackend, "placement.query",
                     "{} answered for {} ops, the graph has {}", NameOfDevice(device),
                     refusals.size(), graph_.ops.size());
  }

  [[nodiscard]] bool IsListed(const Op& op) const {
    return std::ranges::find(policy_.host_ops, NameOf(op.kind)) != policy_.host_ops.end();
  }

  [[nodiscard]] bool MayRunOnHost(size_t i) const {
    if (!HasHost(i) || policy_.fallback == FallbackPolicy::kDeny) return false;
    return policy_.fallback == FallbackPolicy::kAllow || IsListed(graph_.ops[i]);
  }

  // The pattern of host_weights that matches a constant of the op; null if there is none.
  [[nodiscard]] const std::string* HostWeightOf(const Op& op) const {
    for (const ValueId input : op.inputs) {
      if (input == kNoValue || graph_.value(input).lifetime != Lifetime::kConstant) continue;
      for (const std::string& pattern : policy_.host_weights) {
        if (graph_.value(input).source.find(pattern) != std::string::npos) return &pattern;
      }
    }
    return nullptr;
  }

  [[nodiscard]] bool WantsHost(size_t i) const {
    return MayRunOnHost(i) && HostWeightOf(graph_.ops[i]) != nullptr;
  }

  [[nodiscard]] bool IsSentToHost(size_t i) const {
    const std::string name = NameOfOp(graph_.ops[i]);
    return HasHost(i) && (policy_.on_host.contains(name) || host_experts_.contains(name));
  }

  // A refused composite is decomposed, unless the user listed that very op for the host.
  std::vector<bool> CompositesToDecompose() {
    std::vector<bool> refused(graph_.ops.size(), false);
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      if (!HasDecomposition(op.kind) || HomeRefusal(i).empty()) continue;
      const bool may_stay_whole =
          WantsHost(i) || IsSentToHost(i) || (MayRunOnHost(i) && IsListed(op));
      if (may_stay_whole && HostRefusal(i).empty()) continue;
      refused[i] = true;
      report_.decomposed.push_back({NameOfOp(op), op.kind, HomeRefusal(i)});
    }
    return refused;
  }

  // False if no device may run the op.
  bool Assign(size_t i) {
    Op& op = graph_.ops[i];
    op.device = home_[i];
    if (IsSentToHost(i) && HostRefusal(i).empty()) {
      MoveToHost(op,
                 host_experts_.contains(NameOfOp(op))
                     ? fmt::format("placement.host_expert_layers is {}", policy_.host_expert_layers)
                     : "asked for");
      return true;
    }
    if (WantsHost(i) && HostRefusal(i).empty()) {
      MoveToHost(op,
                 fmt::format("reads a weight of placement.host_weights '{}'", *HostWeightOf(op)));
      return true;
    }
    if (HomeRefusal(i).empty()) return true;
    if (!MayRunOnHost(i) || !HostRefusal(i).empty()) return false;
    MoveToHost(op, HomeRefusal(i));
    return true;
  }

  void MoveToHost(Op& op, std::string reason) {
    op.device = policy_.host_device;
    report_.moved_to_host.push_back({NameOfOp(op), op.kind, std::move(reason)});
  }

  // About the first of these ops in full, and the kinds of the others.
  [[nodiscard]] tl::unexpected<Error> Refused(const std::vector<size_t>& refused) const {
    const Op& op = graph_.ops[refused.front()];
    std::vector<std::string_view> kinds;  // in the order of the graph
    std::string others;
    for (const size_t i : refused) {
      const std::string_view kind = NameOf(graph_.ops[i].kind);
      if (std::ranges::find(kinds, kind) != kinds.end()) continue;
      if (!kinds.empty()) others += fmt::format(", {} ({})", kind, HomeRefusal(i));
      kinds.push_back(kind);
    }
    if (!others.empty()) others = fmt::format("; refused as well: {}", others.substr(2));
    others += PartsText(refused);
    return MakeError(ErrorKind::kBackend, "placement.refused",
                     "op '{}' ({}) is refused by {}: {}{}; {}", NameOfOp(op), NameOf(op.kind),
                     NameOfDevice(home_[refused.front()]), HomeRefusal(refused.front()), others,
                     AdviceFor(refused, kinds));
  }

  [[nodiscard]] std::string AdviceFor(const std::vector<size_t>& refused,
                                      const std::vector<std::string_view>& kinds) const {
    for (const size_t i : refused) {
      const auto dtype = UndecodedConstant(graph_, graph_.ops[i]);
      if (!dtype) continue;
      return fmt::format(
          "no backend of this version decodes {}; take a file with other types, such as Q4_K_M",
          NameOf(*dtype));
    }
    return AdviceFor(refused.front(), kinds);
  }

  // The composites whose parts some of these ops are: they are what a backend should run.
  [[nodiscard]] std::string PartsText(const std::vector<size_t>& refused) const {
    std::vector<std::string_view> wholes, parts;
    const auto add = [](std::vector<std::string_view>& kinds, OpKind kind) {
      if (std::ranges::find(kinds, NameOf(kind)) == kinds.end()) kinds.push_back(NameOf(kind));
    };
    for (const size_t i : refused) {
      const std::string name = NameOfOp(graph_.ops[i]);
      // Parts are named after their whole, and the last one as it; outer composites come first.
      const auto whole = std::ranges::find_if(
          report_.decomposed, [&name](const PlacementReport::Decision& decision) {
            return name == decision.op || name.starts_with(decision.op + "/");
          });
      if (whole == report_.decomposed.end()) continue;
      add(wholes, whole->kind);
      add(parts, graph_.ops[i].kind);
    }
    if (wholes.empty()) return {};
    return fmt::format("; {} {} of {}, which {} refused whole", fmt::join(parts, ", "),
                       parts.size() == 1 ? "is a part" : "are parts", fmt::join(wholes, ", "),
                       wholes.size() == 1 ? "is" : "are");
  }

  [[nodiscard]] std::string AdviceFor(size_t i, const std::vector<std::string_view>& kinds) const {
    if (policy_.fallback == FallbackPolicy::kDeny) {
      return fmt::format(
          "set placement.fallback to 'list', with '{}' in placement.host_ops, or to 'allow' to let "
          "the host run these ops, or choose another backend",
          fmt::join(kinds, "', '"));
    }
    if (!HasHost(i)) return "no host device is open that could take it; choose another backend";
    if (!MayRunOnHost(i)) {
      return fmt::format(
          "add '{}' to placement.host_ops or set placement.fallback to 'allow' to let the host run "
          "these ops",
          fmt::join(kinds, "', '"));
    }
    return fmt::format("the host ({}) refuses it too: {}; choose another backend",
                       NameOfDevice(policy_.host_device), HostRefusal(i));
  }

  // Moves ops on small integers to the host if they depend on inputs of the step and feed host ops
  // (such as selecting the wanted token ids for an embedding). On the main device each would cost a
  // round trip between the devices.
  void PullTowardsHost() {
    if (policy_.host_device < 0 || policy_.fallback == FallbackPolicy::kDeny) return;
    std::vector<bool> feeds_host(graph_.values.size(), false);
    for (size_t i = graph_.ops.size(); i-- > 0;) {
      Op& op = graph_.ops[i];
      if (op.device != policy_.host_device && feeds_host[op.results[0]] && IsIndexWork(op) &&
          HostRefusal(i).empty()) {
        MoveToHost(op, "feeds an op on the host");
      }
      if (op.device != policy_.host_device) continue;
      for (const ValueId input : op.inputs) {
        if (input != kNoValue) feeds_host[input] = true;
      }
    }
  }

  [[nodiscard]] bool IsIndexWork(const Op& op) const {
    const auto is_input = [&](ValueId id) {
      return id != kNoValue && graph_.value(id).lifetime == Lifetime::kInput;
    };
    const bool integers = graph_.type(op.results[0]).dtype == DType::kI32;
    return integers && op.results.size() == 1 && std::ranges::all_of(op.inputs, is_input);
  }

  const SupportQuery& query_;
  const PlacementPolicy& policy_;
  Graph graph_;
  std::set<std::string, std::less<>> host_experts_;  // names of first results
  std::vector<int> home_;                            // by op
  std::vector<std::vector<std::string>> refusals_;   // by device, which may not have been asked
  PlacementReport report_;
};

}  // namespace

Result<Placement> PlaceOps(const Graph& graph, const SupportQuery& query,
                           const PlacementPolicy& policy) {
  return Placer(query, policy).Run(graph);
}

}  // namespace rullama
