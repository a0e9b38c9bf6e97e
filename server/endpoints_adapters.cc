// The endpoints of the adapters of a model.
#include <nlohmann/json.hpp>
#include <string>

#include "server/adapter_fields.h"
#include "server/answer_run.h"
#include "server/endpoints.h"
#include "server/http/query.h"
#include "server/json_body.h"

namespace rullama::server {
namespace {

using nlohmann::json;

ApiResult<UsedModel> ModelInQuery(const Services& services, Call& call) {
  return AcquireModel(services, call, QueryValue(call.request().query, "model").value_or(""));
}

}  // namespace

void ListAdapters(const Services& services, Call& call) {
  const auto model = ModelInQuery(services, call);
  if (!model) return call.Fail(model.error());
  json list = json::array();
  for (const AdapterInfo& adapter : model->engine->adapters()) {
    list.push_back({{"id", list.size()},
                    {"path", adapter.name},
                    {"scale", adapter.scale},
                    {"rank", adapter.rank},
                    {"alpha", adapter.alpha}});
  }
  call.SendJson(list);
}

void SetAdapters(const Services& services, Call& call) {
  const auto body = ParseValue(call.request().body, "a list");
  if (!body) return call.Fail(body.error());
  const auto model = ModelInQuery(services, call);
  if (!model) return call.Fail(model.error());
  const BodyContext context = BodyContextOf(*model, call.request().body);
  if (context.adapters > 0 && !context.chooses_adapters) {
    return call.Fail(MakeApiError(
        "unsupported_value", "all requests have the adapters of this model as they were loaded"));
  }
  const json none = json::object();
  FieldReader fields(none);
  const std::vector<AdapterScale> scales = ReadAdapterList(fields, *body, "body", context);
  if (fields.error()) return call.Fail(*fields.error());
  if (const Status set = services.models.SetAdapterScales(*model, scales); !set) {
    return call.Fail(FromEngine(set.error()));
  }
  call.SendJson({{"success", true}});
}

}  // namespace rullama::server
