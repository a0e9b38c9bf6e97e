// A group of training processes whose exchange is a Python object.
#pragma once

#include <nanobind/nanobind.h>
#include <rullama/engine/training.h>

#include <cstdint>
#include <exception>

namespace rullama::python {

// Passes on to the object that rullama._finetune makes of a TrainingGroup; its functions take and
// return the members of PartGradient and GroupStep in their order, with f32 arrays of one
// dimension. Made with the GIL; called without. An exception ends the run and is kept for
// RaiseAgain().
class PythonGroup final : public TrainingGroup {
 public:
  explicit PythonGroup(const nanobind::object& group);
  [[nodiscard]] int64_t rank() const override { return rank_; }
  [[nodiscard]] int64_t size() const override { return size_; }
  Status SendPart(int64_t step, int64_t part, PartGradient gradient) override;
  Result<GroupStep> ReceiveStep(int64_t step) override;
  Result<PartGradient> ReceivePart(int64_t step, int64_t part) override;
  Status SendStep(int64_t step, GroupStep result) override;

  // Raises what the object has raised. With the GIL.
  void RaiseAgain() const {
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  template <typename T, typename Call>
  Result<T> With(Call call);

  const nanobind::object& group_;
  int64_t rank_, size_;
  std::exception_ptr raised_;
};

}  // namespace rullama::python
