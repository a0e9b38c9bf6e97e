// A field of the head of an HTTP message.
#pragma once

#include <string>

namespace rullama::server {

struct HeaderField {
  std::string name;
  std::string value;
};

}  // namespace rullama::server
