// What SGLang's class of a model does and no config.json says: one row an architecture, in the file of its
// family (families.h). Of SGLang 0.5.12 and 0.5.23, models/*.py, where nothing else is named.
#pragma once

#include <cstdint>

namespace tpsim::rank {

// Experts for which SGLang chooses flashinfer_trtllm by itself (server_args.py, 0.5.12; before 0.5.8
// launch/deployment/model.cc says what is left of it).
enum class TrtllmExperts : std::uint8_t { kNone, kNvfp4, kFp8OrNvfp4, k16BitFp8OrNvfp4 };

// A head of one layer that drafts for another model.
enum class DraftHead : std::uint8_t { kNone, kEagle, kEagle3 };

struct ArchitectureFacts {
  // Layers gather and scatter tokens (LayerCommunicator); else attention is cut by --tp whatever the flags
  // say.
  bool data_parallel_attention = false;
  bool deepep = false;  // has a forward_deepep()
  // forward() takes pp_proxy_tensors, and the model makes its layers by stage.
  bool pipeline = false;
  bool head_on_every_stage = false;     // the constructor makes lm_head on all of them
  bool tied_head_is_embedding = false;  // lm_head is embed_tokens, which the last stage does not have
  // Checkpoints hold a layer for the next token (_config_draft_model of configs/model_config.py).
  bool next_layer = false;
  bool dual_chunk = false;  // dual_chunk_attention_config reaches the rotary embedding
  TrtllmExperts trtllm_experts = TrtllmExperts::kNone;
  // Routing by grouped_topk_gpu, of torch.compile: seven kernels, and a softmax in 16 bit
  // (layers/moe/topk.py).
  bool grouped_topk = false;
  // Routing by biased_grouped_topk_gpu (layers/moe/topk.py); and where its kernels of one launch do not take
  // the model's experts, by torch.compile's program of fourteen kernels (launch/deployment/model.cc).
  bool biased_grouped_topk = false;
  bool compiled_router = false;
  bool compiled_router_beside_shared = false;  // where fused shared experts run among them
  // That kernel knows nothing of fused shared experts, which seven small ones add (topk.py:1062 of 0.5.12).
  bool appends_shared_experts = false;
  // In passes that replay a graph shared experts run on a stream of their own beside routing and the routed
  // ones (forward_normal_dual_stream), and a gated delta-net's small projection beside the large one, in
  // releases whose ReleaseRules::second_streams is as large; 0: never.
  std::uint8_t second_stream = 0;
  bool few_mla_splits = false;  // !ReleaseRules::mla_splits_fill_device
  // Routing is PyTorch's own kernels, one by one (Gemma4Router, Gemma4MoE; models/afmoe.py).
  bool torch_router = false;
  // So are its norms and what turns queries and keys (Gemma3RMSNorm, apply_rotary_pos_emb of
  // models/gemma3_causal.py).
  bool torch_norms = false;
  bool residual_norm_kernels = false;  // … but for those of the residual (gemma3_norms_are_kernels)
  bool compiles_rotation = false;      // … and what turns, in prefill, too (prefill_pieces_are_breakable)
  bool small_kernels_overlap = false;  // as the release says (ReleaseRules)
  bool tunes_scans = false;
  // The router multiplies in fp32 (its gate's forward()), in releases whose ReleaseRules::fp32_routers is as
  // large; 0: never.
  std::uint8_t fp32_router = 0;
  // Prefill is not captured with some backends (BackendRow::eager_deepseek_v3_prefill).
  bool may_prefill_eagerly = false;
  // torch.compile's pieces of prefill leave the class out (configs/model_config.py:
  // piecewise_cuda_graph_disabled_model_archs), or it is multimodal to SGLang and only text here.
  bool not_in_compiled_pieces = false;
  bool multimodal = false;
  // Multimodal, and none of SGLang's exceptions whose prefill is captured (0.5.23:
  // multimodal_breakable_cuda_graph_supported_model_archs); or of layers that are not attention and are not
  // counted as such (model_runner_components/cuda_graph_setup.py), or KDA's or DeepSeek V4's
  // (arg_groups/cuda_graph_hook.py).
  bool eager_prefill = false;
  // Sums over ranks and the norm behind them are one kernel of FlashInfer's by default, in releases whose
  // ReleaseRules::fuses_all_reduces is as large; 0: never (server_args.py, later arg_groups/overrides.py:
  // _FLASHINFER_ALLREDUCE_FUSION_ARCHS).
  std::uint8_t fuses_all_reduces = 0;
  bool glm_sparse = false;  // sparse attention's kernels are chosen as for GLM (attention/sparse_kernels.h)
  bool wide_draft_tree = false;  // _auto_choose_speculative_params: 5 steps, 4 guesses, 8 tokens
  bool profiled_images = false;  // settings of its own on large Hopper GPUs (model_overrides/qwen3_vl.py)
  // Its states are kept in the radix cache from the first release on that takes snapshots of states
  // (0.5.14, server_args.py:4142; 0.5.12, server_args.py:2275, turns the cache off).
  bool late_state_cache = false;
  // SGLang does not look at the class where states in the radix cache turn overlap scheduling off, in
  // releases whose ReleaseRules::serial_states is smaller (server_args.py: Lfm2ForCausalLM alone of its
  // family; from 0.5.23 on, arg_groups/model_hook.py, also Lfm2MoeForCausalLM); 0: it always does.
  std::uint8_t overlaps_beside_states = 0;
  bool priced_only = false;  // numeric execution does not compute it
  // The class of its config.json comes with the checkpoint, which takes --trust-remote-code: neither
  // Transformers nor SGLang 0.5.23 has it (sglang/srt/configs, utils/hf_transformers), or has one that the
  // Transformers beside it refuses to read (Step 3.5's, of layers with other numbers of heads).
  bool remote_code = false;
  // SGLang refuses FlashInfer's attention for the class (arg_groups/model_hook.py: OLMo 2 and 3, EXAONE 4
  // with windows), and is at home with fa3 from Ampere on.
  bool no_flashinfer = false;
  DraftHead draft_head = DraftHead::kNone;
  // What SGLang sets for the class where the flags say nothing: --max-running-requests (0: as for any other),
  // and --swa-full-tokens-ratio.
  std::uint32_t running_requests = 0;
  double window_share = 0.8;
};

constexpr ArchitectureFacts with_remote_code(ArchitectureFacts facts) {
  facts.remote_code = true;
  return facts;
}

}  // namespace tpsim::rank
