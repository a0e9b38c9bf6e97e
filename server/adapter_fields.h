// The adapters that a request chooses.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/api/request.h"
#include "server/body_context.h"
#include "server/field_reader.h"

namespace rullama::server {

// A list of {"id", "scale"}, each id of a loaded adapter and named once. `place` stands before the
// places in errors, which go to `fields`.
std::vector<AdapterScale> ReadAdapterList(FieldReader& fields, const nlohmann::json& list,
                                          std::string_view place, const BodyContext& context);
// The adapters of a body without `lora`: that of the model's name, or else those of the engine as
// they were when the body was read, so that all parts of one request have the same.
std::optional<std::vector<AdapterScale>> AdaptersOfName(const BodyContext& context);
// The member `lora`, or else AdaptersOfName().
std::optional<std::vector<AdapterScale>> ReadAdapters(FieldReader& fields,
                                                      const BodyContext& context);

}  // namespace rullama::server
