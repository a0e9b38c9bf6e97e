#include "cli/chat/chat_settings.h"

#include <charconv>
#include <cstdint>
#include <limits>
#include <system_error>

namespace rullama::cli {
namespace {

template <typename T>
Result<T> NumberOf(std::string_view name, std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, value);
  if (fault == std::errc() && stop == end) return value;
  return MakeError(ErrorKind::kUsage, "chat.setting", "write /set {} {}", name,
                   std::numeric_limits<T>::is_integer ? "and a whole number" : "and a number");
}

}  // namespace

Result<bool> SetAnswerSetting(std::string_view name, std::string_view text,
                              const ModelSession& session, Request& request) {
  const int64_t vocabulary = session.model().facts().vocabulary;
  SamplerSettings changed = session.sampler();
#define RL_SAMPLER_SETTING(Type, setting, value, off, range, key, flag, help, doc) \
  if (name == #setting) {                                                          \
    RL_ASSIGN_OR_RETURN(changed.setting, NumberOf<Type>(name, text));              \
    RL_RETURN_IF_ERROR(changed.Validate(vocabulary));                              \
    request.sampling.setting = changed.setting;                                    \
    return true;                                                                   \
  }
#include "core/config/sampler_settings.def"
  if (name == "seed") {
    RL_ASSIGN_OR_RETURN(const int64_t seed, NumberOf<int64_t>(name, text));
    if (seed < 0) {
      return MakeError(ErrorKind::kUsage, "chat.setting", "the seed is {}, expected 0 or more",
                       seed);
    }
    request.sampling.seed = seed;
    return true;
  }
  if (name == "num_predict") {
    RL_ASSIGN_OR_RETURN(const int64_t most, NumberOf<int64_t>(name, text));
    request.max_tokens = most < 0 ? std::numeric_limits<int64_t>::max() : most;
    return true;
  }
  return false;
}

}  // namespace rullama::cli
