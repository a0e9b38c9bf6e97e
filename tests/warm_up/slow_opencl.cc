// A layer of OpenCL in which each build of a program is noted and takes its time (slow_compiler.h).
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_icd.h>
#include <CL/cl_layer.h>

#include <algorithm>
#include <cstring>

#include "tests/warm_up/slow_compiler.h"

#define EXPORTED __attribute__((visibility("default")))

namespace {

const cl_icd_dispatch* next = nullptr;
cl_icd_dispatch own;

cl_int CL_API_CALL BuildProgram(cl_program program, cl_uint count, const cl_device_id* devices,
                                const char* options, void(CL_CALLBACK* notify)(cl_program, void*),
                                void* data) {
  rullama::slow_compiler::NoteAndWait("program");
  return next->clBuildProgram(program, count, devices, options, notify, data);
}

}  // namespace

extern "C" EXPORTED CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t room,
                                                                   void* value, size_t* needed) {
  constexpr char kName[] = "rullama slow compiler";
  constexpr cl_layer_api_version kVersion = CL_LAYER_API_VERSION_100;
  const bool is_version = name == CL_LAYER_API_VERSION;
  if (!is_version && name != CL_LAYER_NAME) return CL_INVALID_VALUE;
  const void* from = is_version ? static_cast<const void*>(&kVersion) : kName;
  const size_t size = is_version ? sizeof(kVersion) : sizeof(kName);
  if (needed != nullptr) *needed = size;
  if (value == nullptr) return CL_SUCCESS;
  if (room < size) return CL_INVALID_VALUE;
  std::memcpy(value, from, size);
  return CL_SUCCESS;
}

extern "C" EXPORTED CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint count,
                                                                const cl_icd_dispatch* target,
                                                                cl_uint* own_count,
                                                                const cl_icd_dispatch** layer) {
  next = target;
  constexpr cl_uint kEntries = sizeof(own) / sizeof(void*);
  std::memcpy(&own, target, std::min(count, kEntries) * sizeof(void*));
  own.clBuildProgram = BuildProgram;
  *own_count = std::min(count, kEntries);
  *layer = &own;
  return CL_SUCCESS;
}
