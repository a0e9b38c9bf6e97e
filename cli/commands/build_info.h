// Names this build of rullama, for tables that are read elsewhere.
#pragma once

#include <string>

namespace rullama::cli {

// "0.2.0", and of a git checkout what `git describe` said: "0.2.0 (a422e76)".
std::string BuildText();
// The output of `git describe`; empty outside of a git checkout.
std::string BuildCommit();

}  // namespace rullama::cli
