#include "downloads/pull.h"

#include <algorithm>

#include "downloads/store_files.h"

namespace rullama::downloads {
namespace {

Status CheckRoom(const PullPlan& plan) {
  uint64_t missing = 0;
  for (const PlannedFile& file : plan.files) {
    if (HasBytes(file.blob, file.bytes)) continue;
    const uint64_t left = file.bytes - std::min(PartialFile::BytesLeftBy(file), file.bytes);
    // Sizes of a foreign list may add up to anything.
    missing = left > UINT64_MAX - missing ? UINT64_MAX : missing + left;
  }
  return CheckSpace(plan.root, missing);
}

Status FetchFile(const PullPlan& plan, const PlannedFile& file, PullConnection& connection) {
  const auto report = [&](uint64_t completed) {
    if (connection.hooks.on_progress) connection.hooks.on_progress(file, completed);
  };
  if (HasBytes(file.blob, file.bytes)) {
    report(file.bytes);
    return OkStatus();
  }
  RL_ASSIGN_OR_RETURN(const FileLock lock,
                      FileLock::Take(file.lock, file.name, file.removes_lock, connection.hooks));
  if (HasBytes(file.blob, file.bytes)) {
    report(file.bytes);
    return OkStatus();
  }
  RL_ASSIGN_OR_RETURN(PartialFile partial, PartialFile::Open(file));
  report(partial.done().bytes());
  {
    FileFetch fetch(connection, plan, file, partial);
    RL_RETURN_IF_ERROR(fetch.Run());
  }
  RL_RETURN_IF_ERROR(partial.Finish());
  report(file.bytes);
  return OkStatus();
}

}  // namespace

Status CarryOut(const PullPlan& plan, PullConnection& connection) {
  for (const PlannedFile& file : plan.files) {
    RL_ASSIGN_OR_RETURN([[maybe_unused]] const Url url, ParseUrl(file.url));
  }
  RL_RETURN_IF_ERROR(CheckRoom(plan));
  for (const PlannedFile& file : plan.files) {
    RL_RETURN_IF_ERROR(FetchFile(plan, file, connection));
  }
  for (const PlannedLink& link : plan.links) RL_RETURN_IF_ERROR(MakeLink(link));
  if (!plan.text) return OkStatus();
  RL_RETURN_IF_ERROR(MakeFolders(plan.text->path.parent_path()));
  return ReplaceFile(plan.text->path, plan.text->text);
}

}  // namespace rullama::downloads
