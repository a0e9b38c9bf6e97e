// A manifest lists the tests that a plugin does not support and those that it is known to fail,
// each with a reason, and how the plugin treats activations. JSON:
//
//   {"activations": "int16",
//    "unsupported": [{"test": "Op.attention/*", "reason": "no shader yet"}],
//    "expected_failure": [{"test": "Op.rope/global", "reason": "driver bug 123"}]}
//
// If the key "unsupported" exists, it is complete: a test outside it that the plugin refuses fails.
// A plugin under development leaves the key out. With {"matrix_lists_refused_ops": true} the tests
// Op.* need no entry there, since a page with the output of --matrix is compared with the plugin.
// Nor does a test that the plugin refuses with a text of {"refusals": ["*has no kernels*"]}, as
// builds of a plugin do that lack something.
//
// Value type. Errors: conformance.manifest, and those of MmapFile::Open.
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
  bool matrix_lists_refused_ops = false;
  std::vector<std::string> refusals;  // texts, with * for any text
  std::vector<Entry> expected_failure;

  // An empty path gives an empty manifest. `activations` overrides what the file says, unless
  // empty.
  static Result<Manifest> Load(const std::filesystem::path& path, std::string_view activations);
};

// The first entry whose pattern matches, or null.
const Manifest::Entry* FindEntry(const std::vector<Manifest::Entry>& entries,
                                 std::string_view test);

// Whether the manifest allows a plugin to refuse any test with this text.
bool MayRefuse(const Manifest& manifest, std::string_view text);

// Whether `text` matches `pattern`, in which * stands for any text.
bool MatchesGlob(std::string_view pattern, std::string_view text);

}  // namespace rullama::conformance
