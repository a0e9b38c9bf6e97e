#version 460
// One workgroup or subgroup for each row of the last dimension: norms, softmax, reductions,
// entropy.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rows.args.glsl"
#include "math.kernel"
#include "row_lanes.glsl"

uint first;  // of the row, in elements

float X(uint i) { return F32(p.x).v[first + i]; }

float SumOf(bool squares) {
  float sum = 0.0;
  FOR_MINE(i, p.columns) {
    const float x = X(i);
    sum += squares ? x * x : x;
  }
  return RowSum(sum);
}

// The maximum, and whether some element is not a number: max() may drop it.
float MaxOf(out bool has_nan) {
  float most = -kInfinity;
  float nan = 0.0;
  FOR_MINE(i, p.columns) {
    const float x = X(i);
    if (IsNan(x)) {
      nan = 1.0;
    } else {
      most = max(most, x);
    }
  }
  most = RowMax(most);
  has_nan = RowMax(nan) > 0.0;
  return most;
}

void Fill(uint row_columns, float value) {
  FOR_MINE(i, row_columns) { F32(p.y).v[first + i] = value; }
}

void Softmax() {
  bool has_nan;
  const float most = MaxOf(has_nan);
  if (has_nan || most == kInfinity) {
    Fill(p.columns, kNan);
    return;
  }
  if (most == -kInfinity) {
    Fill(p.columns, 0.0);
    return;
  }
  float sum = 0.0;
  FOR_MINE(i, p.columns) { sum += Exp(X(i) - most); }
  sum = RowSum(sum);
  FOR_MINE(i, p.columns) { F32(p.y).v[first + i] = Exp(X(i) - most) / sum; }
}

// H = ln S - sum e^z z / S with z = x - max.
void Entropy(uint row) {
  bool has_nan;
  const float most = MaxOf(has_nan);
  float sum = 0.0, weighted = 0.0;
  FOR_MINE(i, p.columns) {
    const float z = X(i) - most;
    const float e = Exp(z);
    sum += e;
    if (e > 0.0) weighted += e * z;
  }
  sum = RowSum(sum);
  weighted = RowSum(weighted);
  if (Lane() == 0) {
    float y = Log(sum) - weighted / sum;
    if (most == -kInfinity) y = 0.0;
    if (has_nan || most == kInfinity) y = kNan;
    F32(p.y).v[row] = y;
  }
}

void Norm() {
  const float mean = SumOf(true) / float(p.columns);
  const float factor = 1.0 / sqrt(mean + p.eps);
  const bool weighted = !IsNull(p.weight);
  const float scale = !IsNull(p.scale) ? F32(p.scale).v[0] : 1.0;
  float squares = 0.0;
  FOR_MINE(i, p.columns) {
    float y = X(i) * factor;
    if (weighted) y *= F32(p.weight).v[i];
    if (kOp == kRmsNorm && kHalf != 0) {
      U16(p.y).v[first + i] = uint16_t(FloatToHalf(y));
      continue;
    }
    if (kOp != kRmsNorm) y = (F32(p.residual).v[first + i] + y) * scale;
    F32(p.y).v[first + i] = y;
    squares += y * y;
  }
  if (kOp != kTwoNorms) return;
  const float factor2 = 1.0 / sqrt(RowSum(squares) / float(p.columns) + p.eps2);
  const bool weighted2 = !IsNull(p.weight2);
  FOR_MINE(i, p.columns) {
    float y = F32(p.y).v[first + i] * factor2;  // this invocation's own
    if (weighted2) y *= F32(p.weight2).v[i];
    F32(p.y2).v[first + i] = y;
  }
}

// eps is ln p
void MinP() {
  bool has_nan;
  const float most = MaxOf(has_nan);
  FOR_MINE(i, p.columns) {
    const float x = X(i);
    const bool kept = !IsNan(x) && x >= most + p.eps;
    F32(p.y).v[first + i] = kept ? x : -kInfinity;
  }
}

void Reduce(uint row) {
  float y;
  if (kOp == kMax) {
    bool has_nan;
    y = MaxOf(has_nan);
    if (has_nan) y = kNan;
  } else {
    y = SumOf(false);
    if (kOp == kMean) y /= float(p.columns);
  }
  if (Lane() == 0) F32(p.y).v[row] = y;
}

void main() {
  FOR_MY_ROWS(row, At(p.rows, Step(p.step))) {
    first = row * p.columns;
    if (kOp == kSoftmax) {
      Softmax();
    } else if (kOp == kEntropy) {
      Entropy(row);
    } else if (kOp == kRmsNorm || kOp == kResidualNorm || kOp == kTwoNorms) {
      Norm();
    } else if (kOp == kMinP) {
      MinP();
    } else {
      Reduce(row);
    }
  }
}
