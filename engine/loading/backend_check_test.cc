#include "engine/loading/backend_check.h"

#include <gmock/gmock.h>

#include <memory>
#include <utility>

#include "core/base/must_test_util.h"
#include "core/gguf/gguf.h"
#include "core/plugin/registry.h"
#include "core/reference/reference_backend.h"
#include "models/registry.h"

namespace rullama {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The reference as it would be in a plugin of ABI 1.7, which knows no cache in blocks.
int32_t OlderPluginQuery(const rl_host_v1* host, const rl_plugin_v1** plugin, rl_error* error) {
  static rl_plugin_v1 older;
  const int32_t result = ReferencePluginQuery(host, plugin, error);
  if (result != RL_OK) return result;
  older = **plugin;
  older.abi_minor = 7;
  *plugin = &older;
  return result;
}

class CacheTypesOf : public ::testing::Test {
 protected:
  explicit CacheTypesOf(rl_plugin_query_fn query) {
    registry_.RegisterBuiltIn("reference", query);
    devices_.backend = "reference";
    devices_.devices.push_back(Must(Must(registry_.Find("reference"))->Open(0, {})));
  }

  [[nodiscard]] Status Check(KvDtype keys, KvDtype values = KvDtype::kAuto) const {
    Config config;
    config.context.kv_dtype = keys;
    config.context.v_dtype = values;
    return CheckCacheTypes(*model_, config, devices_);
  }

 private:
  std::shared_ptr<PluginHost> host_ = std::make_shared<PluginHost>(HostOptions{});
  Registry registry_{RegistryOptions{}, host_};
  BackendDevices devices_;
  GgufFile file_ = Must(GgufFile::Open(RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf"));
  std::unique_ptr<Model> model_ = Must(OpenModel(file_));
};

class CacheTypesOfTheReference : public CacheTypesOf {
 protected:
  CacheTypesOfTheReference() : CacheTypesOf(ReferencePluginQuery) {}
};

TEST_F(CacheTypesOfTheReference, AreAllThereAre) {
  for (const KvDtype keys :
       {KvDtype::kF32, KvDtype::kF16, KvDtype::kBF16, KvDtype::kQ8_0, KvDtype::kQ4_0}) {
    const Status status = Check(keys, KvDtype::kQ4_0);
    EXPECT_TRUE(status) << status.error().ToString();
  }
}

class CacheTypesOfAnOlderPlugin : public CacheTypesOf {
 protected:
  CacheTypesOfAnOlderPlugin() : CacheTypesOf(OlderPluginQuery) {}
};

TEST_F(CacheTypesOfAnOlderPlugin, AreNamedWhereOthersAreRefused) {
  for (const KvDtype keys : {KvDtype::kF32, KvDtype::kF16, KvDtype::kBF16}) {
    const Status status = Check(keys);
    EXPECT_TRUE(status) << status.error().ToString();
  }
  const Status blocks = Check(KvDtype::kQ8_0);
  ASSERT_FALSE(blocks);
  EXPECT_EQ(blocks.error().id, "backend.kv_dtype");
  EXPECT_THAT(blocks.error().ToString(),
              AllOf(HasSubstr("a KV cache of q8_0 (context.kv_dtype) does not run on reference"),
                    HasSubstr("expected one of f32, f16, bf16")));
  const Status mixed = Check(KvDtype::kF16, KvDtype::kQ4_0);
  ASSERT_FALSE(mixed);
  EXPECT_THAT(mixed.error().ToString(), HasSubstr("f16 for keys, q4_0 for values"));
}

}  // namespace
}  // namespace rullama
