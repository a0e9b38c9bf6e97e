// The parts of a download: files with their addresses, sums and places, and the records written
// once all of them are there. Plans are made by hub_plan.h and ollama_registry.h, and carried out
// by pull.h. Thread safety: value types.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "downloads/digest.h"

namespace rullama::downloads {

struct PlannedFile {
  std::string name;  // for people
  std::string url = {};
  uint64_t bytes = 0;
  Digest digest = {};
  std::filesystem::path blob = {};     // the final name, which only a file with the right sum gets
  std::filesystem::path partial = {};  // next to it; its state is in the file with ".json" added
  std::filesystem::path lock = {};
  bool removes_lock = false;  // when it is given up
  std::optional<unsigned> mode = {};
};

// A symbolic link from `path` to `target`, a path that is relative to the folder of `path`.
struct PlannedLink {
  std::filesystem::path path;
  std::filesystem::path target;
};

struct PlannedText {
  std::filesystem::path path;
  std::string text;
};

// The files of a model that a program opens.
struct ModelPaths {
  std::filesystem::path model = {};  // the first part of one in parts
  std::optional<std::filesystem::path> projector = {};
  std::optional<std::filesystem::path> draft = {};
};

struct PullPlan {
  std::filesystem::path root;  // of the store, to measure the free space
  std::vector<PlannedFile> files = {};
  std::vector<PlannedLink> links = {};   // made when all files are there
  std::optional<PlannedText> text = {};  // written last: what makes the model known by its name
  ModelPaths paths = {};
  std::string page = {};  // where people ask for access; may be empty
  // Asks for a new authorization if the last one has expired. May be empty.
  std::function<Result<std::string>()> renew = {};
};

struct PullOptions {
  int connections = 4;
  int retries = 5;  // without progress
  int stall_seconds = 30;
  bool insecure = false;  // plain http to other machines
};

// How a caller watches and ends a pull. All but `cancelled` may be empty. Called on the thread of
// the pull.
struct PullHooks {
  std::function<bool()> cancelled;
  // A file from its first byte to its last; also once for one that is there.
  std::function<void(const PlannedFile& file, uint64_t completed)> on_progress = {};
  std::function<void(const std::string& text)> note = {};
  std::function<void(const std::string& text)> trace = {};  // each request, without secrets
};

}  // namespace rullama::downloads
