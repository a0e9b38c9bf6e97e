#version 460
// A whole step in one dispatch: workgroups that all run at the same time go through lists of tasks
// and wait for one another between levels, in place of a dispatch for each task and a barrier of
// the command buffer for each level. The code of the tasks is joined to this (join.h).
//
// A barrier is a counter on the device. It ends only if every workgroup of the dispatch runs, which
// Vulkan does not promise: the host starts no more than fit on the device at once, and whoever
// waits too long gives up and says so.
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_ballot : require
#include "common.glsl"

layout(buffer_reference, std430, buffer_reference_align = 16) CONSTANT Entries { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) BUFFER Meeting {
  uint arrived;  // in all levels of this run
  uint left;
};

layout(push_constant, std430) uniform Push {
  uvec2 entries;  // two vectors each, those of a workgroup one after another (persistent.h)
  uvec2 starts;   // u32[workgroups]: the first entry of each
  uvec2 meeting;
  uvec2 step;
  uint levels;
}
p;

const uint kMaxPolls = 1u << 22;  // seconds: a level takes microseconds

uint task_kind;
shared uint shared_met;

// Calls the task of kind `task_kind`. The joiner puts a switch in place of this body.
void RunTask() {}

// Whether all workgroups came: what they wrote before is seen after. One invocation speaks for its
// workgroup, which the barriers before and after tie to it.
bool Meet(uint level) {
  controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup,
                 gl_StorageSemanticsBuffer | gl_StorageSemanticsShared,
                 gl_SemanticsAcquireRelease | gl_SemanticsMakeAvailable | gl_SemanticsMakeVisible);
  if (gl_LocalInvocationIndex == 0) {
    Meeting meeting = Meeting(p.meeting);
    const uint all = (level + 1) * gl_NumWorkGroups.x;
    memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer,
                  gl_SemanticsRelease | gl_SemanticsMakeAvailable);
    // The old value is not read back: that would be one more round trip to memory.
    atomicAdd(meeting.arrived, 1u, gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelaxed);
    uint arrived = 0;
    for (uint polls = 0; arrived < all && polls < kMaxPolls; ++polls) {
      arrived = atomicLoad(meeting.arrived, gl_ScopeDevice, gl_StorageSemanticsBuffer,
                           gl_SemanticsRelaxed);
    }
    memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer,
                  gl_SemanticsAcquire | gl_SemanticsMakeVisible);
    shared_met = arrived >= all ? 1 : 0;
  }
  controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup,
                 gl_StorageSemanticsBuffer | gl_StorageSemanticsShared,
                 gl_SemanticsAcquireRelease | gl_SemanticsMakeAvailable | gl_SemanticsMakeVisible);
  return shared_met != 0;
}

// The last one leaves the counters as they were found.
void Leave() {
  if (gl_LocalInvocationIndex != 0) return;
  Meeting meeting = Meeting(p.meeting);
  const uint before = atomicAdd(meeting.left, 1u, gl_ScopeDevice, gl_StorageSemanticsBuffer,
                                gl_SemanticsAcquireRelease);
  if (before + 1 < gl_NumWorkGroups.x) return;
  atomicStore(meeting.arrived, 0u, gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelease);
  atomicStore(meeting.left, 0u, gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelease);
}

void main() {
  Entries entries = Entries(p.entries);
  uint at = 2 * U32(p.starts).v[gl_WorkGroupID.x];
  uvec4 first = entries.v[at], second = entries.v[at + 1];
  for (uint level = 0; level < p.levels;) {
    const uint kind = subgroupBroadcastFirst(first.x);
    task_push = subgroupBroadcastFirst(first.yz);
    task_group = subgroupBroadcastFirst(uvec3(first.w, second.x & 0xFFFFu, second.x >> 16));
    task_groups = subgroupBroadcastFirst(second.yzw);
    task_kind = kind & kNoTask;
    // The next one is on its way meanwhile; after the last there is an empty one.
    at += 2;
    first = entries.v[at];
    second = entries.v[at + 1];
    if (task_kind != kNoTask) RunTask();
    if ((kind & kEndsLevel) == 0) {
      barrier();  // tasks share memory
      continue;
    }
    if (++level == p.levels) break;
    if (!Meet(level - 1)) {
      Step(p.step).failed_op = kStuckStep;
      break;
    }
  }
  Leave();
}
