#include "server/sampling_fields.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include "core/config/range.h"
#include "core/config/sampler_ranges.h"

namespace rullama::server {
namespace {

using nlohmann::json;

constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 256;
std::optional<double> ReadValue(FieldReader& fields, std::string_view name,
                                const RealRange& range) {
  return fields.Number(name, range);
}

std::optional<int64_t> ReadValue(FieldReader& fields, std::string_view name,
                                 const IntegerRange& range) {
  return fields.Integer(name, range.min, range.max);
}

template <typename Range, typename Value>
void ReadSetting(FieldReader& fields, std::string_view name, const Range& range,
                 std::optional<Value>& setting) {
  if (const auto value = ReadValue(fields, name, range)) setting = value;
}

// What clients of other servers send for "no limit".
bool IsMinusOne(const json* value) {
  return value != nullptr && value->is_number_integer() && *value == -1;
}

bool IsZero(const json* value) {
  return value != nullptr && value->is_number() && value->get<double>() == 0;
}

void CheckStopCount(FieldReader& fields, std::string_view name, const json& list) {
  if (list.size() <= kMaxStops) return;
  fields.Fail("invalid_value", name,
              fmt::format("has {} texts, expected at most {}", list.size(), kMaxStops));
}

void AddStop(FieldReader& fields, std::string_view place, const json& text,
             std::vector<std::string>& stops) {
  if (fields.error()) return;
  if (!text.is_string()) {
    return fields.Fail("invalid_type", place, "is neither a text nor a list of texts");
  }
  const size_t bytes = text.get_ref<const std::string&>().size();
  if (bytes == 0 || bytes > kMaxStopBytes) {
    return fields.Fail(
        "invalid_value", place,
        fmt::format("has a text of {} bytes, expected 1 to {}", bytes, kMaxStopBytes));
  }
  stops.push_back(text.get<std::string>());
}

}  // namespace

void ReadSampling(FieldReader& fields, SamplingOptions& sampling) {
  // The APIs allow 0, which leaves one token; the sampler takes probabilities above 0.
  const bool best_only = IsZero(fields.Find("top_p"));
  const bool one_typical = IsZero(fields.Find("typical_p"));
  const bool all_kept = IsMinusOne(fields.Find("top_k"));
  const auto is_special = [&](std::string_view name) {
    return (best_only && name == "top_p") || (one_typical && name == "typical_p") ||
           (all_kept && name == "top_k");
  };
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) \
  if (!is_special(#name)) ReadSetting(fields, #name, range, sampling.name);
#include "core/config/sampler_settings.def"
  if (all_kept) sampling.top_k = 0;
  if (best_only) {
    sampling.top_p.reset();
    sampling.top_k = 1;
  }
  if (one_typical) sampling.typical_p = std::numeric_limits<float>::min();
  sampling.seed = fields.Integer("seed");
}

int32_t ReadSlot(FieldReader& fields, int64_t slots) {
  return static_cast<int32_t>(fields.Integer("id_slot", -1, slots - 1).value_or(-1));
}

std::optional<int64_t> ReadMaxTokens(FieldReader& fields, std::string_view name, int64_t capacity) {
  if (IsMinusOne(fields.Find(name))) return capacity;
  return fields.Integer(name, 1);
}

void IgnoreSampling(FieldReader& fields) {
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) \
  fields.Ignore(#name);
#include "core/config/sampler_settings.def"
}

void ReadBias(FieldReader& fields, std::map<int32_t, float>& biases) {
  const json* found = fields.Object("logit_bias");
  if (found == nullptr) return;
  for (const auto& [name, value] : found->items()) {
    int32_t token = -1;
    const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), token);
    if (failure != std::errc() || end != name.data() + name.size() || token < 0) {
      return fields.Fail("invalid_value", "logit_bias", "has a key that is not a token id");
    }
    constexpr RealRange kRange = sampler_ranges::kLogitBias;
    if (!value.is_number() || !kRange.Contains(value.get<double>())) {
      return fields.Fail("invalid_value", "logit_bias",
                         "has a bias that is not " + kRange.Describe());
    }
    const auto bias = value.get<double>();
    const bool bans = bias == kRange.min;
    biases[token] = bans ? -std::numeric_limits<float>::infinity() : static_cast<float>(bias);
  }
}

void ReadStop(FieldReader& fields, std::vector<std::string>& stops) {
  const json* found = fields.Find("stop");
  if (found == nullptr) return;
  const json list = found->is_array() ? *found : json::array({*found});
  CheckStopCount(fields, "stop", list);
  for (const json& text : list) AddStop(fields, "stop", text, stops);
}

void ReadStopSequences(FieldReader& fields, std::vector<std::string>& stops) {
  constexpr std::string_view kName = "stop_sequences";
  const json* found = fields.Find(kName);
  if (found == nullptr) return;
  if (!found->is_array()) return fields.Fail("invalid_type", kName, "is not a list of texts");
  CheckStopCount(fields, kName, *found);
  for (size_t i = 0; i < found->size(); ++i) {
    AddStop(fields, fmt::format("{}[{}]", kName, i), (*found)[i], stops);
  }
}

std::vector<int32_t> ReadIds(FieldReader& fields, std::string_view name, const json& list) {
  std::vector<int32_t> ids;
  if (list.empty()) fields.Fail("invalid_value", name, "is an empty list; give at least one token");
  for (const json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > std::numeric_limits<int32_t>::max()) {
      fields.Fail("invalid_type", name, "has an element that is not a token id");
      break;
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace rullama::server
