// Prompts and slots in files.
#include <filesystem>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>

#include "engine/engine_impl.h"
#include "engine/request_job.h"

namespace rullama {
namespace {

// Error slot.not_found for a file with a slot of another owner. One that is damaged is nobody's.
Status CheckReplaceable(const std::filesystem::path& path, const Sha256Digest& owner) {
  const auto header = ReadSlotFileHeader(path);
  if (header && header->owner != owner) {
    return MakeError(ErrorKind::kIo, "slot.not_found",
                     "there is no file '{}' that may be replaced; choose another name",
                     path.filename().string());
  }
  const bool free = header || header.error().id.starts_with("slot.");
  return free ? OkStatus() : Status(tl::unexpected(header.error()));
}

}  // namespace

Result<int64_t> Engine::SavePrompt(const Request& request, const std::string& path) {
  RL_RETURN_IF_ERROR(impl_->home.Check());
  RL_RETURN_IF_ERROR(impl_->CheckPredicts());
  RL_RETURN_IF_ERROR(impl_->CheckWrites());
  const LoadedModel& loaded = impl_->session->model();
  RL_ASSIGN_OR_RETURN(const DecodedMedia media,
                      DecodeMedia(loaded, request.media, impl_->MediaLimitsOf(request, {})));
  RL_ASSIGN_OR_RETURN(PreparedRequest prepared,
                      PrepareRequest(loaded, impl_->sampler, *impl_->constraints, request, media,
                                     {.choice = request.choice}));
  Job& job = *prepared.job;
  job.cuts = impl_->CutsOf(job.prompt);
  if (job.cuts.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.request",
                     "the prompt has {} tokens, expected at least one chunk of {}; a shorter one "
                     "is read faster than it is loaded, or set context.prefill_chunk",
                     job.prompt.size(), impl_->session->chunk());
  }
  job.kind = Job::Kind::kSave;
  RL_ASSIGN_OR_RETURN(job.space.adapters, impl_->adapters->InForce(request.adapters));
  job.prompt.resize(static_cast<size_t>(job.cuts.back()));
  RL_ASSIGN_OR_RETURN(const ModelFingerprint model,
                      impl_->keys->FingerprintFor(job.prompt, job.space.adapters));
  RL_ASSIGN_OR_RETURN(ChannelItem item, impl_->Await(std::move(prepared.job)));
  auto& stored = std::get<StoredSnapshot>(item);
  stored.model = model;
  RL_RETURN_IF_ERROR(WriteSnapshot(stored, path));
  return std::ssize(stored.tokens);
}

Result<int64_t> Engine::LoadPrompt(const std::string& path) {
  RL_RETURN_IF_ERROR(impl_->home.Check());
  RL_RETURN_IF_ERROR(impl_->CheckPredicts());
  RL_RETURN_IF_ERROR(impl_->CheckWrites());
  RL_ASSIGN_OR_RETURN(StoredSnapshot stored, ReadSnapshot(path));
  RL_ASSIGN_OR_RETURN(const SharedAdapters used, impl_->adapters->InForce(std::nullopt));
  RL_ASSIGN_OR_RETURN(const ModelFingerprint model,
                      impl_->keys->FingerprintFor(stored.tokens, used));
  const int64_t tokens = std::ssize(stored.tokens);
  const std::vector<int64_t> cuts = impl_->CutsOf(stored.tokens);
  if (stored.model != model || cuts.empty() || cuts.back() != tokens) {
    return MakeError(
        ErrorKind::kUsage, "snapshot.mismatch",
        "{} was stored with the fingerprint {:016x}{:016x}, expected {:016x}{:016x}: "
        "another model, mmproj, backend, device, version or chunk length, or other adapters "
        "than those of the engine (Engine::SetAdapterScales); store the prompt again",
        path, stored.model[0], stored.model[1], model[0], model[1]);
  }
  RL_RETURN_IF_ERROR(CheckFits(impl_->session->model(), tokens, 0));
  auto job = std::make_unique<Job>();
  job->kind = Job::Kind::kLoad;
  job->space.adapters = used;
  job->prompt = stored.tokens;
  job->stored = std::move(stored);
  RL_RETURN_IF_ERROR(impl_->Await(std::move(job)));
  return tokens;
}

Result<std::unique_ptr<Job>> Engine::Impl::SlotJob(Job::Kind kind, int32_t slot,
                                                   uint64_t client) const {
  RL_RETURN_IF_ERROR(home.Check());
  RL_RETURN_IF_ERROR(CheckPredicts());
  RL_RETURN_IF_ERROR(CheckWrites());
  if (slot < 0 || slot >= info.slots) {
    return MakeError(ErrorKind::kUsage, "usage.request", "there is no slot {}, expected 0 to {}",
                     slot, info.slots - 1);
  }
  auto job = std::make_unique<Job>();
  job->kind = kind;
  job->slot = slot;
  job->space.client = client;
  return job;
}

