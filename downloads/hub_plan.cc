#include "downloads/hub_plan.h"

#include <iterator>
#include <utility>

#include "core/base/printable.h"
#include "downloads/answers.h"

namespace rullama::downloads {
namespace {

constexpr size_t kMaxApiBytes = size_t{64} << 20;  // all pages together
constexpr size_t kMaxPages = 1000;

// The API of one repository.
class HubApi {
 public:
  HubApi(const HubName& name, Url endpoint, std::string page, PullConnection& connection)
      : name_(name),
        endpoint_(std::move(endpoint)),
        page_(std::move(page)),
        connection_(connection) {}

  Result<std::string> CommitOf(const std::string& revision) {
    RL_ASSIGN_OR_RETURN(const FetchedText answer,
                        Get(fmt::format("{}/revision/{}", ApiUrl(), EscapePath(revision))));
    return ReadHubCommit(answer.text);
  }

  Result<std::vector<HubFile>> FilesOf(const std::string& commit) {
    std::vector<HubFile> files;
    std::string next = fmt::format("{}/tree/{}?recursive=true", ApiUrl(), commit);
    for (size_t page = 0; page < kMaxPages; ++page) {
      RL_ASSIGN_OR_RETURN(const FetchedText answer, Get(next));
      RL_ASSIGN_OR_RETURN(std::vector<HubFile> some, ReadHubTree(answer.text));
      std::move(some.begin(), some.end(), std::back_inserter(files));
      const std::string link = NextPage(answer.outcome.head.Field("link"));
      if (link.empty()) return files;
      RL_ASSIGN_OR_RETURN(const Url url, ResolveUrl(answer.outcome.head.url, link));
      if (url.Origin() != endpoint_.Origin()) {
        return MakeError(ErrorKind::kIo, "pull.redirect",
                         "the Hub's list of files continues on '{}', expected '{}'",
                         ShownName(url.Origin()), ShownName(endpoint_.Origin()));
      }
      next = url.text;
    }
    return MakeError(ErrorKind::kIo, "pull.protocol",
                     "the Hub's list of files has more than {} pages", kMaxPages);
  }

 private:
  [[nodiscard]] std::string ApiUrl() const {
    return fmt::format("{}/api/models/{}", EndpointText(endpoint_), name_.repo);
  }
  static std::string EndpointText(const Url& url) {
    std::string text = url.text;
    while (text.ends_with('/')) text.pop_back();
    return text;
  }

  Result<FetchedText> Get(const std::string& address) {
    RL_ASSIGN_OR_RETURN(Url url, ParseUrl(address));
    RL_ASSIGN_OR_RETURN(
        FetchedText answer,
        FetchText(connection_.client,
                  {.url = std::move(url), .authorization = connection_.authorization},
                  kMaxApiBytes - read_bytes_, connection_.options, connection_.hooks));
    if (!answer.outcome.succeeded()) {
      return tl::unexpected(ErrorOfAnswer(answer.outcome, name_.repo, page_));
    }
    read_bytes_ += answer.text.size();
    return answer;
  }

  const HubName& name_;
  Url endpoint_;
  std::string page_;
  PullConnection& connection_;
  size_t read_bytes_ = 0;
};

// The way from the folder of a link to the blobs: one level up for each folder of `path`.
std::filesystem::path LinkTarget(const std::string& path, const std::string& oid) {
  std::filesystem::path target = "../..";
  for (const char c : path) {
    if (c == '/') target /= "..";
  }
  return target / "blobs" / oid;
}

struct HubStorePaths {
  std::filesystem::path folder;
  std::filesystem::path snapshot;
  std::filesystem::path locks;
};

void PlanHubFile(const HubFile& file, const std::string& address, const HubStorePaths& store,
                 PullPlan& plan) {
  const std::string& oid = file.digest.hex;
  const std::filesystem::path blob = store.folder / "blobs" / oid;
  plan.files.push_back({.name = file.path,
                        .url = fmt::format("{}/{}", address, EscapePath(file.path, "/")),
                        .bytes = file.bytes,
                        .digest = file.digest,
                        .blob = blob,
                        .partial = blob.string() + kHubPartialSuffix,
                        .lock = store.locks / (oid + ".lock")});
  plan.links.push_back({store.snapshot / file.path, LinkTarget(file.path, oid)});
}

}  // namespace

Result<PullPlan> PlanHubPull(const HubName& name, const std::string& revision,
                             const HubChoice& choice, const HubPlaces& places,
                             PullConnection& connection) {
  RL_RETURN_IF_ERROR(CheckRevision(revision));
  const auto endpoint = ParseUrl(places.endpoint);
  if (!endpoint) {
    return MakeError(ErrorKind::kUsage, "pull.name",
                     "HF_ENDPOINT is '{}', expected an address that begins with https://",
                     ShownName(places.endpoint));
  }
  RL_ASSIGN_OR_RETURN(const std::string token, places.Token());
  RL_RETURN_IF_ERROR(CheckPlainHttp(*endpoint, connection.options.insecure, !token.empty()));
  connection.authorization = token.empty() ? std::string() : "Bearer " + token;
  const std::string page = fmt::format("{}/{}", places.endpoint, name.repo);
  HubApi api(name, *endpoint, page, connection);
  RL_ASSIGN_OR_RETURN(const std::string commit, api.CommitOf(revision));
  RL_ASSIGN_OR_RETURN(const std::vector<HubFile> files, api.FilesOf(commit));
  RL_ASSIGN_OR_RETURN(const HubSelection selection, ChooseHubFiles(files, choice, name.repo));

  const std::filesystem::path folder = places.FolderOf(name.repo);
  const HubStorePaths store{folder, folder / "snapshots" / commit, places.LocksOf(name.repo)};
  PullPlan plan{.root = places.cache, .page = page};
  const std::string address = fmt::format("{}/resolve/{}", page, commit);
  const auto add = [&](size_t index) {
    PlanHubFile(files[index], address, store, plan);
    return store.snapshot / files[index].path;
  };
  for (const size_t part : selection.parts) add(part);
  plan.paths.model = store.snapshot / files[selection.parts.front()].path;
  if (selection.mmproj) plan.paths.projector = add(*selection.mmproj);
  if (selection.mtp) plan.paths.draft = add(*selection.mtp);
  // A commit is its own name.
  if (revision != commit) plan.text = PlannedText{folder / "refs" / revision, commit};
  return plan;
}

}  // namespace rullama::downloads
