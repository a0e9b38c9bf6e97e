// Carries out a plan: fetches the files that are missing, one after the other, then makes the links
// and writes the text that makes the model known. A pull that fails or is cancelled leaves parts of
// files, with which the next one continues, and nothing under a final name that is not whole.
//
// Thread safety: any number of pulls, in this process and others; they wait for each other's files.
#pragma once

#include "downloads/file_fetch.h"
#include "downloads/pull_plan.h"

namespace rullama::downloads {

// Errors: run.cancelled, pull.*, file.*.
Status CarryOut(const PullPlan& plan, PullConnection& connection);

}  // namespace rullama::downloads
