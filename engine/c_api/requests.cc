#include "engine/c_api/requests.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error_of.h"
#include "engine/c_api/versioned_struct.h"

namespace rullama::c_api {
namespace {

// The sizes of version 1.0: up to the end of its last member.
constexpr size_t kOptionsSize = offsetof(rullama_engine_options, log_data) + sizeof(void*);
constexpr size_t kRequestSize = offsetof(rullama_request, reserved) + sizeof(uint32_t);

using BadArgument = ErrorOf<ErrorKind::kUsage, "usage.argument">;

std::string StringOr(const char* text) { return text == nullptr ? std::string() : text; }

Result<std::vector<std::string>> StringsOf(const char* const* texts, size_t count,
                                           std::string_view name) {
  std::vector<std::string> strings;
  RL_ASSIGN_OR_RETURN(const auto list, SpanOf(texts, count, name));
  strings.reserve(list.size());
  for (const char* text : list) {
    if (text == nullptr) return BadArgument("{}[{}] is NULL", name, strings.size());
    strings.emplace_back(text);
  }
  return strings;
}

// Nothing for RULLAMA_DEFAULT.
Result<std::optional<bool>> SwitchOf(int32_t value, std::string_view name) {
  switch (value) {
    case RULLAMA_DEFAULT:
      return std::nullopt;
    case RULLAMA_ON:
      return true;
    case RULLAMA_OFF:
      return false;
    default:
      return BadArgument("{} is {}, expected RULLAMA_DEFAULT, RULLAMA_ON or RULLAMA_OFF", name,
                         value);
  }
}

// Leaves `to` as it is for RULLAMA_DEFAULT.
Status SetSwitch(int32_t value, std::string_view name, bool& to) {
  RL_ASSIGN_OR_RETURN(const auto given, SwitchOf(value, name));
  to = given.value_or(to);
  return OkStatus();
}

Status CheckReserved(uint32_t reserved, std::string_view name) {
  if (reserved == 0) return OkStatus();
  return BadArgument("{} is {}, expected 0", name, reserved);
}

Status SetForm(const rullama_request& from, Request& to) {
  to.json_schema = StringOr(from.json_schema);
  RL_ASSIGN_OR_RETURN(to.allowed_tools,
                      StringsOf(from.allowed_tools, from.allowed_tool_count, "allowed_tools"));
  if (from.tool_choice < RULLAMA_TOOLS_AUTO || from.tool_choice > RULLAMA_TOOLS_REQUIRED) {
    return BadArgument(
        "tool_choice is {}, expected RULLAMA_TOOLS_AUTO, RULLAMA_TOOLS_NONE or "
        "RULLAMA_TOOLS_REQUIRED",
        from.tool_choice);
  }
  to.tool_choice = static_cast<ToolChoice>(from.tool_choice);
  return SetSwitch(from.parallel_tool_calls, "parallel_tool_calls", to.parallel_tool_calls);
}

// A text of a struct, where a size of 0 means "up to the zero byte".
Result<std::string_view> MemberTextOf(const char* text, size_t size, std::string_view name) {
  return TextOf(text, text != nullptr && size == 0 ? RULLAMA_TERMINATED : size, name);
}

Status SetTurns(const rullama_request& from, Request& to) {
  RL_ASSIGN_OR_RETURN(const auto turns, SpanOf(from.turns, from.turn_count, "turns"));
  for (const rullama_turn& turn : turns) {
    RL_RETURN_IF_ERROR(NeedPointer(turn.role, "role of a turn"));
    RL_RETURN_IF_ERROR(NeedPointer(turn.text, "text of a turn"));
    RL_ASSIGN_OR_RETURN(const std::string_view text,
                        MemberTextOf(turn.text, turn.text_size, "text of a turn"));
    to.turns.push_back({.role = turn.role, .text = std::string(text)});
  }
  return OkStatus();
}

Status SetPrompt(const rullama_request& from, Request& to) {
  to.messages = StringOr(from.messages);
  to.tools = StringOr(from.tools);
  RL_RETURN_IF_ERROR(SetTurns(from, to));
  RL_ASSIGN_OR_RETURN(const std::string_view prompt,
                      MemberTextOf(from.prompt, from.prompt_size, "prompt"));
  to.prompt = prompt;
  RL_ASSIGN_OR_RETURN(const auto ids, SpanOf(from.ids, from.id_count, "ids"));
  to.ids.assign(ids.begin(), ids.end());
  RL_ASSIGN_OR_RETURN(to.thinking, SwitchOf(from.thinking, "thinking"));
  return OkStatus();
}

Status SetMedia(const rullama_request& from, Request& to) {
  RL_ASSIGN_OR_RETURN(const auto media, SpanOf(from.media, from.media_count, "media"));
  for (const rullama_medium& medium : media) {
    if (medium.kind != RULLAMA_PICTURE && medium.kind != RULLAMA_SOUND) {
      return BadArgument("media[{}].kind is {}, expected RULLAMA_PICTURE or RULLAMA_SOUND",
                         to.media.size(), medium.kind);
    }
    RL_ASSIGN_OR_RETURN(const auto bytes, SpanOf(static_cast<const char*>(medium.bytes),
                                                 medium.size, "bytes of a medium"));
    to.media.push_back({.kind = static_cast<MediaKind>(medium.kind),
                        .path = StringOr(medium.path),
                        .bytes = std::string(bytes.begin(), bytes.end()),
                        .image_tokens = medium.image_tokens});
  }
  return OkStatus();
}

// The struct only grows at its end, so it need not have a member for each setting. Those without
// one are as configured.
template <typename CRequest>
void SetNumbers(const CRequest& from, SamplingOptions& to) {
#define RL_SAMPLER_SETTING(Type, name, value_, off, range, key, flag, help, doc) \
  if constexpr (requires { from.name; }) {                                       \
    if (from.name.given != 0) to.name = from.name.value;                         \
  }
#include "core/config/sampler_settings.def"
}

Status SetSampling(const rullama_request& from, SamplingOptions& to) {
  SetNumbers(from, to);
  if (from.seed.given != 0) to.seed = from.seed.value;
  RL_ASSIGN_OR_RETURN(const auto biases,
                      SpanOf(from.logit_bias, from.logit_bias_count, "logit_bias"));
  for (const rullama_logit_bias& bias : biases) to.logit_bias[bias.token] = bias.bias;
  return OkStatus();
}

}  // namespace

Result<std::string_view> TextOf(const char* text, size_t size, std::string_view name) {
  if (size > 0) RL_RETURN_IF_ERROR(NeedPointer(text, name));
  return size == RULLAMA_TERMINATED ? std::string_view(text) : std::string_view(text, size);
}

Result<EngineOptions> OptionsOf(const rullama_engine_options* options) {
  RL_ASSIGN_OR_RETURN(const rullama_engine_options from,
                      ReadStruct(options, kOptionsSize, "rullama_engine_options"));
  RL_RETURN_IF_ERROR(CheckReserved(from.reserved, "rullama_engine_options.reserved"));
  EngineOptions to;
  to.model = StringOr(from.model);
  to.backend = StringOr(from.backend);
  to.config_file = StringOr(from.config_file);
  RL_ASSIGN_OR_RETURN(const auto settings, SpanOf(from.settings, from.setting_count, "settings"));
  for (const rullama_setting& setting : settings) {
    RL_RETURN_IF_ERROR(NeedPointer(setting.key, "key of a setting"));
    RL_RETURN_IF_ERROR(NeedPointer(setting.value, setting.key));
    to.settings.push_back({setting.key, setting.value});
  }
  RL_ASSIGN_OR_RETURN(to.plugin_paths,
                      StringsOf(from.plugin_paths, from.plugin_path_count, "plugin_paths"));
  RL_ASSIGN_OR_RETURN(to.adapters, StringsOf(from.adapters, from.adapter_count, "adapters"));
  if (from.log != nullptr) {
    to.log = [log = from.log, data = from.log_data](LogLevel level, std::string_view text) {
      log(data, static_cast<rullama_log_level>(level), std::string(text).c_str());
    };
  }
  return to;
}

Result<Request> RequestOf(const rullama_request* request) {
  RL_ASSIGN_OR_RETURN(const rullama_request from,
                      ReadStruct(request, kRequestSize, "rullama_request"));
  RL_RETURN_IF_ERROR(CheckReserved(from.reserved, "rullama_request.reserved"));
  RL_RETURN_IF_ERROR(CheckReserved(from.reserved2, "rullama_request.reserved2"));
  Request to;
  RL_RETURN_IF_ERROR(SetPrompt(from, to));
  RL_RETURN_IF_ERROR(SetForm(from, to));
  RL_RETURN_IF_ERROR(SetMedia(from, to));
  RL_RETURN_IF_ERROR(SetSampling(from, to.sampling));
  if (from.max_tokens.given != 0) to.max_tokens = from.max_tokens.value;
  if (from.top_logprobs.given != 0) {
    const int64_t top = from.top_logprobs.value;
    if (top < 0 || top > std::numeric_limits<int32_t>::max()) {
      return BadArgument("top_logprobs is {}, expected 0 to 20", top);
    }
    to.top_logprobs = static_cast<int32_t>(top);
  }
  if (from.slot.given != 0) {
    const int64_t slot = from.slot.value;
    if (slot < 0 || slot > std::numeric_limits<int32_t>::max()) {
      return BadArgument("slot is {}, expected 0 or more", slot);
    }
    to.slot = static_cast<int32_t>(slot);
  }
  RL_ASSIGN_OR_RETURN(to.stop, StringsOf(from.stop, from.stop_count, "stop"));
  RL_RETURN_IF_ERROR(SetSwitch(from.reuse_prefix, "reuse_prefix", to.reuse_prefix));
  RL_RETURN_IF_ERROR(SetSwitch(from.reuse_answers, "reuse_answers", to.reuse_answers));
  RL_RETURN_IF_ERROR(SetSwitch(from.drafts, "drafts", to.drafts));
  RL_RETURN_IF_ERROR(SetSwitch(from.ignore_end, "ignore_end", to.ignore_end));
  return to;
}

static_assert(RULLAMA_TOOLS_AUTO == static_cast<int>(ToolChoice::kAuto) &&
              RULLAMA_TOOLS_NONE == static_cast<int>(ToolChoice::kNone) &&
              RULLAMA_TOOLS_REQUIRED == static_cast<int>(ToolChoice::kRequired));
static_assert(RULLAMA_PICTURE == static_cast<int>(MediaKind::kPicture) &&
              RULLAMA_SOUND == static_cast<int>(MediaKind::kSound));
static_assert(RULLAMA_LOG_ERROR == static_cast<int>(LogLevel::kError) &&
              RULLAMA_LOG_WARNING == static_cast<int>(LogLevel::kWarning) &&
              RULLAMA_LOG_NOTE == static_cast<int>(LogLevel::kNote));

Result<EmbeddingOptions> EmbeddingOptionsOf(const rullama_embedding_options* options) {
  RL_ASSIGN_OR_RETURN(const auto given,
                      ReadStruct(options, sizeof(rullama_embedding_options), "options"));
  RL_RETURN_IF_ERROR(CheckReserved(given.reserved, "reserved"));
  return EmbeddingOptions{.task = StringOr(given.task), .dimensions = given.dimensions};
}

}  // namespace rullama::c_api
