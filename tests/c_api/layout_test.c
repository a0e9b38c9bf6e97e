/* The layout of version 1.0 of the C interface. */
#include <rullama/rullama.h>

#define LAYOUT_DEF "tests/c_api/layout_v1_0.def"
#include "tests/abi/layout_rows.h"
