// Where this process looks for plugin files. Not in builds without them (RULLAMA_PLUGIN_FILES).
#include <dlfcn.h>
#include <sys/auxv.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "core/plugin/program_file.h"
#include "core/plugin/registry.h"

namespace rullama {

namespace fs = std::filesystem;

RegistryOptions RegistryOptions::FromProcess() {
  RegistryOptions options;
  options.privileged = ::getauxval(AT_SECURE) != 0;
  if (const char* value = std::getenv("RULLAMA_PLUGIN_PATH")) options.environment = value;
  std::error_code code;
  const fs::path program = ProgramFile(fs::read_symlink("/proc/self/exe", code));
  if (!code) options.program_directory = program.parent_path();
  // Debian has a folder of libraries for each architecture. A build tree always has `lib`.
  if (std::string_view(RULLAMA_LIBDIR) != "lib") {
    options.library_folders.insert(options.library_folders.begin(), RULLAMA_LIBDIR);
  }
  Dl_info own;
  if (::dladdr(reinterpret_cast<const void*>(&RegistryOptions::FromProcess), &own) != 0) {
    const fs::path file = fs::canonical(own.dli_fname, code);
    if (!code && file != program) options.library_directory = file.parent_path();
  }
  return options;
}

}  // namespace rullama
