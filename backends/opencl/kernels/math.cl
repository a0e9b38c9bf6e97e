// Functions within 2 ulp of f32: OpenCL allows its own larger errors.

// 2^k for k from -252 to 254, in two factors because one has too small an exponent.
float TimesPowerOfTwo(float x, int k) {
  const int half_k = k >> 1;
  return x * as_float((half_k + 127) << 23) * as_float((k - half_k + 127) << 23);
}

float Exp(float x) {
  if (IS_NAN(x)) return x;
  if (x > 88.8f) return kInfinity;
  if (x < -104.0f) return 0.0f;
  const float k = floor(x * 1.44269504f + 0.5f);
  // ln 2 in two parts, so that the difference is exact
  float r = fma(k, -0.693359375f, x);
  r = fma(k, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = fma(p, r, 1.3981999507e-3f);
  p = fma(p, r, 8.3334519073e-3f);
  p = fma(p, r, 4.1665795894e-2f);
  p = fma(p, r, 1.6666665459e-1f);
  p = fma(p, r, 5.0000001201e-1f);
  p = fma(p, r * r, r) + 1.0f;
  return TimesPowerOfTwo(p, (int)k);
}

float Log(float x) {
  if (IS_NAN(x) || x < 0.0f) return kNan;
  if (x == 0.0f) return -kInfinity;
  if (x == kInfinity) return x;
  int bits = as_int(x);
  int exponent = 0;
  if (bits < 0x00800000) {  // subnormal
    bits = as_int(x * 8388608.0f);
    exponent = -23;
  }
  // mantissa in [sqrt(1/2), sqrt(2))
  exponent += (bits - 0x3F3504F3) >> 23;
  const float m = as_float(bits - (((bits - 0x3F3504F3) >> 23) << 23)) - 1.0f;
  float p = 7.0376836292e-2f;
  p = fma(p, m, -1.1514610310e-1f);
  p = fma(p, m, 1.1676998740e-1f);
  p = fma(p, m, -1.2420140846e-1f);
  p = fma(p, m, 1.4249322787e-1f);
  p = fma(p, m, -1.6668057665e-1f);
  p = fma(p, m, 2.0000714765e-1f);
  p = fma(p, m, -2.4999993993e-1f);
  p = fma(p, m, 3.3333331174e-1f);
  const float square = m * m;
  const float e = (float)exponent;
  float y = p * m * square;
  y = fma(e, -2.12194440e-4f, y);
  y = fma(-0.5f, square, y);
  return fma(e, 0.693359375f, m + y);
}

float Tanh(float x) {
  const float a = fabs(x);
  if (a < 0.625f) {
    const float s = x * x;
    float p = -5.70498872745e-3f;
    p = fma(p, s, 2.06390887954e-2f);
    p = fma(p, s, -5.37397155531e-2f);
    p = fma(p, s, 1.33314422036e-1f);
    p = fma(p, s, -3.33332819422e-1f);
    return fma(p * s, x, x);
  }
  if (IS_NAN(x)) return x;
  const float y = a > 10.0f ? 1.0f : 1.0f - 2.0f / (Exp(2.0f * a) + 1.0f);
  return x < 0.0f ? -y : y;
}

float Sigmoid(float x) {
  const float e = Exp(-fabs(x));
  const float y = 1.0f / (1.0f + e);
  return x < 0.0f ? e * y : y;
}

// 0.5 x (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3), which is x sigmoid(2u): no
// cancellation where tanh is near -1.
float GeluTanh(float x) {
  const float u = 0.79788456080286535588f * x * fma(0.044715f, x * x, 1.0f);
  return x * Sigmoid(2.0f * u);
}

// Its derivative sigmoid(2u) + x sigmoid(2u) sigmoid(-2u) 2u'(x), which is 1 or 0 in f32 beyond 10,
// before the cube overflows.
float GeluTanhGrad(float x) {
  if (fabs(x) > 10.0f) return x > 0.0f ? 1.0f : 0.0f;
  const float square = x * x;
  const float twice = 1.5957691216057308f * x * fma(0.044715f, square, 1.0f);
  const float slope = 1.5957691216057308f * fma(0.134145f, square, 1.0f);
  const float s = Sigmoid(twice);
  return s + x * (s * Sigmoid(-twice)) * slope;
}

// cos and sin of `turns` whole turns, |turns| <= 1/2: after Cephes' polynomials on [-pi/4, pi/4].
float2 CosSin(float turns) {
  const float quadrant = floor(turns * 4.0f + 0.5f);
  const float a = (turns - quadrant * 0.25f) * 6.28318530717958647693f;
  const float s = a * a;
  float sine = fma(fma(-1.9515295891e-4f, s, 8.3321608736e-3f), s, -1.6666654611e-1f);
  sine = fma(sine * s, a, a);
  float cosine =
      fma(fma(2.443315711809948e-5f, s, -1.388731625493765e-3f), s, 4.166664568298827e-2f);
  cosine = fma(cosine * s, s, fma(-0.5f, s, 1.0f));
  const int q = (int)quadrant & 3;
  if (q == 0) return (float2)(cosine, sine);
  if (q == 1) return (float2)(-sine, cosine);
  if (q == 2) return (float2)(-cosine, -sine);
  return (float2)(sine, -cosine);
}

// The fraction of pos times a rate of turns, in [-1/2, 1/2). The rate is a fraction of 64 bits,
// high word first, so that integers give its product exactly, whatever the position.
float Turns(uint pos, uint2 rate) {
  return (float)(int)(pos * rate.x + mul_hi(pos, rate.y)) * 2.3283064365386963e-10f;
}
