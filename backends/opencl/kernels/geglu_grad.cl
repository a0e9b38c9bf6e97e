// One element at a time: the derivatives of gelu(gate) * up by both.
#include "common.cl"
#include "geglu_grad.args"
#include "math.cl"

KERNEL geglu_grad(ARGUMENTS) {
  FOR_EACH(i, ROWS_OF(rows) * push.inner) {
    const float gate = AT(float, gate)[i], dy = AT(float, dy)[i];
    AT(float, dgate)[i] = dy * AT(float, up)[i] * GeluTanhGrad(gate);
    AT(float, dup)[i] = dy * GeluTanh(gate);
  }
}
