// Comparison of names whose case does not count.
#pragma once

#include <boost/beast/core/string.hpp>
#include <string_view>

namespace rullama::server {

// Letters of ASCII only, as in names of hosts, media types and schemes.
inline bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return boost::beast::iequals({a.data(), a.size()}, {b.data(), b.size()});
}

}  // namespace rullama::server
