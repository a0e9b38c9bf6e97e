#version 460
// One workgroup for each row of the result: scatter_rows and scatter_last. Each element adds up
// what meets in it, in order.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "scatter.args.glsl"

void Check(int index, uint size) {
  const bool negative = index < 0;
  const bool wrong =
      kOp == kScatterRows ? negative || uint(index) >= size : !negative && uint(index) >= size;
  if (wrong) Step(p.step).failed_op = p.op;
}

// The sum of the rows of x that go to this row, at one column.
float SumOfRows(uint row, uint column, uint count) {
  float sum = 0.0;
  for (uint i = 0; i < count; ++i) {
    if (uint(I32(p.index).v[i]) == row) sum += F32(p.x).v[i * p.columns + column];
  }
  return sum;
}

// The sum of the elements of a row of x that go to this column.
float SumOfElements(uint row, uint column, uint count) {
  float sum = 0.0;
  for (uint j = 0; j < count; ++j) {
    if (uint(I32(p.index).v[row * count + j]) == column) sum += F32(p.x).v[row * count + j];
  }
  return sum;
}

void main() {
  const uint rows = At(p.rows, Step(p.step));
  const uint count = At(p.count, Step(p.step));
  for (uint row = GROUP.x; row < rows; row += GROUPS.x) {
    if (kOp == kScatterLast || row == 0) {
      const uint first = kOp == kScatterRows ? 0 : row * count;
      for (uint i = gl_LocalInvocationID.x; i < count; i += gl_WorkGroupSize.x) {
        Check(I32(p.index).v[first + i], kOp == kScatterRows ? rows : p.columns);
      }
    }
    for (uint c = gl_LocalInvocationID.x; c < p.columns; c += gl_WorkGroupSize.x) {
      F32(p.y).v[row * p.columns + c] =
          kOp == kScatterRows ? SumOfRows(row, c, count) : SumOfElements(row, c, count);
    }
  }
}
