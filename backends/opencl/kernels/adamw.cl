// A step of AdamW; the gradient is set to 0.
#include "common.cl"
#include "adamw.args"

KERNEL(adamw) {
  const float lr = *AT(float, lr), g_factor = *AT(float, g_factor);
  const float m_correction = *AT(float, m_correction), v_correction = *AT(float, v_correction);
  __global float* p = AT(float, p);
  __global float* m = AT(float, m);
  __global float* v = AT(float, v);
  __global float* g = AT(float, g);
  FOR_EACH(i, push.count) {
    const float gradient = g[i] * g_factor;
    m[i] = fma(push.m_rate, gradient - m[i], m[i]);
    v[i] = fma(push.v_rate, gradient * gradient - v[i], v[i]);
    const float change = m[i] * m_correction / (sqrt(v[i] * v_correction) + push.eps);
    p[i] -= lr * fma(push.weight_decay, p[i], change);
    g[i] = 0.0f;
  }
}
