#include "models/common/adapters/adapter.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <utility>

#include "core/base/printable.h"
#include "core/gguf/gguf.h"
#include "core/safetensors/safetensors.h"
#include "models/common/adapters/adapter_builder.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;

struct AdapterFiles {
  std::string tensors;
  std::string config;  // next to them; may be missing
};

// The adapter inside the output folder of a training run: best/, or the newest checkpoint. Empty if
// it has none.
std::string FindInside(const fs::path& folder) {
  std::string found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (!fs::exists(it->path() / "adapter_model.safetensors", ignored)) continue;
    const std::string name = it->path().filename().string();
    if (name == "best") return it->path().string();
    const bool is_checkpoint = name.find_first_not_of("0123456789") == std::string::npos;
    const bool is_newer =
        name.size() > found.size() || (name.size() == found.size() && name > found);
    if (is_checkpoint && is_newer) found = name;
  }
  return found.empty() ? found : (folder / found).string();
}

Result<AdapterFiles> FindFiles(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    return AdapterFiles{path, (fs::path(path).parent_path() / "adapter_config.json").string()};
  }
  const fs::path config = fs::path(path) / "adapter_config.json";
  for (const char* name : {"adapter_model.safetensors", "adapters.safetensors"}) {
    const fs::path file = fs::path(path) / name;
    if (fs::exists(file, ignored)) return AdapterFiles{file.string(), config.string()};
  }
  if (const std::string inside = FindInside(path); !inside.empty()) {
    return MakeError(
        ErrorKind::kModelFile, "adapter.file",
        "the folder has no adapter of its own, it is that of a run that has not ended; "
        "use '{}'",
        inside);
  }
  return MakeError(ErrorKind::kModelFile, "adapter.file",
                   "the folder has neither adapter_model.safetensors nor adapters.safetensors, "
                   "expected one of them and adapter_config.json");
}

Result<Adapter> ReadFiles(const AdapterFiles& files, const AdapterTarget& target) {
  RL_ASSIGN_OR_RETURN(const MmapFile file, MmapFile::Open(files.tensors));
  const auto bytes = file.bytes();
  uint32_t magic = 0;
  if (bytes.size() >= sizeof(magic)) std::memcpy(&magic, bytes.data(), sizeof(magic));
  if (magic == kGgufMagic) {
    return adapters::ReadGgufAdapter(files.tensors, target);
  }
  if (SafetensorsFile::LooksLike(bytes) || files.tensors.ends_with(".safetensors")) {
    return adapters::ReadSafetensorsAdapter(files.tensors, files.config, target);
  }
  return MakeError(ErrorKind::kModelFile, "adapter.file",
                   "the file is neither GGUF nor safetensors; expected an adapter of PEFT, MLX or "
                   "llama.cpp");
}

}  // namespace

Result<Adapter> ReadAdapter(const std::string& path, const AdapterTarget& target) {
  const auto named = [&path](Error error) {
    return tl::unexpected(
        std::move(error).WithContext(fmt::format("adapter '{}'", ShownName(path))));
  };
  const auto files = FindFiles(path);
  if (!files) return named(files.error());
  auto adapter = ReadFiles(*files, target);
  if (!adapter) return named(std::move(adapter).error());
  adapter->files = {files->tensors, files->config};
  return adapter;
}

}  // namespace rullama
