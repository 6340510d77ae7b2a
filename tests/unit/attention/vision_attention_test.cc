#include "attention/vision_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "attention/registry.h"
#include "proto/base/error.h"

namespace tpsim::attention {
namespace {

constexpr GpuGeneration kGenerations[] = {GpuGeneration::kTuring,    GpuGeneration::kAmpere,
                                          GpuGeneration::kAda,       GpuGeneration::kHopper,
                                          GpuGeneration::kBlackwell, GpuGeneration::kBlackwellSm120,
                                          GpuGeneration::kRocm,      GpuGeneration::kNpu,
                                          GpuGeneration::kXpu,       GpuGeneration::kCpu};

// The MultiModal column of ../shared/reference/002…: what it ticks has a kernel for vision encoders, and what
// it does not has none.
TEST(VisionAttention, IsTheMultiModalColumn) {
  const std::set<std::string_view> ticked = {"fa3", "fa4", "triton", "torch_native", "aiter", "ascend"};
  for (const BackendDescription* backend : backend_list()) {
    const BackendRow& row = backend->row;
    EXPECT_EQ(ticked.contains(row.name), row.multimodal == Support::kYes) << row.name;
    EXPECT_EQ(row.multimodal == Support::kYes, !row.mm_name.empty()) << row.name;
    for (const GpuGeneration generation : kGenerations) {
      if (row.mm_name.empty()) {
        // Neither by its own name nor by the usual ending.
        for (const std::string& name : {std::string(row.name), std::string(row.name) + "_attn"}) {
          const auto names = vision_backend_names();
          if (std::find(names.begin(), names.end(), name) == names.end()) {
            EXPECT_THROW(find_vision_backend(name, generation, "gpu"), UserError) << name;
          }
        }
      } else if (row.generations.contains(generation)) {
        EXPECT_EQ(&find_vision_backend(row.mm_name, generation, "gpu"), &row);
      } else {
        EXPECT_THROW(find_vision_backend(row.mm_name, generation, "gpu"), UserError) << row.mm_name;
      }
    }
  }
  const auto names = vision_backend_names();
  EXPECT_EQ(std::set<std::string_view>(names.begin(), names.end()),
            (std::set<std::string_view>{"fa3", "fa4", "triton_attn", "sdpa", "aiter_attn", "ascend_attn"}));
}

TEST(VisionAttention, EveryDeviceHasADefaultThatRunsThere) {
  for (const GpuGeneration generation : kGenerations) {
    EXPECT_NO_THROW(find_vision_backend(default_vision_backend(generation), generation, "gpu"))
        << to_string(generation);
  }
}

TEST(VisionAttention, OtherKernelsOfSglangAreNamed) {
  for (const char* const name : {"flashinfer_cudnn", "amx_attn", "xpu_attn", "nonsense", ""}) {
    try {
      find_vision_backend(name, GpuGeneration::kHopper, "gpu");
      FAIL() << name;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("--mm-attention-backend"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace tpsim::attention
