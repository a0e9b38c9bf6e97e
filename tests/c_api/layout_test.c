/* The layout of the C interface, version by version. */
#include <rullama/rullama.h>

#define LAYOUT_DEF "tests/c_api/layout.def"
#include "tests/abi/layout_rows.h"
