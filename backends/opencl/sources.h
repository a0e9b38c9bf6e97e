// The kernels' source, which is part of the plugin.
#pragma once

#include <string>
#include <string_view>

namespace rullama::opencl {

// A file of kernels/, or NAME.cl for NAME.kernel of backends/gpu/kernels, with everything it
// includes in place of the lines that say so; each file once.
std::string SourceOf(std::string_view file);

}  // namespace rullama::opencl
