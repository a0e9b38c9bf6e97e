#include "core/plugin/loader.h"

// std::filesystem instead of Boost.Filesystem, so that Boost stays header-only.
#define BOOST_DLL_USE_STD_FS 1
#include <boost/dll/shared_library.hpp>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "core/plugin/call_guard.h"
#include "core/plugin/elf_file.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;

// The dynamic loader's words out of Boost's "... failed (dlerror system message: <words>):
// <errno>"; the errno part is always "Bad file descriptor" and misleads.
std::string LoaderText(const std::exception& e) {
  constexpr std::string_view kBefore = "dlerror system message: ";
  const std::string_view all = e.what();
  const size_t begin = all.find(kBefore);
  if (begin == std::string_view::npos) return std::string(all);
  const std::string_view rest = all.substr(begin + kBefore.size());
  return std::string(rest.substr(0, rest.rfind("): ")));
}

// dlopen would block on a FIFO and says little about a directory.
Status CheckIsFile(const fs::path& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (!fs::exists(status) || fs::is_regular_file(status))
    return OkStatus();  // dlopen says the rest
  return MakeError(ErrorKind::kBackend, "plugin.load",
                   "cannot load plugin '{}': it is {}, expected a shared library", path.string(),
                   fs::is_directory(status) ? "a directory" : "not a regular file");
}

}  // namespace

Result<rl_plugin_query_fn> LoadQueryFunction(const fs::path& path) {
  RL_RETURN_IF_ERROR(CheckIsFile(path));
  RL_RETURN_IF_ERROR(CheckElfIsWhole(path));
  using boost::dll::shared_library;
  // Storage whose destructor never runs: the library is not to be unloaded.
  alignas(shared_library) std::byte storage[sizeof(shared_library)];
  shared_library* library = nullptr;
  try {
    const std::string text = path.string();
    const ScopedPluginCall call(text, "its static initialisers");
    // Absolute, because a bare file name would be looked up in the system's directories. The
    // throwing overloads: the others lose the loader's reason.
    library = new (storage) shared_library(
        fs::absolute(path), boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local);
  } catch (const std::exception& e) {
    return MakeError(ErrorKind::kBackend, "plugin.load", "cannot load plugin '{}': {}",
                     path.string(), LoaderText(e));
  }
  try {
    return &library->get<std::remove_pointer_t<rl_plugin_query_fn>>(RL_PLUGIN_QUERY_NAME);
  } catch (const std::exception& e) {
    return MakeError(ErrorKind::kBackend, "plugin.entry",
                     "'{}' is not a rullama plugin of ABI version {}: {}", path.string(),
                     RL_ABI_MAJOR, LoaderText(e));
  }
}

}  // namespace rullama
