#include "cli/commands/file_check.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/config/layered_config.h"
#include "core/gguf/gguf.h"
#include "engine/loading/model_file.h"

namespace rullama::cli {
namespace {

namespace fs = std::filesystem;

// Options whose value is a file that is written, by their last names.
constexpr std::array<std::string_view, 11> kOutputNames = {
    "OUT", "dump-gradients", "html", "log-prompts", "mmproj-out", "mtp-out",
    "out", "output",         "plot", "svg",         "trace"};
// Words without an option, and options with files whose help does not call them FILE or FOLDER.
constexpr std::array<std::string_view, 6> kInputNames = {"FILE",   "IN",   "MODEL",
                                                         "config", "file", "vocab"};

std::string OptionName(const CLI::Option& option) {
  const auto& names = option.get_lnames();
  return names.empty() ? option.get_name() : names.back();
}

template <size_t kCount>
bool IsOneOf(const std::array<std::string_view, kCount>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool IsInput(const CLI::Option& option) {
  const std::string& text = option.get_option_text();
  return text.find("FILE") != std::string::npos || text.find("FOLDER") != std::string::npos ||
         IsOneOf(kInputNames, OptionName(option));
}

class Inputs {
 public:
  void Add(const std::string& name) {
    std::error_code ignored;
    fs::path path = name;
    // A factor may follow an adapter.
    if (!fs::exists(path, ignored)) path = name.substr(0, name.rfind(':'));
    if (fs::is_directory(path, ignored)) {
      for (const auto& entry : fs::directory_iterator(path, ignored))
        files_.push_back(entry.path());
    } else if (fs::exists(path, ignored)) {
      files_.push_back(path);
      AddParts(path);
      // Files in the folders of adapters.
      files_.push_back(path.parent_path() / "adapter_config.json");
    } else if (const auto model = OpenModelFile(name)) {
      files_.push_back(model->file->path());
    }
  }

  // Files that a configuration names.
  void Add(const Config& config) {
    const auto model = [this](const auto& of) {
      for (const AdapterSetting& adapter : of.adapters) Add(adapter.path);
      if (of.mmproj) Add(*of.mmproj);
    };
    if (config.model.path) Add(*config.model.path);
    model(config.model);
    for (const ServedModelSetting& served : config.server.models) {
      Add(served.path);
      model(served);
    }
    for (const std::string& keys : config.server.api_keys) Add(keys);
    for (const std::string& plugin : config.plugins.paths) Add(plugin);
    if (config.drafts.model) Add(*config.drafts.model);
    if (config.training.data) Add(*config.training.data);
  }

  // The name of the input that `output` would replace; empty if there is none.
  [[nodiscard]] std::string Find(const fs::path& output) const {
    std::error_code ignored;
    const auto same = std::ranges::find_if(
        files_, [&](const fs::path& file) { return fs::equivalent(file, output, ignored); });
    return same == files_.end() ? std::string() : same->string();
  }

 private:
  // The other parts of a split model.
  void AddParts(const fs::path& path) {
    if (path.filename().string().find("-of-") == std::string::npos) return;
    const auto model = GgufFile::Open(path);
    if (!model) return;
    for (const std::string& part : model->paths()) files_.emplace_back(part);
  }

  std::vector<fs::path> files_;
};

// Whether the two names are one file, which may not be there yet.
bool AreSame(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  if (fs::exists(a, ignored) && fs::exists(b, ignored)) return fs::equivalent(a, b, ignored);
  return fs::weakly_canonical(a, ignored) == fs::weakly_canonical(b, ignored);
}

Status CheckApart(const std::vector<std::string>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (size_t k = i + 1; k < outputs.size(); ++k) {
      std::error_code ignored;
      const bool file =
          !fs::exists(outputs[i], ignored) || fs::is_regular_file(outputs[i], ignored);
      if (!file || !AreSame(outputs[i], outputs[k])) continue;
      return MakeError(ErrorKind::kUsage, "io.same_file",
                       "two outputs go to '{}'; give one of them another name", outputs[i]);
    }
  }
  return OkStatus();
}

// Commands have errors of their own for models, configurations and outputs without a name.
Status CheckNotEmpty(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = OptionName(*option);
    const bool checked =
        IsOneOf(kOutputNames, name) || IsOneOf(kInputNames, name) || name == "model";
    if (checked || !IsInput(*option)) continue;
    for (const std::string& value : option->results()) {
      if (!value.empty()) continue;
      return MakeError(ErrorKind::kUsage, "usage.option",
                       "--{} is empty, expected {}; leave it out to do without",
                       option->get_lnames().empty() ? name : option->get_lnames().front(),
                       option->get_option_text());
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckFiles(const CLI::App& command) {
  RL_RETURN_IF_ERROR(CheckNotEmpty(command));
  std::vector<std::string> outputs;
  for (const CLI::Option* option : command.get_options()) {
    if (!IsOneOf(kOutputNames, OptionName(*option))) continue;
    // Folders have their own checks.
    if (option->get_option_text().find("FOLDER") != std::string::npos) continue;
    for (const std::string& value : option->results()) {
      if (!value.empty()) outputs.push_back(value);
    }
  }
  RL_RETURN_IF_ERROR(CheckApart(outputs));
  std::error_code ignored;
  std::erase_if(outputs, [&](const std::string& output) {
    return !fs::is_regular_file(output, ignored);  // devices are written to, not replaced
  });
  if (outputs.empty()) return OkStatus();

  Inputs inputs;
  std::string config_file;
  if (const char* named = std::getenv("RULLAMA_CONFIG")) config_file = named;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = OptionName(*option);
    if (IsOneOf(kOutputNames, name) || !IsInput(*option)) continue;
    for (const std::string& value : option->results()) inputs.Add(value);
    if (name == "config" && !option->results().empty()) config_file = option->results().back();
  }
  LayeredConfig config;
  if (!config_file.empty() && config.ApplyFile(config_file)) inputs.Add(config.values());
  for (const std::string& output : outputs) {
    const std::string input = inputs.Find(output);
    if (input.empty()) continue;
    return MakeError(ErrorKind::kUsage, "io.same_file",
                     "'{}' is '{}', which is read; give the output another name", output, input);
  }
  return OkStatus();
}

}  // namespace rullama::cli
