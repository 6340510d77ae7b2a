#include "attention/registry.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "proto/base/error.h"

namespace tpsim::attention {
namespace {

std::string sentence(const CombinationRequest& request) {
  try {
    check_combination(request);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

CombinationRequest on_hopper(const std::string& prefill, const std::string& decode) {
  CombinationRequest request;
  request.pair = {prefill, decode};
  request.gpu = "h200-sxm";
  request.generation = GpuGeneration::kHopper;
  return request;
}

TEST(Registry, HoldsEveryDocumentedName) {
  std::set<std::string> names;
  for (const BackendDescription* backend : backend_list()) names.emplace(backend->row.name);
  const std::set<std::string> documented = {
      "triton", "torch_native", "flex_attention", "nsa",        "cutlass_mla", "fa3",
      "fa4",    "flashinfer",   "flashmla",       "trtllm_mla", "trtllm_mha",  "dual_chunk_flash_attn",
      "aiter",  "wave",         "intel_amx",      "ascend",     "intel_xpu"};
  EXPECT_EQ(names, documented);
}

TEST(Registry, SaysTheNearestName) {
  try {
    find_backend("flashinfre", "--attention-backend");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean flashinfer"), std::string::npos) << error.what();
  }
}

TEST(Registry, RefusesWhatCannotBe) {
  EXPECT_EQ(sentence(on_hopper("fa3", "fa3")), "");
  EXPECT_EQ(sentence(on_hopper("flashinfer", "triton")), "");
  EXPECT_NE(sentence(on_hopper("fa4", "flashinfer")).find("not implemented"), std::string::npos);
  EXPECT_NE(sentence(on_hopper("trtllm_mha", "trtllm_mha")).find("not implemented"), std::string::npos);
  CombinationRequest ampere = on_hopper("fa3", "fa3");
  ampere.gpu = "a100-sxm";
  ampere.generation = GpuGeneration::kAmpere;
  EXPECT_NE(sentence(ampere).find("hopper"), std::string::npos);
  EXPECT_NE(sentence(ampere).find("use flashinfer"), std::string::npos);
  CombinationRequest fp8 = on_hopper("triton", "triton");
  fp8.kv_format = NumberFormat::kFp8E4M3;
  EXPECT_NE(sentence(fp8).find("--kv-cache-dtype"), std::string::npos);
}

TEST(Registry, ChoosesAsDocumented) {
  EXPECT_EQ(choose_backend({.generation = GpuGeneration::kHopper, .mla = false}).backend, "fa3");
  EXPECT_EQ(choose_backend({.generation = GpuGeneration::kHopper, .mla = true}).backend, "fa3");
  EXPECT_EQ(choose_backend({.generation = GpuGeneration::kAmpere, .mla = false}).backend, "flashinfer");
  EXPECT_EQ(choose_backend({.generation = GpuGeneration::kAmpere, .mla = true}).backend, "triton");
  EXPECT_NE(choose_backend({.generation = GpuGeneration::kBlackwell, .mla = false}).reason.find("trtllm_mha"),
            std::string::npos);
}

TEST(Registry, ParsesPairs) {
  const BackendPair one = parse_backend_pair("fa3", "--attention-backend");
  EXPECT_EQ(one.prefill, "fa3");
  EXPECT_EQ(one.decode, "fa3");
  const BackendPair two = parse_backend_pair("flashinfer+fa3", "--attention-backends");
  EXPECT_EQ(two.prefill, "flashinfer");
  EXPECT_EQ(two.decode, "fa3");
  EXPECT_THROW(parse_backend_pair("fa3+", "--attention-backends"), UserError);
  EXPECT_THROW(parse_backend_pair("", "--attention-backends"), UserError);
  EXPECT_THROW(create_attention_backend("nsa", {}, 1), UserError);
}

}  // namespace
}  // namespace tpsim::attention
