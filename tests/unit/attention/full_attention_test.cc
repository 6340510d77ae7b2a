#include "attention/full/full_attention.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>

#include "attention/selection/registry.h"
#include "proto/base/error.h"

namespace tpsim::attention::full_attention_test {
namespace {

constexpr GpuGeneration kGenerations[] = {GpuGeneration::kTuring,    GpuGeneration::kAmpere,
                                          GpuGeneration::kAda,       GpuGeneration::kHopper,
                                          GpuGeneration::kBlackwell, GpuGeneration::kBlackwellSm120,
                                          GpuGeneration::kRocm,      GpuGeneration::kNpu,
                                          GpuGeneration::kXpu,       GpuGeneration::kCpu};

// The MultiModal column of ../shared/reference/002…: what it ticks has a kernel, which runs where the backend
// runs, and what it does not has none.
TEST(FullAttention, IsTheMultiModalColumn) {
  const std::set<std::string_view> ticked = {"fa3", "fa4", "triton", "torch_native", "aiter", "ascend"};
  std::set<std::string_view> with_kernel;
  for (const FullAttentionDescription& kernel : full_attention_list()) {
    with_kernel.insert(kernel.backend);
    const BackendRow& row = find_backend(std::string(kernel.backend), "--attention-backend").row;
    for (const GpuGeneration generation : kGenerations) {
      EXPECT_EQ(kernel.devices.contains(generation), row.generations.contains(generation)) << kernel.name;
      if (kernel.devices.contains(generation)) {
        EXPECT_EQ(&find_full_attention(kernel.name, generation, "gpu"), &kernel);
      } else {
        EXPECT_THROW(find_full_attention(kernel.name, generation, "gpu"), UserError) << kernel.name;
      }
    }
  }
  EXPECT_EQ(with_kernel, ticked);
  for (const BackendDescription* backend : backend_list())
    EXPECT_EQ(ticked.contains(backend->row.name), backend->row.multimodal == Support::kYes)
        << backend->row.name;
}

TEST(FullAttention, NamesAreSglangs) {
  std::set<std::string_view> names;
  for (const FullAttentionDescription& kernel : full_attention_list()) names.insert(kernel.name);
  EXPECT_EQ(names,
            (std::set<std::string_view>{"fa3", "fa4", "triton_attn", "sdpa", "aiter_attn", "ascend_attn"}));
}

TEST(FullAttention, EveryDeviceHasOneDefaultThatRunsThere) {
  for (const GpuGeneration generation : kGenerations) {
    int defaults = 0;
    for (const FullAttentionDescription& kernel : full_attention_list())
      defaults += kernel.default_on.contains(generation) ? 1 : 0;
    EXPECT_EQ(defaults, 1) << to_string(generation);
    EXPECT_TRUE(default_full_attention(generation).devices.contains(generation)) << to_string(generation);
  }
}

TEST(FullAttention, OtherKernelsOfSglangAreNamed) {
  for (const char* const name : {"flashinfer_cudnn", "amx_attn", "xpu_attn", "flashinfer", "nonsense", ""}) {
    try {
      find_full_attention(name, GpuGeneration::kHopper, "gpu");
      FAIL() << name;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("--mm-attention-backend"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace tpsim::attention::full_attention_test
