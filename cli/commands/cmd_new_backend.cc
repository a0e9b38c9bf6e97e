// rullama new-backend: the folder a new backend starts from. Its files are cli/new_backend/*.in.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "cli/commands/command.h"
#include "cli/commands/loading.h"
#include "core/plugin/registry.h"
#include "new_backend_files.h"

namespace rullama::cli {
namespace {

namespace fs = std::filesystem;

struct NewBackendFlags {
  std::string name;
  std::string folder;
};

// Words that cannot name a namespace: keywords, macros of compilers, and existing namespaces.
constexpr std::string_view kTakenByTheLanguage[] = {"alignas",      "alignof",
                                                    "and",          "and_eq",
                                                    "asm",          "auto",
                                                    "bitand",       "bitor",
                                                    "bool",         "break",
                                                    "case",         "catch",
                                                    "char",         "char16_t",
                                                    "char32_t",     "char8_t",
                                                    "class",        "co_await",
                                                    "co_return",    "co_yield",
                                                    "compl",        "concept",
                                                    "const",        "const_cast",
                                                    "consteval",    "constexpr",
                                                    "constinit",    "continue",
                                                    "decltype",     "default",
                                                    "delete",       "do",
                                                    "double",       "dynamic_cast",
                                                    "else",         "enum",
                                                    "explicit",     "export",
                                                    "extern",       "false",
                                                    "float",        "for",
                                                    "friend",       "goto",
                                                    "if",           "inline",
                                                    "int",          "linux",
                                                    "long",         "main",
                                                    "mutable",      "namespace",
                                                    "new",          "noexcept",
                                                    "not",          "not_eq",
                                                    "nullptr",      "operator",
                                                    "or",           "or_eq",
                                                    "posix",        "private",
                                                    "protected",    "public",
                                                    "register",     "reinterpret_cast",
                                                    "requires",     "return",
                                                    "rullama",      "short",
                                                    "signed",       "sizeof",
                                                    "static",       "static_assert",
                                                    "static_cast",  "std",
                                                    "struct",       "switch",
                                                    "template",     "this",
                                                    "thread_local", "throw",
                                                    "true",         "try",
                                                    "typedef",      "typeid",
                                                    "typename",     "union",
                                                    "unix",         "unsigned",
                                                    "using",        "virtual",
                                                    "void",         "volatile",
                                                    "wchar_t",      "while",
                                                    "xor",          "xor_eq"};
// Backends of rullama itself.
constexpr std::string_view kOurs[] = {"cpu", RULLAMA_GPU_BACKENDS};

Status CheckNotTaken(std::string_view name) {
  const auto end = std::ranges::end(kTakenByTheLanguage);
  if (std::ranges::find(kTakenByTheLanguage, name) != end) {
    return MakeError(ErrorKind::kUsage, "new_backend.name",
                     "'{0}' means something in C++, and the name of a backend is that of its "
                     "namespace; choose another one, such as `{0}_backend`",
                     name);
  }
  if (name == kReferenceBackend) {
    return MakeError(ErrorKind::kUsage, "new_backend.name",
                     "'{}' is the backend that is built into rullama, and no plugin may take its "
                     "name; choose another one",
                     name);
  }
  return OkStatus();
}

// The name is a C++ namespace, a CMake target and what --backend takes.
Status CheckName(std::string_view name) {
  constexpr size_t kLongest = 32;
  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  const bool good = !name.empty() && name.size() <= kLongest && is_lower(name[0]) &&
                    std::ranges::all_of(name, [&](char c) {
                      return is_lower(c) || (c >= '0' && c <= '9') || c == '_';
                    });
  if (good) return CheckNotTaken(name);
  return MakeError(ErrorKind::kUsage, "new_backend.name",
                   "'{}' cannot be the name of a backend; expected a lower-case letter, then up to "
                   "{} of a-z, 0-9 and _, such as `my_gpu`",
                   name, kLongest - 1);
}

std::string Replace(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t next = std::min(text.find(from, at), text.size());
    result += text.substr(at, next - at);
    if (next == text.size()) break;
    result += to;
    at = next + from.size();
  }
  return result;
}

Error CannotWrite(const fs::path& path, const std::string& why) {
  return {ErrorKind::kIo, "new_backend.write",
          fmt::format("cannot write '{}': {}", path.string(), why)};
}

Status WriteFolder(const NewBackendFlags& flags, const fs::path& folder) {
  std::error_code failure;
  if (fs::exists(folder, failure)) {
    return MakeError(ErrorKind::kUsage, "new_backend.exists",
                     "'{}' exists already; choose another place with --folder", folder.string());
  }
  fs::create_directories(folder, failure);
  if (failure) return tl::unexpected(CannotWrite(folder, failure.message()));
  for (const EmbeddedFile& file : new_backend_files) {
    const fs::path path = folder / file.name;
    errno = 0;
    std::ofstream out(path, std::ios::binary);
    out << Replace(Replace(file.text, "@NAME@", flags.name), "@VERSION@", RULLAMA_VERSION);
    out.close();
    if (!out) return tl::unexpected(CannotWrite(path, std::strerror(errno)));
  }
  return OkStatus();
}

// The path of the guide for authors: next to the installed program, else in the source tree.
std::string GuidePath() {
  const fs::path program = RegistryOptions::FromProcess().program_directory;
  std::error_code failure;
  const fs::path installed =
      fs::weakly_canonical(program / ".." / "share/doc/rullama/docs/writing-a-backend.md", failure);
  if (!program.empty() && !failure && fs::exists(installed, failure)) return installed.string();
  return "docs/writing-a-backend.md in the source tree of rullama";
}

Result<int> NewBackend(const NewBackendFlags& flags, Console& console) {
  RL_RETURN_IF_ERROR(CheckName(flags.name));
  const fs::path folder = flags.folder.empty() ? fs::path(flags.name) : fs::path(flags.folder);
  RL_RETURN_IF_ERROR(WriteFolder(flags, folder));
  if (std::ranges::find(kOurs, flags.name) != std::ranges::end(kOurs)) {
    console.Warn(
        fmt::format("'{}' is also a backend of rullama; the program uses the one that it "
                    "finds first (--plugin, then the configuration, then the installation)",
                    flags.name));
  }
  RL_RETURN_IF_ERROR(console.Write(fmt::format(
      "wrote {0}: a backend that runs the op `affine`\n\n"
      "  cd {0}\n"
      "  cmake -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH=<where rullama is "
      "installed>\n"
      "  cmake --build build && ctest --test-dir build --output-on-failure\n\n"
      "The guide continues from here: {1}\n",
      folder.string(), GuidePath())));
  return 0;
}

}  // namespace

void AddNewBackendCommand(CLI::App& app, CommandContext& context) {
  auto flags = std::make_shared<NewBackendFlags>();
  CLI::App* command = app.add_subcommand(
      "new-backend", "Write the folder that a new backend starts from: CMake, one op, its test");
  command->add_option("name", flags->name, "Name for --backend, in lower case, such as my_gpu")
      ->required();
  command->add_option("--folder", flags->folder, "Folder to create; default: one of that name");
  command->footer("Example:\n  rullama new-backend my_gpu");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return NewBackend(*flags, context.console); };
  });
}

}  // namespace rullama::cli
