#include "cli/commands/drafter_summary.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "core/base/printable.h"
#include "core/base/size_text.h"
#include "engine/drafts/assistant_file.h"
#include "models/registry.h"

namespace rullama::cli {
namespace {

using nlohmann::json;

constexpr size_t kMaxDrafterText = 1024;  // of a name or an error

class NoNotices final : public Notices {
 public:
  void Note(std::string_view /*text*/) override {}
  void Warn(std::string_view /*text*/) override {}
};

json DrafterFacts(const AssistantFacts& facts, const std::string& path) {
  json drafter = {{"path", path},
                  {"layers", facts.layers},
                  {"width", facts.width},
                  {"target_width", facts.target_width},
                  {"head", facts.has_ordered_head() ? "ordered" : "dense"},
                  {"parameters", facts.parameters},
                  {"bytes", facts.bytes},
                  {"step_bytes", facts.step_bytes}};
  if (facts.has_ordered_head()) {
    drafter["clusters"] = facts.clusters;
    drafter["chosen_clusters"] = facts.chosen_clusters;
  }
  return drafter;
}

Result<json> ReadDrafter(const ModelFile& model, const std::string& named) {
  if (IsAssistant(*model.file)) {
    RL_ASSIGN_OR_RETURN(const AssistantFacts facts, DescribeAssistant(*model.file));
    return DrafterFacts(facts, model.file->path());
  }
  const auto opened = OpenModel(*model.file);
  if (!opened) return json();  // the command says why
  if (!named.empty()) {
    RL_ASSIGN_OR_RETURN(const AssistantFile file, OpenAssistant(named, **opened, HostHooks()));
    return DrafterFacts(file.assistant->facts(), file.name);
  }
  NoNotices ignored;
  const auto found = FindAssistant(model, **opened, HostHooks(), ignored);
  return found ? DrafterFacts(found->assistant->facts(), found->name) : json();
}

}  // namespace

json DrafterAsJson(const ModelFile& model, const std::string& named) {
  const auto drafter = ReadDrafter(model, named);
  if (drafter) return *drafter;
  return {{"reason", drafter.error().message}, {"code", drafter.error().id}};
}

std::string DrafterText(const json& drafter) {
  if (!drafter.is_object()) return {};
  if (drafter.contains("reason")) {
    return fmt::format("cannot be used: {} [{}]\n",
                       Printable(drafter["reason"].get<std::string>(), kMaxDrafterText),
                       drafter["code"].get<std::string>());
  }
  return fmt::format(
      "{}: for width {}, {} layers of width {}, {} head, {} parameters, {}; a guess "
      "reads {}\n",
      Printable(drafter["path"].get<std::string>(), kMaxDrafterText),
      drafter["target_width"].get<int64_t>(), drafter["layers"].get<int64_t>(),
      drafter["width"].get<int64_t>(), drafter["head"].get<std::string>(),
      ParametersText(drafter["parameters"].get<uint64_t>()),
      SizeText(drafter["bytes"].get<uint64_t>()), SizeText(drafter["step_bytes"].get<uint64_t>()));
}

}  // namespace rullama::cli
