// Checkpoints of a run: a folder with the adapter as PEFT has it, the moments of AdamW
// (training_state.safetensors), the place of the run (training_state.json, with a digest of these
// files and itself) and its settings (run_settings.h).
//
// A folder appears under its name, or replaces the one that has the name, in one step of the file
// system and only when all of it is on the disk. So a process that is killed leaves whole
// checkpoints, and at most a folder NAME.new, which the next one with that name removes. On file
// systems that cannot exchange two names (RENAME_EXCHANGE: NFS, some of FUSE) a kill between two
// renames leaves the folder that is replaced as NAME.old.
//
// Thread safety: pure functions but for the files. Errors: train.save (kIo), train.resume (kUsage:
// the checkpoint is of another run, with all keys that differ; altered or damaged), train.exists
// (kUsage), those of reading.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "engine/api/training.h"

namespace rullama {

// The facts that a run must share with the checkpoint it resumes from: hyperparameters, model,
// data. Text by key.
using RunIdentity = std::map<std::string, std::string>;

struct RunState {
  RunIdentity identity;
  uint64_t examples = 0;  // that were seen
  int64_t steps = 0;      // that the run was to have
  LossHistory history = {};
  // AdamW's moments by parameter.
  std::map<std::string, std::vector<float>> m = {};
  std::map<std::string, std::vector<float>> v = {};
};

// Writes the state next to the adapter, whose files exist already.
Status WriteRunState(const RunState& state, const std::filesystem::path& folder);
// Reads it, and compares the digest and the identity.
Result<RunState> ReadRunState(const std::filesystem::path& folder, const RunIdentity& identity);

// The checkpoint that `path` means: the folder itself or, of the output folder of a run, its newest
// checkpoint. Error train.resume if there is none.
Result<std::filesystem::path> FindCheckpoint(const std::filesystem::path& path);

// Replaces `folder` by a new folder next to it that `fill` has written: completely, or not at all.
template <typename Fill>
Status ReplaceFolder(const std::filesystem::path& folder, const Fill& fill);

// The name of the checkpoint of a step: "0000100".
std::string CheckpointName(int64_t step);

// Error train.exists if an output folder has a run or an adapter: a checkpoint, best/, or a file
// that a run writes.
Status CheckHasNoRun(const std::filesystem::path& output);
// Removes those from it.
Status RemoveRun(const std::filesystem::path& output);

// A hash of bytes, as 32 hexadecimal digits.
std::string HashOf(std::span<const std::byte> bytes);

// Writes a file of a checkpoint. Error train.save.
Status WriteCheckpointFile(const std::filesystem::path& path, std::span<const std::byte> bytes);

// Creates a folder that may be there already.
Status MakeFolder(const std::filesystem::path& folder);
Status BeginFolder(const std::filesystem::path& temporary);
Status CommitFolder(const std::filesystem::path& temporary, const std::filesystem::path& folder);

template <typename Fill>
Status ReplaceFolder(const std::filesystem::path& folder, const Fill& fill) {
  const std::filesystem::path temporary = folder.string() + ".new";
  RL_RETURN_IF_ERROR(BeginFolder(temporary));
  RL_RETURN_IF_ERROR(fill(temporary));
  return CommitFolder(temporary, folder);
}

}  // namespace rullama
