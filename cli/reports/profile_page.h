// The page of `rullama profile --html`: for each test a roofline, the kinds of ops under it, the
// layers and the slowest ops; with an earlier run for comparison if there is one. Pure functions;
// thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cli/reports/profile_report.h"

namespace rullama::cli {

struct ProfiledTest {
  ProfileReport report;
  std::optional<ProfileReport> before;  // the same test of an earlier run
};

// Names may be any bytes. `slowest`: ops that are listed.
std::string ProfilePage(const std::vector<ProfiledTest>& tests, size_t slowest);

}  // namespace rullama::cli
