#include "python/native/training_group.h"

#include <nanobind/ndarray.h>

#include <memory>
#include <span>
#include <tl/expected.hpp>
#include <utility>

#include "python/native/interpreter.h"

namespace nb = nanobind;

namespace rullama::python {
namespace {

using Given = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// An array that shares the values.
nb::object ArrayOf(const FloatArray& array) {
  auto kept = std::make_unique<FloatArray>(array);
  const std::span<const float> values = kept->values();
  const nb::capsule owner(kept.get(), [](void* p) noexcept { delete static_cast<FloatArray*>(p); });
  static_cast<void>(kept.release());  // the capsule has it
  return nb::cast(
      nb::ndarray<nb::numpy, const float, nb::ndim<1>>(values.data(), {values.size()}, owner));
}

FloatArray ValuesOf(const nb::handle& array) {
  const auto release = [](const Given* given) {
    const GilHeld held;
    delete given;
  };
  const std::shared_ptr<const Given> given(new Given(nb::cast<Given>(array)), release);
  return FloatArray({given->data(), given->size()}, given);
}

}  // namespace

PythonGroup::PythonGroup(const nb::object& group)
    : group_(group),
      rank_(nb::cast<int64_t>(group.attr("rank"))),
      size_(nb::cast<int64_t>(group.attr("size"))) {}

template <typename T, typename Call>
Result<T> PythonGroup::With(Call call) {
  const GilHeld held;
  try {
    return call();
  } catch (const std::exception&) {  // nb::python_error, nb::cast_error
    raised_ = std::current_exception();
    return tl::unexpected(Error{.kind = ErrorKind::kRuntime,
                                .id = "train.group",
                                .message = "the group of Python has raised an exception"});
  }
}

Status PythonGroup::SendPart(int64_t step, int64_t part, PartGradient gradient) {
  return With<void>([&]() -> Status {
    group_.attr("send_part")(step, part, gradient.loss.sum, gradient.loss.tokens,
                             ArrayOf(gradient.values));
    return OkStatus();
  });
}

Result<GroupStep> PythonGroup::ReceiveStep(int64_t step) {
  return With<GroupStep>([&]() -> Result<GroupStep> {
    const nb::object values = group_.attr("receive_step")(step);
    return GroupStep{
        .loss = {.sum = nb::cast<double>(values[0]), .tokens = nb::cast<int64_t>(values[1])},
        .norm = nb::cast<double>(values[2]),
        .last = nb::cast<bool>(values[3]),
        .adapter = ValuesOf(values[4])};
  });
}

Result<PartGradient> PythonGroup::ReceivePart(int64_t step, int64_t part) {
  return With<PartGradient>([&]() -> Result<PartGradient> {
    const nb::object values = group_.attr("receive_part")(step, part);
    return PartGradient{
        .loss = {.sum = nb::cast<double>(values[0]), .tokens = nb::cast<int64_t>(values[1])},
        .values = ValuesOf(values[2])};
  });
}

Status PythonGroup::SendStep(int64_t step, GroupStep result) {
  return With<void>([&]() -> Status {
    group_.attr("send_step")(step, result.loss.sum, result.loss.tokens, result.norm, result.last,
                             ArrayOf(result.adapter));
    return OkStatus();
  });
}

}  // namespace rullama::python
