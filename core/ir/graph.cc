#include "core/ir/graph.h"

namespace rullama {

ValueId Graph::Find(std::string_view value_name) const {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].name == value_name) return static_cast<ValueId>(i);
  }
  return kNoValue;
}

}  // namespace rullama
