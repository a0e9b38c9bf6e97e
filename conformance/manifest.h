// What is known about a plugin: tests it does not support and tests it is known to fail, each with
// a reason, and how it treats activations. JSON:
//
//   {"activations": "int16",
//    "unsupported": [{"test": "Op.attention/*", "reason": "no shader yet"}],
//    "expected_failure": [{"test": "Op.rope/global", "reason": "driver bug 123"}]}
//
// Where it has "unsupported", that is all of it: a test of anything else that the plugin refuses
// fails. A plugin that grows leaves the key out.
//
// Value type. Errors: conformance.manifest.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/tolerance.h"
#include "core/base/status.h"

namespace rullama::conformance {

struct Manifest {
  struct Entry {
    std::string test;  // with * for any text
    std::string reason;
  };
  Activations activations = Activations::kFloat;
  std::vector<Entry> unsupported;
  bool names_all_unsupported = false;
  std::vector<Entry> expected_failure;

  static Result<Manifest> Load(const std::filesystem::path& path);
};

// The first entry whose pattern matches, or null.
const Manifest::Entry* FindEntry(const std::vector<Manifest::Entry>& entries,
                                 std::string_view test);

// Whether `text` matches `pattern`, in which * stands for any text.
bool MatchesGlob(std::string_view pattern, std::string_view text);

}  // namespace rullama::conformance
