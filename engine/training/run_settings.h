// The settings of a run, kept in its checkpoints (settings.json), so that --resume needs no other
// option: those of the block `training`, the model and the backend.
//
// Thread safety: pure functions but for the files. Errors: train.save (kIo), train.resume (kUsage),
// config.* for values that this version does not take.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/status.h"
#include "core/config/layered_config.h"

namespace rullama {

// Writes them into the folder of a checkpoint. `backend`: the one in use.
Status WriteRunSettings(const Config& config, const std::string& backend,
                        const std::filesystem::path& folder);

// Adds the settings that `config` lacks: those of the checkpoint that `resume` means
// (FindCheckpoint), and as output the folder that the checkpoint is in. Other steps or another
// backend take the place of all settings about them. Nothing without `resume`.
Status ApplyRunSettings(const std::string& resume, LayeredConfig& config);

}  // namespace rullama
