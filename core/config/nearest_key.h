// Spelling hints for unknown names.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace rullama {

// Edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`.
size_t EditDistance(std::string_view a, std::string_view b);

// The candidate nearest to `name` if it is near enough to be a misspelling, else an empty string.
std::string NearestName(std::string_view name, std::span<const std::string> candidates);

}  // namespace rullama
