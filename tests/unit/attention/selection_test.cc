// What is chosen where no backend is named, for every kind of device and model, and on which pages. Expected
// is what SGLang documents; where tpsim does not implement that, its stand-in must say so.
#include <gtest/gtest.h>

#include <string>

#include "attention/selection/registry.h"
#include "proto/base/error.h"

namespace tpsim::attention::selection_test {
namespace {

using enum GpuGeneration;

struct Choice {
  Selection selection;
  const char* backend;
};

const Choice kChoices[] = {
    // MHA.
    {{.generation = kTuring}, "triton"},
    {{.generation = kAmpere}, "flashinfer"},
    {{.generation = kAda}, "flashinfer"},
    {{.generation = kHopper}, "fa3"},
    {{.generation = kBlackwell}, "trtllm_mha"},
    {{.generation = kBlackwellSm120}, "flashinfer"},
    {{.generation = kRocm}, "aiter"},
    {{.generation = kNpu}, "ascend"},
    {{.generation = kXpu}, "intel_xpu"},
    {{.generation = kCpu}, "intel_amx"},
    // MLA.
    {{.generation = kTuring, .mla = true}, "triton"},
    {{.generation = kAmpere, .mla = true}, "triton"},
    {{.generation = kAda, .mla = true}, "triton"},
    {{.generation = kHopper, .mla = true}, "fa3"},
    {{.generation = kBlackwell, .mla = true}, "trtllm_mla"},
    {{.generation = kBlackwellSm120, .mla = true}, "triton"},
    {{.generation = kRocm, .mla = true}, "triton"},
    {{.generation = kRocm, .mla = true, .kv_heads = 16}, "aiter"},
    {{.generation = kRocm, .mla = true, .kv_heads = 32}, "triton"},
    {{.generation = kNpu, .mla = true}, "ascend"},
    {{.generation = kXpu, .mla = true}, "triton"},
    // Windows: Gemma, and gpt-oss with sinks.
    {{.generation = kAmpere, .sliding_window = true}, "flashinfer"},
    {{.generation = kRocm, .sliding_window = true}, "triton"},
    {{.generation = kXpu, .sliding_window = true}, "intel_xpu"},
    {{.generation = kAmpere, .sliding_window = true, .sinks = true}, "triton"},
    {{.generation = kHopper, .sliding_window = true, .sinks = true}, "fa3"},
    {{.generation = kBlackwell, .sliding_window = true, .sinks = true}, "trtllm_mha"},
    {{.generation = kBlackwellSm120, .sliding_window = true, .sinks = true}, "triton"},
    {{.generation = kXpu, .sliding_window = true, .sinks = true}, "intel_xpu"},
    // Llama 4.
    {{.generation = kAda, .attention_chunk = true}, "triton"},
    {{.generation = kHopper, .attention_chunk = true}, "fa3"},
    {{.generation = kBlackwell, .attention_chunk = true}, "trtllm_mha"},
    {{.generation = kRocm, .attention_chunk = true}, "aiter"},
    {{.generation = kXpu, .attention_chunk = true}, "intel_xpu"},
    // Qwen3-Next and Qwen3.5.
    {{.generation = kHopper, .linear_layers = true}, "fa3"},
    {{.generation = kBlackwell, .linear_layers = true}, "trtllm_mha"},
    // LFM2.
    {{.generation = kHopper, .short_convolutions = true}, "fa3"},
    {{.generation = kBlackwell, .short_convolutions = true}, "flashinfer"},
    // OLMo, EXAONE 4.
    {{.generation = kAmpere, .sliding_window = true, .no_flashinfer = true}, "fa3"},
    {{.generation = kHopper, .sliding_window = true, .no_flashinfer = true}, "fa3"},
    // MiniMax M3.
    {{.generation = kHopper, .block_sparse = true}, "fa3"},
    {{.generation = kBlackwell, .block_sparse = true}, "fa4"},
    {{.generation = kBlackwell, .block_sparse = true, .fp8_e4m3_named = true}, "trtllm_mha"},
    {{.generation = kRocm, .block_sparse = true}, "triton"},
    // Dual chunk, sparse.
    {{.generation = kHopper, .dual_chunk = true}, "dual_chunk_flash_attn"},
    {{.generation = kAmpere, .dual_chunk = true}, "dual_chunk_flash_attn"},
    {{.generation = kHopper, .mla = true, .sparse = true}, "nsa"},
    {{.generation = kBlackwell, .mla = true, .sparse = true}, "nsa"},
};

TEST(Selection, IsAsDocumented) {
  for (const Choice& choice : kChoices) {
    const std::string what = std::string(to_string(choice.selection.generation)) + " " + choice.backend;
    EXPECT_EQ(choose_backend(choice.selection).backend, choice.backend) << what;
  }
}

TEST(Selection, WhatIsChosenCanServe) {
  for (const Choice& choice : kChoices) {
    EXPECT_EQ(unfit(find_backend(choice.backend, "").row, choice.selection), "") << choice.backend;
  }
}

struct Pages {
  const char* prefill;
  const char* decode;
  bool mla;
  std::uint32_t given;  // 0: open
  std::uint32_t page;   // 0: refused
};

// The page-size constraints of the reference, and SGLang's own sizes.
TEST(PageSize, IsWhatTheBackendsNeed) {
  const Pages kCases[] = {
      {"fa3", "fa3", false, 0, 1},
      {"fa3", "fa3", false, 64, 64},
      {"triton", "triton", false, 16, 16},
      {"flashinfer", "flashinfer", false, 128, 128},
      {"trtllm_mha", "trtllm_mha", false, 0, 64},
      {"trtllm_mha", "trtllm_mha", false, 1, 64},
      {"trtllm_mha", "trtllm_mha", false, 128, 64},
      {"trtllm_mha", "trtllm_mha", false, 16, 16},
      {"flashinfer", "trtllm_mha", false, 0, 64},
      {"trtllm_mha", "triton", false, 32, 32},
      {"fa4", "triton", false, 0, 128},
      {"fa4", "triton", false, 1, 128},
      {"fa4", "trtllm_mha", false, 0, 0},
      {"fa4", "trtllm_mha", false, 64, 0},
      {"ascend", "ascend", false, 0, 128},
      {"intel_xpu", "intel_xpu", false, 0, 128},
      {"intel_xpu", "intel_xpu", false, 64, 64},
      {"intel_xpu", "intel_xpu", false, 1, 128},
      {"aiter", "aiter", false, 0, 1},
      {"flashmla", "flashmla", true, 0, 64},
      {"flashmla", "flashmla", true, 1, 64},
      {"cutlass_mla", "cutlass_mla", true, 64, 128},
      {"trtllm_mla", "trtllm_mla", true, 0, 64},
      {"trtllm_mla", "trtllm_mla", true, 32, 32},
      {"trtllm_mla", "trtllm_mla", true, 16, 64},
      {"fa3", "fa3", true, 0, 1},
      {"fa3", "fa3", true, 64, 64},
      {"triton", "triton", true, 16, 16},
      {"flashinfer", "flashinfer", true, 0, 1},
      {"flashinfer", "flashinfer", true, 64, 0},
      {"ascend", "ascend", true, 0, 128},
      {"fa3", "flashmla", true, 0, 64},
      {"fa4", "trtllm_mla", true, 0, 64},
      {"fa4", "flashinfer", true, 0, 1},
      {"fa4", "cutlass_mla", true, 0, 128},
  };
  for (const Pages& pages : kCases) {
    CombinationRequest request;
    request.pair = {pages.prefill, pages.decode};
    request.mla = pages.mla;
    const std::string what =
        request.pair.prefill + "+" + request.pair.decode + " " + std::to_string(pages.given);
    const PageChoice choice =
        choose_page_size(request, pages.given == 0 ? std::nullopt : std::optional(pages.given));
    request.page_size = choice.page_size;
    const std::string sentence = page_obstacle(request);
    if (pages.page == 0) {
      EXPECT_TRUE(sentence.starts_with("--page-size")) << what << ": " << sentence;
      if (pages.decode == std::string("trtllm_mha")) {
        EXPECT_TRUE(sentence.ends_with("name another backend for one of them")) << sentence;  // fa4 on Hopper
        request.generation = kBlackwell;
        EXPECT_TRUE(page_obstacle(request).ends_with(
            "use flashinfer, triton, torch_native, flex_attention for decode"))
            << page_obstacle(request);
      }
      continue;
    }
    EXPECT_EQ(sentence, "") << what;
    EXPECT_EQ(choice.page_size, pages.page) << what;
    EXPECT_EQ(choice.changed, pages.given != 0 && pages.given != pages.page) << what;
    EXPECT_EQ(choice.note.empty(), pages.page == pages.given || (pages.given == 0 && pages.page == 1))
        << what;
  }
}

}  // namespace
}  // namespace tpsim::attention::selection_test
