// The peaks of a device for its roofline, measured with ops that run through its backend as those
// of a model do: the highest rate of bytes in products of one row with matrices larger than caches
// and in an op that reads and writes large rows; the highest rate of operations in products of many
// rows. What the hardware could do with other programs may be more.
//
// Uses the device, one thread at a time, and up to a gigabyte of its memory while it measures.
// Errors: those of the passes and the device.
#pragma once

#include "cli/reports/roofline.h"
#include "core/base/status.h"
#include "core/plugin/device.h"

namespace rullama::cli {

// Unknown peaks for a device that does not tell when its ops run.
Result<DevicePeaks> MeasurePeaks(Device& device);

}  // namespace rullama::cli
