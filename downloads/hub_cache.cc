#include "downloads/hub_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <system_error>
#include <utility>

#include "core/base/printable.h"
#include "downloads/partial_file.h"
#include "downloads/store_files.h"

namespace rullama::downloads {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxEntries = 100'000;  // of a snapshot; one with more is not looked through
constexpr size_t kMaxRefBytes = 256;

// The files of a snapshot. Links to blobs that are gone are left out.
std::vector<HubFile> FilesOfSnapshot(const fs::path& snapshot) {
  std::vector<HubFile> files;
  std::error_code failure;
  fs::recursive_directory_iterator entry(snapshot, failure);
  for (size_t seen = 0;
       !failure && entry != fs::recursive_directory_iterator() && seen < kMaxEntries;
       ++seen, entry.increment(failure)) {
    std::error_code ignored;
    if (!fs::is_regular_file(entry->path(), ignored)) continue;
    const std::string path = entry->path().lexically_relative(snapshot).generic_string();
    const uintmax_t bytes = fs::file_size(entry->path(), ignored);
    if (IsSafePath(path)) files.push_back({.path = path, .bytes = bytes});
  }
  std::ranges::sort(files, {}, &HubFile::path);
  return files;
}

std::vector<fs::path> FoldersIn(const fs::path& folder) {
  std::vector<fs::path> folders;
  std::error_code failure;
  fs::directory_iterator entry(folder, failure);
  for (; !failure && entry != fs::directory_iterator(); entry.increment(failure)) {
    std::error_code ignored;
    if (entry->is_directory(ignored)) folders.push_back(entry->path());
  }
  std::ranges::sort(folders);
  return folders;
}

// All links of all snapshots, with the blobs they lead to.
struct CachedLink {
  fs::path snapshot;
  std::string path;  // in the snapshot
  std::string blob;  // the name in blobs/; empty for a file that is not a link
};
std::vector<CachedLink> LinksOf(const fs::path& repo) {
  std::vector<CachedLink> links;
  for (const fs::path& snapshot : FoldersIn(repo / "snapshots")) {
    std::error_code failure;
    fs::recursive_directory_iterator entry(snapshot, failure);
    for (; !failure && entry != fs::recursive_directory_iterator(); entry.increment(failure)) {
      std::error_code ignored;
      if (entry->is_directory(ignored) && !entry->is_symlink(ignored)) continue;
      const fs::path target = fs::read_symlink(entry->path(), ignored);
      links.push_back({snapshot, entry->path().lexically_relative(snapshot).generic_string(),
                       target.filename().string()});
    }
  }
  return links;
}

// The paths that `name` means: every GGUF file, or the parts of the models of its quant.
std::set<std::string> PathsToRemove(const std::vector<CachedLink>& links, const HubName& name) {
  std::set<std::string> paths;
  std::set<fs::path> snapshots;
  for (const CachedLink& link : links) {
    if (name.quant.empty() && link.path.ends_with(".gguf")) paths.insert(link.path);
    snapshots.insert(link.snapshot);
  }
  if (name.quant.empty()) return paths;
  for (const fs::path& snapshot : snapshots) {
    std::vector<HubFile> files = FilesOfSnapshot(snapshot);
    const HubChoice choice{.quant = name.quant, .mmproj = false};
    const auto selection = ChooseHubFiles(files, choice, name.repo);
    if (!selection) continue;
    for (const size_t part : selection->parts) paths.insert(files[part].path);
  }
  return paths;
}

Status RemoveBlob(const std::string& oid, const fs::path& repo, const fs::path& locks,
                  const PullHooks& hooks) {
  RL_ASSIGN_OR_RETURN(const FileLock lock,
                      FileLock::Take(locks / (oid + ".lock"), oid, /*removes=*/false, hooks));
  const fs::path blob = repo / "blobs" / oid;
  if (::unlink(blob.c_str()) != 0 && errno != ENOENT) return WriteFailure(blob, errno);
  return OkStatus();
}

// The blobs of which pulls that did not end have left a part.
std::set<std::string> PartialBlobs(const fs::path& repo) {
  std::set<std::string> oids;
  std::error_code failure;
  fs::directory_iterator entry(repo / "blobs", failure);
  for (; !failure && entry != fs::directory_iterator(); entry.increment(failure)) {
    const std::string name = entry->path().filename().string();
    const size_t mark = name.find(kHubPartialSuffix);
    if (mark != name.npos) oids.insert(name.substr(0, mark));
  }
  return oids;
}

Status RemovePartials(const fs::path& repo, const fs::path& locks, const PullHooks& hooks) {
  for (const std::string& oid : PartialBlobs(repo)) {
    RL_ASSIGN_OR_RETURN(const FileLock lock,
                        FileLock::Take(locks / (oid + ".lock"), oid, /*removes=*/false, hooks));
    const PlannedFile file{.name = oid, .partial = repo / "blobs" / (oid + kHubPartialSuffix)};
    PartialFile::Remove(file);
  }
  return OkStatus();
}

// References to snapshots that are gone, and folders without files.
void RemoveRemains(const fs::path& repo, const HubPlaces& places) {
  std::error_code failure;
  std::vector<fs::path> refs;
  fs::recursive_directory_iterator entry(repo / "refs", failure);
  for (; !failure && entry != fs::recursive_directory_iterator(); entry.increment(failure)) {
    std::error_code ignored;
    if (entry->is_regular_file(ignored)) refs.push_back(entry->path());
  }
  for (const fs::path& ref : refs) {
    const std::string commit = ReadOwnFile(ref, kMaxRefBytes);
    if (IsHex(commit, 40) && fs::exists(repo / "snapshots" / commit, failure)) continue;
    ::unlink(ref.c_str());
    RemoveEmptyFolders(ref.parent_path(), repo);
  }
  for (const char* folder : {"blobs", "snapshots", "refs"}) {
    RemoveEmptyFolders(repo / folder, places.cache);
  }
}

}  // namespace

