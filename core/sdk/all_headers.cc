// Every header of the SDK as a plugin of stricter authors compiles it (CMakeLists.txt).
#include <rullama/sdk/attributes.h>
#include <rullama/sdk/backend.h>
#include <rullama/sdk/blocks.h>
#include <rullama/sdk/dequantize.h>
#include <rullama/sdk/dtype.h>
#include <rullama/sdk/export.h>
#include <rullama/sdk/half.h>
#include <rullama/sdk/op_scope.h>
#include <rullama/sdk/op_table.h>
#include <rullama/sdk/operands.h>
#include <rullama/sdk/options.h>
#include <rullama/sdk/philox.h>
#include <rullama/sdk/shape.h>
#include <rullama/sdk/slots.h>
#include <rullama/sdk/thunk.h>
#include <rullama/sdk/training.h>
