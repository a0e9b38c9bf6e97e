// Texts and token ids as vectors, for the endpoints of both APIs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/call.h"
#include "server/field_reader.h"
#include "server/services.h"

namespace rullama::server {

using EmbeddingInput = std::variant<std::string, std::vector<int32_t>>;

// The member `name`: a text, or up to 2,048; with `ids` also token ids, or lists of them.
std::vector<EmbeddingInput> ReadInputs(FieldReader& fields, std::string_view name, bool ids,
                                       bool may_be_empty);

struct Embedded {
  std::vector<std::vector<float>> vectors;
  int64_t tokens = 0;
};
// Runs all inputs, one after the other, and cuts the vectors to `dimensions`. `truncate`: inputs
// that do not fit are cut. Ends between two inputs if the client has left, or after the time that a
// request may take.
ApiResult<Embedded> EmbedAll(const Services& services, Call& call, Engine& engine,
                             const std::vector<EmbeddingInput>& inputs,
                             std::optional<int64_t> dimensions, bool truncate);

}  // namespace rullama::server
