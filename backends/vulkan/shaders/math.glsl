// Functions within 2 ulp of f32: Vulkan allows its own far larger errors.

// 2^k for k from -252 to 254, in two factors because one has too small an exponent.
float TimesPowerOfTwo(float x, int k) {
  const int half_k = k >> 1;
  return x * intBitsToFloat((half_k + 127) << 23) * intBitsToFloat((k - half_k + 127) << 23);
}

float Exp(float x) {
  if (IsNan(x)) return x;
  if (x > 88.8) return kInfinity;
  if (x < -104.0) return 0.0;
  const float k = floor(x * 1.44269504 + 0.5);
  // ln 2 in two parts, so that the difference is exact
  precise float r = fma(k, -0.693359375, x);
  r = fma(k, 2.12194440e-4, r);
  float p = 1.9875691500e-4;
  p = fma(p, r, 1.3981999507e-3);
  p = fma(p, r, 8.3334519073e-3);
  p = fma(p, r, 4.1665795894e-2);
  p = fma(p, r, 1.6666665459e-1);
  p = fma(p, r, 5.0000001201e-1);
  p = fma(p, r * r, r) + 1.0;
  return TimesPowerOfTwo(p, int(k));
}

float Log(float x) {
  if (IsNan(x) || x < 0.0) return kNan;
  if (x == 0.0) return -kInfinity;
  if (x == kInfinity) return x;
  int bits = floatBitsToInt(x);
  int exponent = 0;
  if (bits < 0x00800000) {  // subnormal
    bits = floatBitsToInt(x * 8388608.0);
    exponent = -23;
  }
  // mantissa in [sqrt(1/2), sqrt(2))
  exponent += (bits - 0x3F3504F3) >> 23;
  const float m = intBitsToFloat(bits - (((bits - 0x3F3504F3) >> 23) << 23)) - 1.0;
  float p = 7.0376836292e-2;
  p = fma(p, m, -1.1514610310e-1);
  p = fma(p, m, 1.1676998740e-1);
  p = fma(p, m, -1.2420140846e-1);
  p = fma(p, m, 1.4249322787e-1);
  p = fma(p, m, -1.6668057665e-1);
  p = fma(p, m, 2.0000714765e-1);
  p = fma(p, m, -2.4999993993e-1);
  p = fma(p, m, 3.3333331174e-1);
  const float square = m * m;
  const float e = float(exponent);
  float y = p * m * square;
  y = fma(e, -2.12194440e-4, y);
  y = fma(-0.5, square, y);
  return fma(e, 0.693359375, m + y);
}

float Tanh(float x) {
  const float a = abs(x);
  if (a < 0.625) {
    const float s = x * x;
    float p = -5.70498872745e-3;
    p = fma(p, s, 2.06390887954e-2);
    p = fma(p, s, -5.37397155531e-2);
    p = fma(p, s, 1.33314422036e-1);
    p = fma(p, s, -3.33332819422e-1);
    return fma(p * s, x, x);
  }
  if (IsNan(x)) return x;
  const float y = a > 10.0 ? 1.0 : 1.0 - 2.0 / (Exp(2.0 * a) + 1.0);
  return x < 0.0 ? -y : y;
}

float Sigmoid(float x) {
  const float e = Exp(-abs(x));
  const float y = 1.0 / (1.0 + e);
  return x < 0.0 ? e * y : y;
}

// 0.5 x (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3), which is x sigmoid(2u): no
// cancellation where tanh is near -1.
float GeluTanh(float x) {
  const float u = 0.79788456080286535588 * x * fma(0.044715, x * x, 1.0);
  return x * Sigmoid(2.0 * u);
}

// Its derivative sigmoid(2u) + x sigmoid(2u) sigmoid(-2u) 2u'(x), which is 1 or 0 in f32 beyond 10,
// before the cube overflows.
float GeluTanhGrad(float x) {
  if (abs(x) > 10.0) return x > 0.0 ? 1.0 : 0.0;
  const float square = x * x;
  const float twice = 1.5957691216057308 * x * fma(0.044715, square, 1.0);
  const float slope = 1.5957691216057308 * fma(0.134145, square, 1.0);
  const float s = Sigmoid(twice);
  return s + x * (s * Sigmoid(-twice)) * slope;
}

// cos and sin of `turns` whole turns, |turns| <= 1/2: after Cephes' polynomials on [-pi/4, pi/4].
vec2 CosSin(float turns) {
  const float quadrant = floor(turns * 4.0 + 0.5);
  const float a = (turns - quadrant * 0.25) * 6.28318530717958647693;
  const float s = a * a;
  float sine = fma(fma(-1.9515295891e-4, s, 8.3321608736e-3), s, -1.6666654611e-1);
  sine = fma(sine * s, a, a);
  float cosine = fma(fma(2.443315711809948e-5, s, -1.388731625493765e-3), s, 4.166664568298827e-2);
  cosine = fma(cosine * s, s, fma(-0.5, s, 1.0));
  const int q = int(quadrant) & 3;
  if (q == 0) return vec2(cosine, sine);
  if (q == 1) return vec2(-sine, cosine);
  if (q == 2) return vec2(-cosine, -sine);
  return vec2(sine, -cosine);
}

// The fraction of pos times a rate of turns, in [-1/2, 1/2). The rate is a fraction of 64 bits, so
// that integers give its product exactly, whatever the position.
float Turns(uint pos, uvec2 rate) {
  uint high, low;
  umulExtended(pos, rate.y, high, low);
  return float(int(pos * rate.x + high)) * 2.3283064365386963e-10;
}
