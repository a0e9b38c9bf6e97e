// Derivatives of ops that move elements: reshape, slice, concat, casts, gathers, top-k.
#include "core/passes/derivatives.h"

namespace rullama::derivatives {

void Reshape(Site& s, const ops::Reshape& op) {
  const TensorType& x = s.type(op.x);
  ops::Reshape back{.x = s.dy(), .rank = x.rank};
  if (x.rank > 1) back.d1 = x.dim(1).constant;
  if (x.rank > 2) back.d2 = x.dim(2).constant;
  if (x.rank > 3) back.d3 = x.dim(3).constant;
  s.Give(operands::Reshape::x, s.b.Add(back, s.Part("x")));
}

void Slice(Site& s, const ops::Slice& op) {
  const int64_t size = s.type(op.x).dim(op.axis).constant;
  s.Give(operands::Slice::x, s.b.Add(ops::Pad{.x = s.dy(),
                                              .axis = op.axis,
                                              .before = op.start,
                                              .after = size - op.start - op.size},
                                     s.Part("x")));
}

void Concat(Site& s, const ops::Concat& op) {
  using In = operands::Concat;
  const int64_t a_size = s.type(op.a).dim(op.axis).constant;
  const int64_t b_size = s.type(op.b).dim(op.axis).constant;
  const auto part = [&](int64_t start, int64_t size, const char* name) {
    return s.b.Add(ops::Slice{.x = s.dy(), .axis = op.axis, .start = start, .size = size},
                   s.Part(name));
  };
  if (s.Wants(In::a)) s.Give(In::a, part(0, a_size, "a"));
  if (s.Wants(In::b)) s.Give(In::b, part(a_size, b_size, "b"));
}

// Gradients are f32 whatever the type of their value.
void Cast(Site& s, const ops::Cast&) { s.Give(operands::Cast::x, s.dy()); }

void Copy(Site& s, const ops::Copy&) { s.Give(operands::Copy::x, s.dy()); }

// The gradient of a table of T rows. Columns can be chosen of weights only, which are constants.
void GatherRows(Site& s, const ops::GatherRows& op) {
  using In = operands::GatherRows;
  if (s.type(op.table).rows() != Dim::T() || op.columns != 0) return;
  s.Give(In::table, s.b.Add(ops::ScatterRows{.x = s.dy(), .rows = op.ids}, s.Part("table")));
}

void GatherLast(Site& s, const ops::GatherLast& op) {
  const int64_t n = s.type(op.x).last().constant;
  s.Give(operands::GatherLast::x,
         s.b.Add(ops::ScatterLast{.x = s.dy(), .index = op.index, .n = n}, s.Part("x")));
}

void TopK(Site& s, const ops::TopK& op) {
  const ops::TopK::Results y{s.results[0], s.results[1]};
  const int64_t n = s.type(op.x).last().constant;
  s.Give(operands::TopK::x,
         s.b.Add(ops::ScatterLast{.x = s.dy(), .index = y.indices, .n = n}, s.Part("x")));
}

}  // namespace rullama::derivatives
