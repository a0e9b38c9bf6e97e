#include "engine/training/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/base/json_reader.h"
#include "core/base/mmap_file.h"
#include "core/gguf/atomic_file.h"
#include "core/safetensors/safetensors.h"
namespace rullama {
namespace {

using OrderedJson = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int kStateVersion = 1;
constexpr size_t kStepDigits = 7;  // of a checkpoint's name, at least
constexpr const char* kPlaceFile = "training_state.json";
constexpr const char* kMomentsFile = "training_state.safetensors";
constexpr std::string_view kM = ".m";
constexpr std::string_view kV = ".v";

Status SaveError(const fs::path& path, const std::error_code& error) {
  return MakeError(ErrorKind::kIo, "train.save", "'{}' cannot be written: {}", path.string(),
                   error.message());
}

tl::unexpected<Error> BadState(const fs::path& path, std::string_view why) {
  return MakeError(ErrorKind::kUsage, "train.resume",
                   "'{}' {}, expected a checkpoint of `rullama finetune`", path.string(), why);
}

Status WriteFile(const fs::path& path, std::span<const std::byte> bytes) {
  const auto write = [&]() -> Status {
    RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
    RL_RETURN_IF_ERROR(file.Append(bytes));
    return file.Commit();
  };
  if (Status status = write(); !status) {
    return MakeError(ErrorKind::kIo, "train.save", "{}", status.error().message);
  }
  return OkStatus();
}

// The member of an object with the right type.
template <typename T>
std::optional<T> MemberOf(const OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<T>();
}

// The losses of as many steps as were done.
std::optional<LossHistory> HistoryOf(const OrderedJson& place) {
  const auto steps = MemberOf<uint64_t>(place, "step");
  const auto losses = place.find("losses");
  const auto validations = place.find("validations");
  if (!steps || losses == place.end() || !losses->is_array() || losses->size() != *steps ||
      validations == place.end() || !validations->is_array()) {
    return std::nullopt;
  }
  LossHistory history;
  for (const OrderedJson& loss : *losses) {
    if (!loss.is_number()) return std::nullopt;
    history.steps.push_back(loss.get<double>());
  }
  for (const OrderedJson& validation : *validations) {
    const auto step = MemberOf<int64_t>(validation, "step");
    const auto loss = MemberOf<double>(validation, "loss");
    if (!step || !loss) return std::nullopt;
    history.validations.push_back({*step, *loss});
  }
  return history;
}

Result<OrderedJson> ReadPlace(const fs::path& path) {
  RL_ASSIGN_OR_RETURN(const MmapFile file, MmapFile::Open(path));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  auto read = ReadOrderedJson(text);
  if (!read) return BadState(path, read.error().ToString());
  OrderedJson place = *std::move(read);
  if (!place.is_object()) return BadState(path, "is no JSON object");
  const auto version = MemberOf<int>(place, "version");
  if (version == kStateVersion) return place;
  return BadState(path, fmt::format("has version {}, not {}", version.value_or(0), kStateVersion));
}

Status CheckIdentity(const fs::path& path, const OrderedJson& place, const RunIdentity& expected) {
  const auto found = place.find("run");
  if (found == place.end() || !found->is_object()) return BadState(path, "does not say its run");
  for (const auto& [key, value] : expected) {
    const auto member = found->find(key);
    const std::string stored =
        member != found->end() && member->is_string() ? member->get<std::string>() : "nothing";
    if (stored == value) continue;
    return MakeError(ErrorKind::kUsage, "train.resume",
                     "the checkpoint '{}' has {} = {}, this run has {}; expected the same, or "
                     "--resume-adapter-file, which takes the adapter alone",
                     path.parent_path().string(), key, stored, value);
  }
  return OkStatus();
}

// Whether a file name is one that CheckpointName makes.
bool IsCheckpointName(std::string_view name) {
  return name.size() >= kStepDigits && name.find_first_not_of("0123456789") == name.npos;
}

// Puts `temporary` in the place of `folder` where the file system cannot exchange names.
std::error_code ReplaceInTwoSteps(const fs::path& temporary, const fs::path& folder) {
  const fs::path old = folder.string() + ".old";
  std::error_code error;
  fs::remove_all(old, error);
  if (!error) fs::rename(folder, old, error);
  if (!error) fs::rename(temporary, folder, error);
  if (!error) fs::remove_all(old, error);
  return error;
}

}  // namespace

std::string CheckpointName(int64_t step) { return fmt::format("{:0{}}", step, kStepDigits); }

Result<fs::path> FindCheckpoint(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error) || fs::exists(path / kPlaceFile, error)) return path;
  fs::path newest;
  const auto is_older = [](const std::string& a, const std::string& b) {
    return a.size() == b.size() ? a < b : a.size() < b.size();
  };
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    const fs::path name = it->path().filename();
    if (!IsCheckpointName(name.string()) || !fs::exists(it->path() / kPlaceFile)) continue;
    if (newest.empty() || is_older(newest.string(), name.string())) newest = name;
  }
  if (!newest.empty()) return path / newest;
  return BadState(path, "has no checkpoint, such as 0000100");
}

