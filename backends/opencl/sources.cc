#include "backends/opencl/sources.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>

#include "backends/gpu/kernel_source.h"

// Written at build time: kSources, the name and text of each file.
#include "kernel_sources.h"

namespace rullama::opencl {
namespace {

constexpr std::string_view kInclude = "#include \"";

const Source* Find(std::string_view file) {
  const auto* found = std::ranges::find(kSources, file, &Source::name);
  return found == std::end(kSources) ? nullptr : found;
}

// The text of a file, or of what it includes of kernels.def: NAME.args for the kernel NAME, and
// types.args. NAME.cl of a kernel that Vulkan shares consists of includes.
std::string TextOf(std::string_view file) {
  if (file == "types.args") return gpu::TypeNumbers(gpu::kOpenCl);
  for (const gpu::Shader shader : gpu::AllShaders()) {
    if (file == std::string(gpu::NameOf(shader)) + ".args")
      return gpu::Header(shader, gpu::kOpenCl);
  }
  if (const Source* found = Find(file)) return std::string(found->text);
  const std::string kernel(file.substr(0, file.find('.')));
  if (Find(kernel + ".kernel") == nullptr) {
    throw std::logic_error("no kernel source " + std::string(file));
  }
  return "#include \"common.cl\"\n#include \"" + kernel + ".args\"\n#include \"" + kernel +
         ".kernel\"\n";
}

void Append(std::string_view file, std::set<std::string, std::less<>>& seen, std::string& out) {
  if (!seen.emplace(file).second) return;
  const std::string text = TextOf(file);
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, std::min(rest.find('\n'), rest.size() - 1) + 1);
    rest.remove_prefix(line.size());
    if (line.starts_with(kInclude)) {
      const std::string_view name = line.substr(kInclude.size());
      Append(name.substr(0, name.find('"')), seen, out);
    } else {
      out += line;
    }
  }
}

}  // namespace

std::string SourceOf(std::string_view file) {
  std::set<std::string, std::less<>> seen;
  std::string out;
  Append(file, seen, out);
  return out;
}

}  // namespace rullama::opencl