Result<SlotResult> Engine::Impl::AwaitSlot(std::unique_ptr<Job> job, const std::stop_token& stop) {
  RL_ASSIGN_OR_RETURN(ChannelItem item, Await(std::move(job), stop));
  return std::get<SlotResult>(std::move(item));
}

Status Engine::Impl::CheckSlot(const SlotFileHeader& stored, const SlotFile& file) const {
  if (stored.owner != Sha256(file.owner)) {
    return MakeError(ErrorKind::kIo, "slot.not_found", "there is no file '{}'",
                     std::filesystem::path(file.path).filename().string());
  }
  if (std::ssize(stored.tokens) <= info.capacity) return OkStatus();
  return MakeError(ErrorKind::kUsage, "slot.too_long",
                   "the saved slot has {} tokens, and a slot holds {}; start the server with a "
                   "larger context.capacity",
                   stored.tokens.size(), info.capacity);
}

Result<SlotTransfer> Engine::SaveSlot(int32_t slot, uint64_t client, const SlotFile& file,
                                      const std::stop_token& stop) {
  RL_ASSIGN_OR_RETURN(auto job, impl_->SlotJob(Job::Kind::kStoreSlot, slot, client));
  RL_ASSIGN_OR_RETURN(const TurnTaker::Turn turn, impl_->TakeTransfer(slot, stop));
  RL_ASSIGN_OR_RETURN(const SlotResult result, impl_->AwaitSlot(std::move(job), stop));
  StoredSlot& stored = *result.stored;
  RL_ASSIGN_OR_RETURN(stored.fingerprints,
                      impl_->keys->FingerprintsFor(stored.tokens, result.adapters));
  std::ranges::copy(impl_->adapters->Stored(result.adapters),
                    std::back_inserter(stored.fingerprints));
  stored.owner = Sha256(file.owner);
  const SlotFileWriter writer(stored);
  const uint64_t bytes = writer.file_bytes();
  const uint64_t room = file.room ? file.room() : std::numeric_limits<uint64_t>::max();
  RL_RETURN_IF_ERROR(CheckReplaceable(file.path, stored.owner));
  if (bytes > room) {
    return MakeError(ErrorKind::kIo, "slot.limit",
                     "the file of the slot has {} bytes, and {} are left of server.slot_save_mib; "
                     "remove other files or raise it",
                     bytes, room);
  }
  if (const Status written = writer.Write(file.path); !written) {
    if (written.error().id != "io.disk_full") return tl::unexpected(written.error());
    return MakeError(ErrorKind::kIo, "slot.no_space",
                     "there is no room on the disk for the file of {} bytes; free some space",
                     bytes);
  }
  return SlotTransfer{result.tokens, bytes};
}

Result<SlotTransfer> Engine::RestoreSlot(int32_t slot, uint64_t client, const SlotFile& file,
                                         const std::stop_token& stop) {
  RL_ASSIGN_OR_RETURN(auto job, impl_->SlotJob(Job::Kind::kFillSlot, slot, client));
  // Before its rows take time and memory.
  RL_ASSIGN_OR_RETURN(const SlotFileHeader header, ReadSlotFileHeader(file.path));
  RL_RETURN_IF_ERROR(impl_->CheckSlot(header, file));
  RL_ASSIGN_OR_RETURN(const TurnTaker::Turn turn, impl_->TakeTransfer(slot, stop));
  RL_ASSIGN_OR_RETURN(StoredSlot stored, ReadSlotFile(file.path));
  // Another file may have got the name, and only now is the sum known to agree.
  RL_RETURN_IF_ERROR(impl_->CheckSlot(stored, file));
  RL_ASSIGN_OR_RETURN(job->space.adapters, impl_->keys->CheckFingerprints(stored));
  const int64_t tokens = std::ssize(stored.tokens);
  const uint64_t bytes = SlotFileWriter(stored).file_bytes();
  job->stored_slot = std::make_shared<const StoredSlot>(std::move(stored));
  const auto filled = impl_->AwaitSlot(std::move(job), stop);
  if (filled) return SlotTransfer{tokens, bytes};
  Error error = filled.error();
  if (error.id == "snapshot.mismatch") error.id = "slot.mismatch";
  return tl::unexpected(std::move(error));
}

Result<int64_t> Engine::EraseSlot(int32_t slot, uint64_t client, std::string_view owner,
                                  const std::stop_token& stop) {
  RL_ASSIGN_OR_RETURN(auto job, impl_->SlotJob(Job::Kind::kEraseSlot, slot, client));
  RL_ASSIGN_OR_RETURN(const SlotResult result, impl_->AwaitSlot(std::move(job), stop));
  RL_ASSIGN_OR_RETURN(const auto erased_of,
                      impl_->keys->OwnerOf(result.erased, result.adapters, owner));
  if (erased_of) impl_->keys->store()->Erase(*erased_of, result.erased);
  return result.tokens;
}

}  // namespace rullama
