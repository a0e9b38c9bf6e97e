// The losses of the reference against vectors that an independent implementation computed
// (goldens/train-e2b/cross_entropy.json; the numbers of its README).
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "core/reference/eval_test_util.h"

namespace rullama::reference {
namespace {

using Json = nlohmann::json;

// JSON has no NaN and no infinities; they are stored as text.
double NumberOf(const Json& json) {
  return json.is_string() ? std::stod(json.get<std::string>()) : json.get<double>();
}

std::vector<double> NumbersOf(const Json& list) {
  std::vector<double> numbers;
  for (const Json& json : list) numbers.push_back(NumberOf(json));
  return numbers;
}

TEST(TrainingShared, CrossEntropyVectors) {
  std::ifstream file(RULLAMA_SOURCE_DIR "/../shared/goldens/train-e2b/cross_entropy.json");
  ASSERT_TRUE(file) << "the vectors cannot be read";
  const Json json = Json::parse(file);
  ASSERT_GE(json["rows"].size(), 14u);
  for (const Json& row : json["rows"]) {
    SCOPED_TRACE(row.dump());
    const Tensor logits = F32({1, json["vocab"]}, NumbersOf(row["logits"]));
    const Tensor target = I32({1}, {row["target"].get<int32_t>()});
    ExpectValues(Eval(OpKind::kCrossEntropy, OpAttrs(OpKind::kCrossEntropy), {logits, target}),
                 {NumberOf(row["loss"])});
    ExpectValues(Eval(OpKind::kCrossEntropyGrad, OpAttrs(OpKind::kCrossEntropyGrad),
                      {logits, target, F32({1}, {1})}),
                 NumbersOf(row["grad"]));
  }
}

}  // namespace
}  // namespace rullama::reference
