#include "models/gemma4/drafter/assistant.h"

#include <utility>

#include "models/gemma4/drafter/drafter_file.h"
#include "models/gemma4/drafter/partner.h"

namespace rullama::gemma4 {
namespace {

class Gemma4Assistant final : public Assistant {
 public:
  explicit Gemma4Assistant(DrafterFile drafter)
      : Assistant(drafter.facts, std::move(drafter.warnings)) {}
};

}  // namespace

Result<std::unique_ptr<Assistant>> ReadAssistant(const GgufFile& file, AssistantOrigin origin) {
  RL_ASSIGN_OR_RETURN(DrafterFile drafter, ReadDrafter(file, origin));
  return std::make_unique<Gemma4Assistant>(std::move(drafter));
}

Result<std::unique_ptr<Assistant>> ReadAssistant(const GgufFile& file, AssistantOrigin origin,
                                                 const Gemma4Config& target) {
  RL_ASSIGN_OR_RETURN(DrafterFile drafter, ReadDrafter(file, origin));
  RL_RETURN_IF_ERROR(CheckPartner(drafter.config, target));
  return std::make_unique<Gemma4Assistant>(std::move(drafter));
}

}  // namespace rullama::gemma4
