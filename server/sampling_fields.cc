#include "server/sampling_fields.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace rullama::server {
namespace {

using nlohmann::json;

constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 256;
constexpr size_t kMaxBiases = 1024;
// A bias that bans, and the largest one.
constexpr double kMaxBias = 100;

struct NumberField {
  std::string_view name;
  double low;
  double high;
  std::optional<double> SamplingOptions::*member;
};
constexpr std::array<NumberField, 7> kNumbers = {{
    {"temperature", 0, 100, &SamplingOptions::temperature},
    {"top_p", 0, 1, &SamplingOptions::top_p},
    {"min_p", 0, 1, &SamplingOptions::min_p},
    {"typical_p", 0, 1, &SamplingOptions::typical_p},
    {"repeat_penalty", 0, 100, &SamplingOptions::repeat_penalty},
    {"frequency_penalty", -2, 2, &SamplingOptions::frequency_penalty},
    {"presence_penalty", -2, 2, &SamplingOptions::presence_penalty},
}};

struct IntegerField {
  std::string_view name;
  int64_t low;
  int64_t high;
  std::optional<int64_t> SamplingOptions::*member;
};
constexpr std::array<IntegerField, 2> kIntegers = {{
    {"top_k", 0, std::numeric_limits<int32_t>::max(), &SamplingOptions::top_k},
    {"repeat_last_n", -1, std::numeric_limits<int32_t>::max(), &SamplingOptions::repeat_last_n},
}};

}  // namespace

void ReadSampling(FieldReader& fields, SamplingOptions& sampling) {
  for (const NumberField& row : kNumbers) {
    if (const auto value = fields.Number(row.name, row.low, row.high)) sampling.*row.member = value;
  }
  for (const IntegerField& row : kIntegers) {
    if (const auto value = fields.Integer(row.name, row.low, row.high)) {
      sampling.*row.member = value;
    }
  }
  // No probability is left to all but the best token.
  if (sampling.top_p == 0) {
    sampling.top_p.reset();
    sampling.top_k = 1;
  }
  sampling.seed = fields.Integer("seed");
}

void IgnoreSampling(FieldReader& fields) {
  for (const NumberField& row : kNumbers) fields.Ignore(row.name);
  for (const IntegerField& row : kIntegers) fields.Ignore(row.name);
}

void ReadBias(FieldReader& fields, std::map<int32_t, float>& biases) {
  const json* found = fields.Object("logit_bias");
  if (found == nullptr) return;
  if (found->size() > kMaxBiases) {
    return fields.Fail(
        "invalid_value", "logit_bias",
        fmt::format("has {} entries, expected at most {}", found->size(), kMaxBiases));
  }
  for (const auto& [name, value] : found->items()) {
    int32_t token = -1;
    const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), token);
    if (failure != std::errc() || end != name.data() + name.size() || token < 0) {
      return fields.Fail("invalid_value", "logit_bias", "has a key that is no token id");
    }
    if (!value.is_number() || std::abs(value.get<double>()) > kMaxBias) {
      return fields.Fail("invalid_value", "logit_bias", "has a bias that is not -100 to 100");
    }
    const auto bias = value.get<float>();
    biases[token] = bias <= -kMaxBias ? -std::numeric_limits<float>::infinity() : bias;
  }
}

void ReadStop(FieldReader& fields, std::vector<std::string>& stops) {
  const json* found = fields.Find("stop");
  if (found == nullptr) return;
  const json list = found->is_array() ? *found : json::array({*found});
  if (list.size() > kMaxStops) {
    return fields.Fail("invalid_value", "stop",
                       fmt::format("has {} texts, expected at most {}", list.size(), kMaxStops));
  }
  for (const json& text : list) {
    if (!text.is_string()) {
      return fields.Fail("invalid_type", "stop", "is no text and no list of texts");
    }
    const size_t bytes = text.get_ref<const std::string&>().size();
    if (bytes == 0 || bytes > kMaxStopBytes) {
      return fields.Fail(
          "invalid_value", "stop",
          fmt::format("has a text of {} bytes, expected 1 to {}", bytes, kMaxStopBytes));
    }
    stops.push_back(text.get<std::string>());
  }
}

std::vector<int32_t> ReadIds(FieldReader& fields, std::string_view name, const json& list) {
  std::vector<int32_t> ids;
  if (list.empty()) fields.Fail("invalid_value", name, "is an empty list; give at least one token");
  for (const json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > std::numeric_limits<int32_t>::max()) {
      fields.Fail("invalid_type", name, "has an element that is no token id");
      break;
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace rullama::server