Status WriteRunState(const RunState& state, const fs::path& folder) {
  std::vector<SafetensorsOutput> tensors;
  tensors.reserve(state.m.size());
  for (const auto& [name, values] : state.m) {
    tensors.push_back({name + std::string(kM), {std::ssize(values)}, values});
  }
  for (const auto& [name, values] : state.v) {
    tensors.push_back({name + std::string(kV), {std::ssize(values)}, values});
  }
  RL_RETURN_IF_ERROR(WriteFile(folder / kMomentsFile, EncodeSafetensors(std::move(tensors), {})));
  OrderedJson validations = OrderedJson::array();
  for (const LossPoint& point : state.history.validations) {
    validations.push_back({{"step", point.step}, {"loss", point.loss}});
  }
  const OrderedJson place = {
      {"version", kStateVersion},      {"step", state.history.steps.size()},
      {"examples", state.examples},    {"run", state.identity},
      {"losses", state.history.steps}, {"validations", std::move(validations)}};
  const std::string text = place.dump(2) + "\n";
  return WriteFile(folder / kPlaceFile, std::as_bytes(std::span(text)));
}

Result<RunState> ReadRunState(const fs::path& folder, const RunIdentity& identity) {
  const fs::path place_path = folder / kPlaceFile;
  RL_ASSIGN_OR_RETURN(const OrderedJson place, ReadPlace(place_path));
  RL_RETURN_IF_ERROR(CheckIdentity(place_path, place, identity));
  const auto examples = MemberOf<uint64_t>(place, "examples");
  auto history = HistoryOf(place);
  if (!examples || !history) return BadState(place_path, "does not say the steps that were done");
  RunState state{.identity = identity, .examples = *examples, .history = *std::move(history)};
  RL_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(folder / kMomentsFile));
  for (const SafetensorsTensor& tensor : file.tensors()) {
    const std::string_view name = tensor.name;
    const bool is_m = name.ends_with(kM);
    if (!is_m && !name.ends_with(kV)) return BadState(folder / kMomentsFile, "has other tensors");
    auto& moments = is_m ? state.m : state.v;
    RL_ASSIGN_OR_RETURN(moments[std::string(name.substr(0, name.size() - kM.size()))],
                        file.Floats(tensor));
  }
  return state;
}

Status MakeFolder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  return error ? SaveError(folder, error) : OkStatus();
}

Status BeginFolder(const fs::path& temporary) {
  std::error_code error;
  fs::remove_all(temporary, error);
  return error ? SaveError(temporary, error) : MakeFolder(temporary);
}

Status CommitFolder(const fs::path& temporary, const fs::path& folder) {
  std::error_code error;
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) != 0) {
    const int reason = errno;
    if (reason == ENOENT) {
      fs::rename(temporary, folder, error);
    } else if (reason == EINVAL || reason == ENOSYS) {
      error = ReplaceInTwoSteps(temporary, folder);
    } else {
      error.assign(reason, std::generic_category());
    }
  }
  if (error) return SaveError(folder, error);
  RL_RETURN_IF_ERROR(SyncFolderOf(folder));
  // After an exchange it is what was replaced.
  fs::remove_all(temporary, error);
  return error ? SaveError(temporary, error) : OkStatus();
}

}  // namespace rullama
