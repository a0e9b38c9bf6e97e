// The schema of a rullama configuration: every key there is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/range.h"
#include "core/config/schema_builder.h"

namespace rullama {

// Far above every published context, small enough that products of three of them stay inside 64
// bits.
inline constexpr int64_t kMaxConfiguredTokens = int64_t{1} << 24;

// The root block; built once, immutable afterwards, safe from any thread.
const BlockSpec& ConfigSchema();

// The `architecture` block, declared in a file of its own.
BlockSpec ArchitectureSchema();
// The same for the `server` block.
BlockSpec ServerSchema();

// The `training` block, likewise.
BlockSpec TrainingSchema();

// The field with this path, or null. The pointer lives as long as the program.
const FieldSpec* FindField(std::string_view path);

// The paths of all fields, in the order of the documentation.
std::vector<std::string> FieldPaths();

// docs/configuration.md.
std::string SchemaAsMarkdown();

}  // namespace rullama
