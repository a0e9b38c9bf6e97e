#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/base/printable.h"
#include "server/answer_parts.h"
#include "server/answer_run.h"
#include "server/anthropic/messages_request.h"
#include "server/endpoints.h"
#include "server/http/query.h"

namespace rullama::server {
namespace {

using nlohmann::json;

constexpr int64_t kMaxListed = 1000;

// A version is a date; every one is the same here.
std::optional<ApiError> WrongVersion(const Call& call) {
  const std::string& version = call.request().anthropic_version;
  constexpr std::string_view kForm = "0000-00-00";
  const auto fits = [](char c, char form) {
    return form == '0' ? c >= '0' && c <= '9' : c == form;
  };
  if (version.empty() || std::ranges::equal(version, kForm, fits)) return std::nullopt;
  return MakeApiError("invalid_value",
                      fmt::format("the field anthropic-version is '{}', expected a date such as "
                                  "2023-06-01",
                                  ShownName(version.substr(0, 64))),
                      "anthropic-version");
}

json AnthropicEntry(const ServedModel& model) {
  const int64_t tokens = model.info.capacity > 0 ? model.info.capacity : model.info.context_length;
  return {{"type", "model"},
          {"id", model.id},
          {"display_name", model.id},
          {"created_at", TimeText(int64_t{model.time} * 1'000'000'000)},
          {"max_input_tokens", tokens},
          {"max_tokens", tokens}};
}

ApiResult<int64_t> LimitIn(std::string_view query) {
  const auto text = QueryValue(query, "limit");
  if (!text) return kMaxListed;
  int64_t limit = 0;
  const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), limit);
  const bool whole = failure == std::errc() && end == text->data() + text->size();
  if (whole && limit >= 1 && limit <= kMaxListed) return limit;
  return tl::unexpected(MakeApiError(
      "invalid_value", fmt::format("'limit' is not a number from 1 to {}", kMaxListed), "limit"));
}

}  // namespace

void Messages(const Services& services, Call& call) {
  if (const auto error = WrongVersion(call)) return call.Fail(*error);
  auto loaded = LoadRequest(services, call, ReadMessagesRequest);
  if (!loaded) return call.Fail(loaded.error());
  MessagesRequest& request = loaded->request;
  const auto format = MakeMessagesFormat(
      IdentityOf(services, loaded->model),
      {.omits_thoughts = request.omits_thoughts, .edits_context = request.edits_context});
  RunAnswer(services, call, *loaded->model.engine, request.answer, *format);
}

void MessagesCountTokens(const Services& services, Call& call) {
  if (const auto error = WrongVersion(call)) return call.Fail(*error);
  const auto loaded = LoadRequest(services, call, ReadCountedRequest);
  if (!loaded) return call.Fail(loaded.error());
  const AnswerRequest& request = loaded->request.answer;
  const auto tokens = CountPromptTokens(call, *loaded->model.engine, request);
  if (!tokens) return call.Fail(tokens.error());
  call.SendJson({{"input_tokens", *tokens}}, request.ignored);
}

void ListAnthropicModels(const Services& services, Call& call) {
  if (const auto error = WrongVersion(call)) return call.Fail(*error);
  const std::string& query = call.request().query;
  const auto limit = LimitIn(query);
  if (!limit) return call.Fail(limit.error());
  std::vector<ModelState> models = services.models.All();
  const auto find = [&models](const std::optional<std::string>& id) {
    return id ? std::ranges::find_if(models,
                                     [&](const ModelState& state) { return state.model.id == *id; })
              : models.end();
  };
  const auto after = find(QueryValue(query, "after_id"));
  const auto before = find(QueryValue(query, "before_id"));
  auto first = after == models.end() ? models.begin() : after + 1;
  auto last = std::max(first, before);
  const bool more = last - first > *limit;
  // The page that ends where `before` stands, else the one that begins after `after`.
  if (more && before != models.end()) first = last - *limit;
  if (more && before == models.end()) last = first + *limit;
  json entries = json::array();
  for (; first != last; ++first) entries.push_back(AnthropicEntry(first->model));
  const auto id_of = [](const json& entry) { return entry["id"]; };
  const json first_id = entries.empty() ? json(nullptr) : id_of(entries.front());
  const json last_id = entries.empty() ? json(nullptr) : id_of(entries.back());
  call.SendJson({{"data", std::move(entries)},
                 {"has_more", more},
                 {"first_id", first_id},
                 {"last_id", last_id}});
}

void ShowAnthropicModel(const Services& services, Call& call, std::string_view id) {
  if (const auto error = WrongVersion(call)) return call.Fail(*error);
  const auto found = services.models.Find(id);
  if (!found) return call.Fail(found.error());
  call.SendJson(AnthropicEntry(found->model));
}

}  // namespace rullama::server