std::optional<ModelPaths> FindInHubCache(const HubName& name, const std::string& revision,
                                         const HubChoice& choice, const HubPlaces& places) {
  const fs::path repo = places.FolderOf(name.repo);
  const bool is_commit = IsHex(revision, 40);
  const std::string commit =
      is_commit ? revision : ReadOwnFile(repo / "refs" / revision, kMaxRefBytes);
  if (!IsHex(commit, 40)) return std::nullopt;
  const fs::path snapshot = repo / "snapshots" / commit;
  const std::vector<HubFile> files = FilesOfSnapshot(snapshot);
  const auto selection = ChooseHubFiles(files, choice, name.repo);
  if (!selection) return std::nullopt;
  ModelPaths paths{.model = snapshot / files[selection->parts.front()].path};
  if (selection->mmproj) paths.projector = snapshot / files[*selection->mmproj].path;
  if (selection->mtp) paths.draft = snapshot / files[*selection->mtp].path;
  return paths;
}

std::vector<CachedHubModel> ListHubCache(const HubPlaces& places) {
  constexpr std::string_view kPrefix = "models--";
  std::vector<CachedHubModel> models;
  for (const fs::path& repo : FoldersIn(places.cache)) {
    std::string text = repo.filename().string();
    const size_t marks = text.find("--", kPrefix.size());
    if (!text.starts_with(kPrefix) || marks == text.npos) continue;
    const auto name = ParseHubName(fmt::format(
        "{}/{}", text.substr(kPrefix.size(), marks - kPrefix.size()), text.substr(marks + 2)));
    if (!name) continue;
    std::set<std::string> known;
    for (const fs::path& snapshot : FoldersIn(repo / "snapshots")) {
      const std::vector<HubFile> files = FilesOfSnapshot(snapshot);
      for (const std::vector<size_t>& parts : HubModels(files)) {
        const HubFile& first = files[parts.front()];
        if (!known.insert(first.path).second) continue;
        CachedHubModel model{.name = *name, .model = snapshot / first.path};
        model.name.quant = QuantOf(first.path);
        for (const size_t part : parts) model.bytes += files[part].bytes;
        struct stat status {};
        if (::stat(model.model.c_str(), &status) == 0) model.modified = status.st_mtime;
        models.push_back(std::move(model));
      }
    }
  }
  std::ranges::stable_sort(models, std::ranges::greater(), &CachedHubModel::modified);
  return models;
}

Status RemoveFromHubCache(const HubName& name, const HubPlaces& places, const PullHooks& hooks) {
  const fs::path repo = places.FolderOf(name.repo);
  const std::vector<CachedLink> links = LinksOf(repo);
  const std::set<std::string> paths = PathsToRemove(links, name);
  const bool partials = name.quant.empty() && !PartialBlobs(repo).empty();
  if (paths.empty() && !partials) {
    return MakeError(ErrorKind::kIo, "rm.not_found",
                     "'{}{}{}' is not in '{}'; 'rullama list' shows what there is", name.repo,
                     name.quant.empty() ? "" : ":", name.quant, places.cache.string());
  }
  std::set<std::string> blobs;
  std::set<std::string> needed;
  for (const CachedLink& link : links) {
    (paths.contains(link.path) ? blobs : needed).insert(link.blob);
  }
  for (const CachedLink& link : links) {
    if (!paths.contains(link.path)) continue;
    const fs::path path = link.snapshot / link.path;
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return WriteFailure(path, errno);
    RemoveEmptyFolders(path.parent_path(), repo);
  }
  for (const std::string& blob : blobs) {
    const bool is_sum = IsHex(blob, 64) || IsHex(blob, 40);
    if (!is_sum || needed.contains(blob)) continue;
    RL_RETURN_IF_ERROR(RemoveBlob(blob, repo, places.LocksOf(name.repo), hooks));
  }
  if (name.quant.empty()) {
    RL_RETURN_IF_ERROR(RemovePartials(repo, places.LocksOf(name.repo), hooks));
  }
  RemoveRemains(repo, places);
  return OkStatus();
}

}  // namespace rullama::downloads
