/* The layout of versions 1.0 to 1.8 of the plugin ABI. */
#include <rullama/abi/rullama_abi.h>

#define LAYOUT_DEF "tests/abi/layout.def"
#include "tests/abi/layout_rows.h"
