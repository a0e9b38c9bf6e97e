// The part of Session that saves, restores, copies and rewinds slots.
#include <algorithm>
#include <iterator>
#include <utility>

#include "core/runtime/session.h"

namespace rullama {
namespace {

SnapshotPart PartOf(const SlotState& state, int64_t rows) {
  return {state.name, state.row_type, state.row_bytes, state.rows, rows};
}

std::string TextOf(const SnapshotPart& part) {
  return fmt::format("{} rows of {} for '{}'", part.state_rows, part.row_type, part.state);
}

tl::unexpected<Error> Misfit(const std::string& found, const std::string& expected) {
  return MakeError(ErrorKind::kUsage, "snapshot.mismatch",
                   "the snapshot has {}, expected {}; it was made with another model or another "
                   "configuration (context size, type of the KV cache, sampler), so read the "
                   "prompt again",
                   found, expected);
}

// Whether rows [0, part.rows) of a snapshot are the same rows of the session's state. Where the
// numbers of rows differ, this holds until the shorter one wraps.
Status CheckPart(const SnapshotPart& part, const SlotState& state, const SnapshotInfo& info) {
  const SnapshotPart expected = PartOf(state, part.rows);
  if (part.state != expected.state || part.row_type != expected.row_type ||
      part.row_bytes != expected.row_bytes) {
    return Misfit(TextOf(part), TextOf(expected));
  }
  if (part.state_rows != expected.state_rows &&
      info.written > std::min(part.state_rows, expected.state_rows)) {
    return Misfit(fmt::format("{} after {} tokens", TextOf(part), info.written), TextOf(expected));
  }
  return OkStatus();
}

}  // namespace

Status Session::CheckSlot(int32_t slot) const {
  if (slot < 0 || static_cast<size_t>(slot) >= past_.size()) {
    return MakeError(ErrorKind::kRuntime, "session.internal", "slot {} of {}", slot, past_.size());
  }
  if (!IsInFlight(slot)) return OkStatus();
  return MakeError(ErrorKind::kRuntime, "session.internal", "slot {} has a step in flight", slot);
}

Status Session::CheckPosition(int32_t slot, int32_t p) const {
  if (p < 0 || p > past(slot)) {
    return MakeError(ErrorKind::kRuntime, "session.internal",
                     "position {} of slot {}, which holds {} tokens", p, slot, past(slot));
  }
  const SlotLog& log = logs_[static_cast<size_t>(slot)];
  if (log.Holds(p)) return OkStatus();
  return MakeError(ErrorKind::kRuntime, "snapshot.rewind",
                   "slot {} no longer holds what position {} needs: its rings were written up to "
                   "position {}, expected 0 or at least {}; restore a snapshot or read the prompt "
                   "again",
                   slot, p, log.written(), log.earliest());
}

SnapshotInfo Session::Describe(int32_t slot, int32_t p, SnapshotContent content) const {
  const SlotLog& log = logs_[static_cast<size_t>(slot)];
  SnapshotInfo info{.content = content, .position = p};
  info.written = log.written() <= slot_states_->shortest() ? p : log.written();
  for (const SlotState& state : slot_states_->all()) {
    if (content == SnapshotContent::kRings && state.rows == slot_states_->longest()) continue;
    info.parts.push_back(PartOf(state, state.RowsAfter(info.written)));
  }
  return info;
}

Result<Snapshot> Session::Save(int32_t slot, int32_t p, SnapshotContent content) {
  RL_RETURN_IF_ERROR(CheckSlot(slot));
  if (!slot_states_) return tl::unexpected(slot_states_.error());
  RL_RETURN_IF_ERROR(CheckPosition(slot, p));
  RL_ASSIGN_OR_RETURN(Snapshot snapshot, Snapshot::Allocate(Describe(slot, p, content)));
  WaitForSteps();
  std::span<std::byte> rest = snapshot.data();
  for (const SnapshotPart& part : snapshot.info().parts) {
    RL_RETURN_IF_ERROR(resources_.ReadState(part.state, SlotStateOf(part.state).OffsetOf(slot),
                                            rest.first(static_cast<size_t>(part.bytes()))));
    rest = rest.subspan(static_cast<size_t>(part.bytes()));
  }
  snapshot.origin_ = {identity_, slot, logs_[static_cast<size_t>(slot)].moment()};
  return snapshot;
}

Result<Snapshot> Session::Complete(const Snapshot& rings) {
  if (!slot_states_) return tl::unexpected(slot_states_.error());
  const int32_t slot = rings.origin_.slot;
  RL_RETURN_IF_ERROR(CheckSlot(slot));
  RL_RETURN_IF_ERROR(CheckFits(slot, rings));
  SnapshotInfo info{.content = SnapshotContent::kAll,
                    .position = rings.position(),
                    .written = rings.info().written};
  info.parts.reserve(slot_states_->all().size());
  for (const SlotState& state : slot_states_->all()) {
    info.parts.push_back(PartOf(state, state.RowsAfter(info.written)));
  }
  RL_ASSIGN_OR_RETURN(Snapshot snapshot, Snapshot::Allocate(std::move(info)));
  WaitForSteps();
  // Both list the states in the same order.
  std::span<std::byte> rest = snapshot.data();
  std::span<const std::byte> kept = rings.data();
  auto next = rings.info().parts.begin();
  for (const SnapshotPart& part : snapshot.info().parts) {
    const std::span<std::byte> rows = rest.first(static_cast<size_t>(part.bytes()));
    if (next != rings.info().parts.end() && next->state == part.state) {
      std::ranges::copy(kept.first(static_cast<size_t>(part.bytes())), rows.begin());
      kept = kept.subspan(static_cast<size_t>(part.bytes()));
      ++next;
    } else {
      RL_RETURN_IF_ERROR(
          resources_.ReadState(part.state, SlotStateOf(part.state).OffsetOf(slot), rows));
    }
    rest = rest.subspan(static_cast<size_t>(part.bytes()));
  }
  return snapshot;
}

const SlotState& Session::SlotStateOf(std::string_view name) const {
  return *std::ranges::find(slot_states_->all(), name, &SlotState::name);
}

Result<Snapshot> Session::CopyRings(const Snapshot& snapshot) const {
  if (!slot_states_) return tl::unexpected(slot_states_.error());
  const auto is_ring = [this](const SnapshotPart& part) {
    return SlotStateOf(part.state).rows != slot_states_->longest();
  };
  const SnapshotInfo& from = snapshot.info();
  SnapshotInfo info{
      .content = SnapshotContent::kRings, .position = from.position, .written = from.written};
  std::ranges::copy_if(from.parts, std::back_inserter(info.parts), is_ring);
  RL_ASSIGN_OR_RETURN(Snapshot rings, Snapshot::Allocate(std::move(info)));
  std::span<const std::byte> rest = snapshot.data();
  std::span<std::byte> out = rings.data();
  for (const SnapshotPart& part : from.parts) {
    if (is_ring(part)) {
      std::ranges::copy(rest.first(static_cast<size_t>(part.bytes())), out.begin());
      out = out.subspan(static_cast<size_t>(part.bytes()));
    }
    rest = rest.subspan(static_cast<size_t>(part.bytes()));
  }
  return rings;
}

Status Session::Adopt(int32_t slot, Snapshot& rings) const {
  RL_RETURN_IF_ERROR(CheckSlot(slot));
  if (rings.position() > past(slot)) {
    return MakeError(ErrorKind::kRuntime, "session.internal",
                     "rings at position {} for slot {}, which holds {} tokens", rings.position(),
                     slot, past(slot));
  }
  rings.origin_ = {identity_, slot, logs_[static_cast<size_t>(slot)].moment()};
  return CheckFits(slot, rings);
}

Status Session::CheckFits(int32_t slot, const Snapshot& snapshot) const {
  if (!slot_states_) return tl::unexpected(slot_states_.error());
  const SnapshotInfo& info = snapshot.info();
  const SnapshotInfo expected = Describe(slot, 0, info.content);
  if (info.parts.size() != expected.parts.size()) {
    return Misfit(fmt::format("{} states", info.parts.size()),
                  fmt::format("{}", expected.parts.size()));
  }
  for (size_t i = 0; i < info.parts.size(); ++i) {
    RL_RETURN_IF_ERROR(CheckPart(info.parts[i], SlotStateOf(expected.parts[i].state), info));
  }
  if (snapshot.complete()) return OkStatus();
  const SlotLog& log = logs_[static_cast<size_t>(slot)];
  const Snapshot::Origin& origin = snapshot.origin_;
  if (origin.session != identity_ || origin.slot != slot ||
      !log.KeptSince(origin.moment, info.position) || log.written() > slot_states_->longest()) {
    return MakeError(ErrorKind::kRuntime, "snapshot.stale",
                     "the snapshot at position {} has only the rings of a slot, and slot {} no "
                     "longer holds the other rows; save complete snapshots of slots that are given "
                     "away",
                     info.position, slot);
  }
  return OkStatus();
}

Status Session::PrepareStates() {
  for (const SlotState& state : slot_states_->all()) {
    if (resources_.HoldsState(state.name)) continue;
    const bool has_outputs = !graphs_[state.graph].graph.outputs.empty();
    RL_RETURN_IF_ERROR(Prepare(1, has_outputs ? DemandMode::kPerOutput : DemandMode::kStateOnly,
                               GraphHandle{state.graph}));
  }
  return OkStatus();
}

Status Session::Restore(int32_t slot, const Snapshot& snapshot) {
  RL_RETURN_IF_ERROR(CheckSlot(slot));
  if (!slot_states_) return tl::unexpected(slot_states_.error());
  RL_RETURN_IF_ERROR(CheckFits(slot, snapshot));
  RL_RETURN_IF_ERROR(PrepareStates());
  WaitForSteps();
  const SnapshotInfo& info = snapshot.info();
  std::span<const std::byte> rest = snapshot.data();
  for (const SnapshotPart& part : info.parts) {
    const uint64_t offset = SlotStateOf(part.state).OffsetOf(slot);
    const Status written =
        resources_.WriteState(part.state, offset, rest.first(static_cast<size_t>(part.bytes())));
    if (!written) ForgetSlot(slot);
    RL_RETURN_IF_ERROR(written);
    rest = rest.subspan(static_cast<size_t>(part.bytes()));
  }
  past_[static_cast<size_t>(slot)] = info.position;
  logs_[static_cast<size_t>(slot)].Replace(snapshot.complete() ? 0 : info.position, info.written);
  return OkStatus();
}

Status Session::Fork(int32_t from, int32_t to) {
  RL_RETURN_IF_ERROR(CheckSlot(from));
  RL_RETURN_IF_ERROR(CheckSlot(to));
  if (from == to) return OkStatus();
  RL_ASSIGN_OR_RETURN(const Snapshot snapshot, Save(from, past(from)));
  return Restore(to, snapshot);
}

Status Session::SetPast(int32_t slot, int32_t p) {
  RL_RETURN_IF_ERROR(CheckSlot(slot));
  if (!slot_states_ && p > 0) return tl::unexpected(slot_states_.error());
  RL_RETURN_IF_ERROR(CheckPosition(slot, p));
  if (p == past(slot)) return OkStatus();
  past_[static_cast<size_t>(slot)] = p;
  logs_[static_cast<size_t>(slot)].GoBack(p);
  return OkStatus();
}

bool Session::CanGoBack(int32_t slot, int32_t p) const {
  return CheckSlot(slot).has_value() && (slot_states_.has_value() || p == 0) &&
         CheckPosition(slot, p).has_value();
}

void Session::ForgetSlot(int32_t slot) {
  past_[static_cast<size_t>(slot)] = 0;
  logs_[static_cast<size_t>(slot)].GoBack(0);
}

}  // namespace rullama
