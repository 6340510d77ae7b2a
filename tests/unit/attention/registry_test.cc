#include "attention/selection/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "proto/base/error.h"

namespace tpsim::attention::registry_test {
namespace {

CombinationRequest on_hopper(const std::string& prefill, const std::string& decode) {
  CombinationRequest request;
  request.pair = {prefill, decode};
  request.gpu = "h200-sxm";
  return request;
}

bool says(const std::string& sentence, const std::string& part) {
  return sentence.find(part) != std::string::npos;
}

TEST(Registry, HoldsEveryDocumentedName) {
  std::set<std::string> names;
  for (const BackendDescription* backend : backend_list()) names.emplace(backend->row.name);
  const std::set<std::string> documented = {
      "triton", "torch_native", "flex_attention", "nsa",        "cutlass_mla", "fa3",
      "fa4",    "flashinfer",   "flashmla",       "trtllm_mla", "trtllm_mha",  "dual_chunk_flash_attn",
      "aiter",  "wave",         "intel_amx",      "ascend",     "intel_xpu"};
  // More of them may be in the list: one that somebody adds.
  EXPECT_TRUE(std::includes(names.begin(), names.end(), documented.begin(), documented.end()));
}

TEST(Registry, SaysTheNearestName) {
  try {
    find_backend("flashinfre", "--attention-backend");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_TRUE(says(error.what(), "did you mean flashinfer")) << error.what();
  }
}

TEST(Registry, DsaIsAnotherNameOfNsa) {
  EXPECT_EQ(find_backend("dsa", "--attention-backend").row.name, "nsa");
}

TEST(Registry, RefusesWhatCannotBe) {
  EXPECT_EQ(obstacle(on_hopper("fa3", "fa3")), "");
  EXPECT_EQ(obstacle(on_hopper("flashinfer", "triton")), "");
  CombinationRequest ampere = on_hopper("fa3", "fa3");
  ampere.gpu = "a100-sxm";
  ampere.generation = GpuGeneration::kAmpere;
  EXPECT_EQ(obstacle(ampere), "");
  ampere.kv_format = NumberFormat::kFp8E4M3;
  EXPECT_TRUE(says(obstacle(ampere), "the prefill kernel of fa3 reads no fp8 KV cache on ampere"))
      << obstacle(ampere);
  ampere.kv_format = NumberFormat::kBf16;
  ampere.mla = true;
  EXPECT_TRUE(
      says(obstacle(ampere), "runs MLA on hopper only, and a100-sxm is ampere; use flashinfer, triton"))
      << obstacle(ampere);
  ampere.pair = {"trtllm_mha", "trtllm_mha"};
  ampere.mla = false;
  EXPECT_TRUE(says(obstacle(ampere), "runs on hopper, blackwell, blackwell_sm120 only")) << obstacle(ampere);
  CombinationRequest fp8 = on_hopper("triton", "triton");
  fp8.kv_format = NumberFormat::kFp8E4M3;
  EXPECT_TRUE(says(obstacle(fp8), "--kv-cache-dtype fp8_e4m3: triton cannot read an fp8 KV cache"));
  EXPECT_TRUE(says(obstacle(fp8), "fa3"));
  // A flag for each half.
  CombinationRequest pair = on_hopper("fa3", "wave");
  pair.flag = "--prefill-attention-backend";
  pair.decode_flag = "--decode-attention-backend";
  EXPECT_TRUE(says(obstacle(pair), "--decode-attention-backend wave:")) << obstacle(pair);
  EXPECT_THROW(check_combination(pair), UserError);
}

// Every sentence of `obstacle` names a flag first, and says nothing twice.
TEST(Registry, EveryRefusalNamesAFlag) {
  constexpr GpuGeneration kDevices[] = {GpuGeneration::kTuring,    GpuGeneration::kAmpere,
                                        GpuGeneration::kAda,       GpuGeneration::kHopper,
                                        GpuGeneration::kBlackwell, GpuGeneration::kBlackwellSm120,
                                        GpuGeneration::kRocm,      GpuGeneration::kNpu,
                                        GpuGeneration::kXpu,       GpuGeneration::kCpu};
  bool Selection::*const kNeeds[] = {
      &Selection::mla,           &Selection::sliding_window, &Selection::sinks, &Selection::attention_chunk,
      &Selection::linear_layers, &Selection::dual_chunk,     &Selection::sparse};
  constexpr NumberFormat kFormats[] = {NumberFormat::kBf16, NumberFormat::kFp8E4M3, NumberFormat::kFp8E5M2,
                                       NumberFormat::kFp4E2M1};
  for (const GpuGeneration device : kDevices) {
    for (unsigned needs = 0; needs < 1U << std::size(kNeeds); needs += 7) {
      for (const BackendDescription* prefill : backend_list()) {
        for (const BackendDescription* decode : backend_list()) {
          CombinationRequest request;
          request.generation = device;
          request.gpu = "device";
          for (std::size_t i = 0; i < std::size(kNeeds); ++i) request.*kNeeds[i] = (needs >> i & 1) != 0;
          request.pair = {std::string(prefill->row.name), std::string(decode->row.name)};
          request.kv_format = kFormats[needs % std::size(kFormats)];
          const std::string sentence = obstacle(request);
          if (!sentence.empty()) {
            ASSERT_TRUE(sentence.starts_with("--")) << sentence;
            ASSERT_TRUE(says(sentence, ": ")) << sentence;
          }
        }
      }
    }
  }
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
}

}  // namespace
}  // namespace tpsim::attention::registry_test
