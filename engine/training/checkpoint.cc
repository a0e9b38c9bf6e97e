#include "engine/training/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
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
#include "engine/training/loss_plot.h"

namespace rullama {
namespace {

using OrderedJson = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int kStateVersion = 2;
constexpr size_t kStepDigits = 7;  // of a checkpoint's name, at least
constexpr const char* kPlaceFile = "training_state.json";
constexpr const char* kMomentsFile = "training_state.safetensors";
constexpr const char* kDigest = "digest";
constexpr const char* kBestFolder = "best";
// The files that a run leaves in its output folder in addition to checkpoints and the best adapter.
constexpr std::array<std::string_view, 4> kAdapterFiles = {
    "adapter_config.json", "adapter_model.safetensors", "adapter.gguf", kLossPlot};
constexpr std::string_view kM = ".m";
constexpr std::string_view kV = ".v";

Status SaveError(const fs::path& path, const std::error_code& error) {
  return MakeError(ErrorKind::kIo, "train.save", "'{}' cannot be written: {}", path.string(),
                   error.message());
}

tl::unexpected<Error> BadState(const fs::path& path, std::string_view why) {
  return MakeError(ErrorKind::kUsage, "train.resume",
                   "'{}' {}, expected a checkpoint of this version of `rullama finetune`",
                   path.string(), why);
}

// A hash of the files of a checkpoint that are read, and of what training_state.json says.
Result<std::string> DigestOf(const fs::path& folder, OrderedJson place) {
  place.erase(kDigest);
  std::string all = place.dump();
  for (const std::string_view name :
       {kAdapterFiles[0], kAdapterFiles[1], std::string_view(kMomentsFile)}) {
    std::error_code ignored;
    if (!fs::exists(folder / name, ignored)) continue;
    RL_ASSIGN_OR_RETURN(const MmapFile file, MmapFile::Open(folder / name));
    all += fmt::format("\n{} {}", name, HashOf(file.bytes()));
  }
  return HashOf(std::as_bytes(std::span(all)));
}

Status CheckDigest(const fs::path& path, const OrderedJson& place) {
  const auto stored = place.find(kDigest);
  RL_ASSIGN_OR_RETURN(const std::string digest, DigestOf(path.parent_path(), place));
  if (stored != place.end() && stored->is_string() && stored->get<std::string>() == digest) {
    return OkStatus();
  }
  return MakeError(ErrorKind::kUsage, "train.resume",
                   "the files of '{}' are not those that were written: they were altered or "
                   "damaged; resume from another checkpoint, or begin another run with the adapter "
                   "(--adapter-init)",
                   path.parent_path().string());
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
  if (!place.is_object()) return BadState(path, "is not a JSON object");
  const auto version = MemberOf<int>(place, "version");
  if (version == kStateVersion) return place;
  return BadState(path, fmt::format("has version {}, not {}", version.value_or(0), kStateVersion));
}

Status CheckIdentity(const fs::path& path, const OrderedJson& place, const RunIdentity& expected) {
  const auto found = place.find("run");
  if (found == place.end() || !found->is_object()) return BadState(path, "does not say its run");
  std::vector<std::string> differences;
  for (const auto& [key, value] : expected) {
    const auto member = found->find(key);
    const std::string stored =
        member != found->end() && member->is_string() ? member->get<std::string>() : "nothing";
    if (stored == value) continue;
    differences.push_back(fmt::format("{} = {}, this run has {}", key, stored, value));
  }
  if (differences.empty()) return OkStatus();
  return MakeError(ErrorKind::kUsage, "train.resume",
                   "the checkpoint '{}' has {}; expected the same, which leaving the options out "
                   "gives, or --resume-adapter-file, which takes the adapter alone",
                   path.parent_path().string(), fmt::join(differences, "; "));
}

// Whether a file name is one that CheckpointName makes.
bool IsCheckpointName(std::string_view name) {
  return name.size() >= kStepDigits && name.find_first_not_of("0123456789") == name.npos;
}

bool IsCheckpoint(const fs::path& folder) {
  std::error_code ignored;
  return IsCheckpointName(folder.filename().string()) && fs::exists(folder / kPlaceFile, ignored);
}

// The files and folders of a run in its output folder, by name.
std::vector<fs::path> PartsOfRun(const fs::path& output) {
  std::vector<fs::path> parts;
  std::error_code error;
  for (fs::directory_iterator it(output, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const bool is_file = std::ranges::find(kAdapterFiles, name) != kAdapterFiles.end();
    if (is_file || name == kBestFolder || IsCheckpoint(it->path())) parts.push_back(it->path());
  }
  std::ranges::sort(parts);
  return parts;
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
    if (!IsCheckpoint(it->path())) continue;
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
  RL_RETURN_IF_ERROR(
      WriteCheckpointFile(folder / kMomentsFile, EncodeSafetensors(std::move(tensors), {})));
  OrderedJson validations = OrderedJson::array();
  for (const LossPoint& point : state.history.validations) {
    validations.push_back({{"step", point.step}, {"loss", point.loss}});
  }
  OrderedJson place = {{"version", kStateVersion},
                       {"step", state.history.steps.size()},
                       {"steps", state.steps},
                       {"examples", state.examples},
                       {"run", state.identity},
                       {"losses", state.history.steps},
                       {"validations", std::move(validations)}};
  RL_ASSIGN_OR_RETURN(place[kDigest], DigestOf(folder, place));
  const std::string text = place.dump(2) + "\n";
  return WriteCheckpointFile(folder / kPlaceFile, std::as_bytes(std::span(text)));
}

Result<RunState> ReadRunState(const fs::path& folder, const RunIdentity& identity) {
  const fs::path place_path = folder / kPlaceFile;
  RL_ASSIGN_OR_RETURN(const OrderedJson place, ReadPlace(place_path));
  RL_RETURN_IF_ERROR(CheckDigest(place_path, place));
  RL_RETURN_IF_ERROR(CheckIdentity(place_path, place, identity));
  const auto examples = MemberOf<uint64_t>(place, "examples");
  auto history = HistoryOf(place);
  if (!examples || !history) return BadState(place_path, "does not say the steps that were done");
  RunState state{.identity = identity,
                 .examples = *examples,
                 .steps = MemberOf<int64_t>(place, "steps").value_or(0),
                 .history = *std::move(history)};
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

Status CheckHasNoRun(const fs::path& output) {
  const std::vector<fs::path> parts = PartsOfRun(output);
  if (parts.empty()) return OkStatus();
  const bool has_checkpoint = std::ranges::any_of(parts, IsCheckpoint);
  return MakeError(ErrorKind::kUsage, "train.exists",
                   "'{}' has another run or adapter ('{}'); choose another folder (-o),{} or let "
                   "this run replace it (--overwrite)",
                   output.string(), parts.front().filename().string(),
                   has_checkpoint ? fmt::format(" continue it (--resume '{}'),", output.string())
                                  : std::string());
}

Status RemoveRun(const fs::path& output) {
  for (const fs::path& part : PartsOfRun(output)) {
    std::error_code error;
    fs::remove_all(part, error);
    if (error) return SaveError(part, error);
  }
  return OkStatus();
}

std::string HashOf(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

Status WriteCheckpointFile(const fs::path& path, std::span<const std::byte> bytes) {
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
  // After an exchange it holds the old checkpoint.
  fs::remove_all(temporary, error);
  return error ? SaveError(temporary, error) : OkStatus();
}

}  // namespace rullama
