// The towers of a model and the file that has them.
#pragma once

#include <memory>
#include <string>

#include "core/base/status.h"
#include "core/config/config.h"
#include "core/gguf/gguf.h"
#include "engine/host_hooks.h"
#include "engine/loading/mapping_notice.h"
#include "engine/loading/model_file.h"
#include "models/common/model.h"

namespace rullama {

// Movable. Thread safety: immutable once read.
struct ModelTowers {
  std::string file_name = {};  // as the user would recognise it; empty: there are no towers
  std::unique_ptr<GgufFile> file =
      {};                      // a file of towers alone; null: they are in the model's file
  MappingNotice mapping = {};  // of that file
  Towers towers = {};

  [[nodiscard]] bool any() const { return towers.picture || towers.sound; }
};

// Reads the towers from the file that the configuration names (model.mmproj), else from the file of
// towers in Ollama's store, else from the model's own file. Tensors are not read, so this costs
// neither time nor memory. Towers that nobody asked for and that cannot be used are a warning, and
// the model is then one of text.
//
// Errors, of a file that the configuration names: model.tower if it has no towers or is for another
// model, model.media (kUsage) for a model that takes no media; those of GgufFile::Open and of
// Model::ReadTowers.
Result<ModelTowers> ReadModelTowers(const Config& config, const ModelFile& model_file,
                                    const Model& model, const HostHooks& hooks, Notices& notices);

}  // namespace rullama
