#!/usr/bin/env python3
"""Makes the reference values of numeric execution: for each architecture a tiny randomly initialised model, its
weights as Transformers stores them, and what Transformers says in fp32: the logits at the last position of some
prompts and 64 greedy tokens behind each.

Usage: make_references.py FOLDER [NAME ...]      FOLDER: tests/golden/models; NAME: only these

Needs torch, transformers and safetensors (nothing else in tpsim does). The values in the repository were made
with Transformers 5.23 and PyTorch 2.15, later ones with 5.24 and 2.9 or 2.11. A run writes FOLDER/NAME/{config.json, *.safetensors, reference.json};
all of it together stays under 10 MB, which the script checks.
"""

import json
import os
import re
import shutil
import sys
import types

import safetensors.torch
import torch
import transformers

import quantised

VOCABULARY = 131  # odd on purpose: no --tp divides it
PROMPT_LENGTHS = (1, 9, 45)
NEW_TOKENS = 64
# Greedy tokens are compared exactly: the best logit leads by this much of the largest, at every step.
LEAST_LEAD = 2e-3
MOST_BYTES = 10_000_000

COMMON = {"vocab_size": VOCABULARY, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 8,
          "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 256, "head_dim": 16,
          "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
MLA = {"num_key_value_heads": 8, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
       "v_head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
       "n_shared_experts": 1, "first_k_dense_replace": 1, "head_dim": None}
# Sequences grow longer than what is selected of them.
INDEXER = {"index_topk": 12, "index_head_dim": 16, "index_n_heads": 8}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64,
        "beta_fast": 32.0, "beta_slow": 1.0}

# Gated delta-net hybrids. Their norms are stored less 1, but for those of the delta-nets' outputs.
HYBRID = {"num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
          "linear_num_key_heads": 8, "linear_num_value_heads": 16, "linear_key_head_dim": 8,
          "linear_value_head_dim": 4, "linear_conv_kernel_dim": 4, "num_experts": 4, "num_experts_per_tok": 2,
          "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}


def rope(kind, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


# Families that are Llama but for a few switches, in as few weights as eight ranks can share.
SMALL = {"hidden_size": 32, "head_dim": None, "intermediate_size": 48, "num_attention_heads": 8,
         "num_key_value_heads": 4, "pad_token_id": 0}
MUP = {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "attention_multiplier": 0.3, "logits_scaling": 2.0}

GEMMA4 = {"num_hidden_layers": 3, "sliding_window": 12, "global_head_dim": 32, "final_logit_softcapping": 8.0,
          "layer_types": ["sliding_attention", "full_attention", "full_attention"], "pad_token_id": 0,
          "hidden_size_per_layer_input": 0}
SHORT_CONV = {"head_dim": None, "hidden_size": 64, "conv_L_cache": 3, "norm_eps": 1e-5, **rope("default")}

# NAME: (architecture, config, how it is stored).
# Stored: "quantise": weights are replaced by what their quantisation stands for (quantised.py); the weights' dtype;
# "classic": config.json and expert tensors as Transformers 4 wrote them; "shards": several files with an index; "hub":
# the architecture of checkpoints whose class Transformers does not have, which are written as that says;
# "published": keys of config.json as published checkpoints have them.
MODELS = {
    "llama": ("Llama", {**rope("default")}, {"dtype": torch.float32, "shards": True}),
    "llama-llama3-rope": ("Llama", {"num_key_value_heads": 1, "tie_word_embeddings": True, "attention_bias": True,
                                    "mlp_bias": True,
                                    **rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                           original_max_position_embeddings=32)}, {"classic": True}),
    "llama-linear-rope": ("Llama", {"num_key_value_heads": 8, **rope("linear", factor=4.0)},
                          {"dtype": torch.float16, "classic": True}),
    "llama-dynamic-rope": ("Llama", {"num_key_value_heads": 4, **rope("dynamic", factor=4.0)}, {}),
    "qwen2": ("Qwen2", {"head_dim": None, "hidden_size": 64}, {}),
    "qwen2-window": ("Qwen2", {"head_dim": None, "hidden_size": 64, "use_sliding_window": True,
                               "sliding_window": 16, "max_window_layers": 1, **{"rope_parameters": YARN}},
                     {"classic": True}),
    "qwen3": ("Qwen3", {"tie_word_embeddings": True}, {}),
    "mistral": ("Mistral", {"sliding_window": 12}, {"classic": True}),
    "gemma2": ("Gemma2", {"num_hidden_layers": 3, "sliding_window": 12, "query_pre_attn_scalar": 24,
                          "attn_logit_softcapping": 5.0, "final_logit_softcapping": 8.0}, {"classic": True}),
    "gemma3": ("Gemma3Text", {"num_hidden_layers": 3, "sliding_window": 12, "query_pre_attn_scalar": 24,
                              "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
                              "rope_parameters": {
                                  "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                                  "full_attention": {"rope_type": "linear", "factor": 8.0,
                                                     "rope_theta": 1000000.0}}}, {}),
    # Wide heads in full layers; with experts their keys are their values, too.
    "gemma4": ("Gemma4Text", {**GEMMA4, "num_key_value_heads": 4}, {"published": {"global_head_dim": 32}}),
    "gemma4-moe": ("Gemma4Text", {**GEMMA4, "num_key_value_heads": 4, "num_global_key_value_heads": 2,
                                  "attention_k_eq_v": True, "enable_moe_block": True, "num_experts": 8,
                                  "top_k_experts": 3, "moe_intermediate_size": 16, "intermediate_size": 32},
                   {"published": {"global_head_dim": 32, "num_global_key_value_heads": 2}}),
    "mixtral": ("Mixtral", {"num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 16},
                {"classic": True}),
    "mixtral-fused": ("Mixtral", {"num_local_experts": 8, "num_experts_per_tok": 3, "intermediate_size": 16,
                                  "sliding_window": 16}, {"fused": True}),
    "qwen3-moe": ("Qwen3Moe", {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 16,
                               "norm_topk_prob": True, "mlp_only_layers": [0]}, {}),
    "qwen3-next": ("Qwen3Next", {**HYBRID, "norm_topk_prob": True, "partial_rotary_factor": 0.25,
                                 "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                                     "partial_rotary_factor": 0.25}}, {}),
    "qwen3.5-moe": ("Qwen3_5MoeText", {**HYBRID, "linear_num_value_heads": 8, "linear_value_head_dim": 8,
                                       "intermediate_size": None,
                                       "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                                           "partial_rotary_factor": 0.5}}, {}),
    "deepseek-v2": ("DeepseekV2", {**MLA, "q_lora_rank": None, "topk_method": "group_limited_greedy", "n_group": 4,
                                   "topk_group": 2, "routed_scaling_factor": 2.0,
                                   "rope_parameters": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707}},
                    {"classic": True}),
    "deepseek-v3": ("DeepseekV3", {**MLA, "q_lora_rank": 24, "n_group": 4, "topk_group": 2,
                                   "routed_scaling_factor": 2.5, "norm_topk_prob": True, "num_experts_per_tok": 3,
                                   "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}, {}),
    "deepseek-v32": ("DeepseekV32", {**MLA, **INDEXER, "q_lora_rank": 24, "n_group": 4, "topk_group": 2,
                                     "routed_scaling_factor": 2.5, "norm_topk_prob": True, "num_experts_per_tok": 3,
                                     "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}, {}),
    "glm-moe-dsa": ("GlmMoeDsa", {**MLA, **INDEXER, "num_hidden_layers": 3, "q_lora_rank": 24, "n_group": 1,
                                  "topk_group": 1, "n_routed_experts": 4, "routed_scaling_factor": 2.5,
                                  "norm_topk_prob": True, "indexer_types": ["full", "shared", "full"], "v_head_dim": 24,
                                  "rms_norm_eps": 1e-5, **rope("default")}, {}),
    "glm4-moe": ("Glm4Moe", {"num_key_value_heads": 4, "intermediate_size": 32, "attention_bias": True,
                             "use_qk_norm": True, "n_routed_experts": 8, "num_experts_per_tok": 3,
                             "moe_intermediate_size": 8, "n_shared_experts": 1, "first_k_dense_replace": 1,
                             "n_group": 2, "topk_group": 1, "routed_scaling_factor": 1.5,
                             **rope("default", partial_rotary_factor=0.5)}, {}),
    # GLM-4.7-Flash.
    "glm4-moe-lite": ("Glm4MoeLite", {**MLA, "q_lora_rank": 24, "n_group": 1, "topk_group": 1, "n_routed_experts": 4,
                                      "routed_scaling_factor": 1.8, "norm_topk_prob": True, "v_head_dim": 24,
                                      "rms_norm_eps": 1e-5, **rope("default")}, {}),
    "ernie4.5": ("Ernie4_5", {"tie_word_embeddings": True, "use_bias": True, **rope("default")}, {}),
    "ernie4.5-moe": ("Ernie4_5_Moe", {"head_dim": None, "hidden_size": 64, "num_hidden_layers": 2,
                                      "tie_word_embeddings": False, "moe_num_experts": 8, "moe_k": 3,
                                      "moe_intermediate_size": 8, "moe_num_shared_experts": 2,
                                      "moe_layer_start_index": 1, **rope("default")}, {}),
    # The published configs name alpha beside rope type dynamic; what Transformers' classes do anyhow is a key there.
    "hunyuan": ("HunYuanDenseV1", {"tie_word_embeddings": True, **rope("dynamic", alpha=50.0, factor=1.0)},
                {"published": {"use_qk_norm": True, "attention_head_dim": 16}}),
    "hunyuan-moe": ("HunYuanMoEV1", {"num_experts": 8, "moe_topk": 3, "intermediate_size": 16, **rope("default")},
                    {"published": {"use_qk_norm": True, "use_mixed_mlp_moe": True, "num_shared_expert": [1, 1],
                                   "moe_intermediate_size": [16, 16], "moe_topk": [3, 3]}}),
    "hy3": ("HYV3", {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 16, "num_shared_experts": 1,
                     "router_scaling_factor": 1.5, **rope("default")},
            {"published": {"qk_norm": True, "route_norm": True}}),
    # A chunk is shorter than the prompts, and a query's growth begins early.
    "llama4": ("Llama4Text", {"num_hidden_layers": 3, "intermediate_size": 16, "intermediate_size_mlp": 32,
                              "num_local_experts": 4, "num_experts_per_tok": 2, "interleave_moe_layer_step": 2,
                              "no_rope_layers": [1, 0, 1], "attention_chunk_size": 16, "floor_scale": 8,
                              "attn_scale": 0.5, **rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=1.0,
                                                        original_max_position_embeddings=32)}, {}),
    "minimax-m2": ("MiniMaxM2", {"num_local_experts": 8, "num_experts_per_tok": 3, "intermediate_size": 16,
                                 "rotary_dim": 8, "use_qk_norm": True, **rope("default", partial_rotary_factor=0.5)}, {}),
    # More blocks than are chosen, in one layer of two; its tensors are stored under the published names.
    "minimax-m3": ("MiniMaxM3VLText", {
        "num_attention_heads": 8, "num_key_value_heads": 4, "num_local_experts": 8, "num_experts_per_tok": 3,
        "intermediate_size": 16, "shared_intermediate_size": 16, "dense_intermediate_size": 32,
        "routed_scaling_factor": 1.5, "rotary_dim": 8, "moe_layer_freq": [0, 1],
        "sparse_attention_config": {"sparse_num_index_heads": 4, "sparse_index_dim": 16, "sparse_block_size": 4,
                                    "sparse_topk_blocks": 5, "sparse_init_block": 0, "sparse_local_block": 1,
                                    "sparse_score_type": "max", "sparse_disable_index_value": [0, 1],
                                    "sparse_attention_freq": [0, 1]},
        **rope("default", partial_rotary_factor=0.5)},
        {"hub": "MiniMaxM3SparseForCausalLM",
         "published": {"hidden_act": "swigluoai", "n_shared_experts": 1, "use_qk_norm": True,
                       "qk_norm_type": "per_head", "use_gemma_norm": True}}),
    "laguna": ("Laguna", {
        "num_hidden_layers": 3, "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "num_attention_heads_per_layer": [8, 16, 8], "sliding_window": 12, "num_experts": 8, "num_experts_per_tok": 3,
        "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "moe_routed_scaling_factor": 1.5,
        "intermediate_size": 32, "head_dim": 8,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 500000.0, "partial_rotary_factor": 0.5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}}}, {}),
    "laguna-elements": ("Laguna", {
        "layer_types": ["full_attention"] * 2, "gating": "per-element", "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 16, "shared_expert_intermediate_size": 32, "intermediate_size": 32, "head_dim": 8,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 500000.0, "partial_rotary_factor": 0.5}}},
        {"published": {"sliding_window": 0}}),
    # All four kinds of blocks, one that mixes without an MLP behind it, and experts of a latent.
    "nemotron-h": ("NemotronH", {
        "num_hidden_layers": None, "hybrid_override_pattern": "MEM*-M*E", "mamba_num_heads": 16, "mamba_head_dim": 4,
        "n_groups": 8, "ssm_state_size": 4, "chunk_size": 16, "n_routed_experts": 8, "num_experts_per_tok": 3,
        "moe_intermediate_size": 16, "moe_shared_expert_intermediate_size": 32, "moe_latent_size": 24,
        "n_shared_experts": 1, "routed_scaling_factor": 1.5, "n_group": 1, "topk_group": 1, "time_step_min": 1e-12,
        "intermediate_size": 32, "head_dim": 8, "pad_token_id": 0},
        {"published": {"num_hidden_layers": 8, "hybrid_override_pattern": "MEM*-M*E"}}),
    # Layers of both kinds and with limits of both kinds, each of them felt.
    "step3p5": ("Step3p7Text", {
        "num_hidden_layers": 3, "num_key_value_heads": None, "num_attention_groups": 4, "num_attention_heads": 8,
        "attention_other_setting": {"num_attention_heads": 16, "num_attention_groups": 4, "head_dim": 16},
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "sliding_window": 12, "use_head_wise_attn_gate": True, "moe_num_experts": 8, "moe_top_k": 3,
        "moe_intermediate_size": 16, "share_expert_dim": 16, "moe_layers_enum": "1,2", "norm_expert_weight": True,
        "moe_router_scaling_factor": 1.5, "swiglu_limits": [0, 0.4, 0.3], "swiglu_limits_shared": [0.3, 0.4, 0],
        "rope_theta": [5000000.0, 10000.0, 5000000.0], "partial_rotary_factors": [0.5, 1.0, 0.5],
        "rope_scaling": {"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 32,
                         "low_freq_factor": 1.0, "high_freq_factor": 32.0},
        "rms_norm_eps": 1e-5, "pad_token_id": 0}, {"hub": "Step3p5ForCausalLM"}),
    "lfm2": ("Lfm2", {**SHORT_CONV, "num_hidden_layers": 4, "intermediate_size": 96, "block_multiple_of": 16,
                      "layer_types": ["conv", "full_attention", "conv", "conv"]}, {}),
    "lfm2-moe": ("Lfm2Moe", {**SHORT_CONV, "num_hidden_layers": 3, "layer_types": ["conv", "conv", "full_attention"],
                             "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 16,
                             "num_dense_layers": 1, "routed_scaling_factor": 1.5}, {}),
    "kimi-linear": ("KimiLinear", {
        **MLA, "num_hidden_layers": 3, "q_lora_rank": None, "n_routed_experts": None, "num_experts": 8,
        "num_experts_per_tok": None, "num_experts_per_token": 3, "n_shared_experts": None, "num_shared_experts": 1,
        "moe_renormalize": True, "num_expert_group": 2, "topk_group": 1, "routed_scaling_factor": 1.5,
        "rms_norm_eps": 1e-6, "max_position_embeddings": None, "model_max_length": 256,
        "linear_attn_config": {"kda_layers": [1, 3], "full_attn_layers": [2], "num_heads": 8, "head_dim": 8,
                               "short_conv_kernel_size": 4}, "pad_token_id": 0}, {"published": {"max_position_embeddings": 256}}),
    "phi3": ("Phi3", {"head_dim": None, "hidden_size": 64, "num_key_value_heads": 4, "intermediate_size": 48,
                      "sliding_window": 20, "pad_token_id": 0,
                      **rope("default", partial_rotary_factor=0.75)}, {"classic": True}),
    "gpt-oss": ("GptOss", {"num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 16,
                           "sliding_window": 12, "layer_types": ["sliding_attention", "full_attention"],
                           "rope_parameters": {**YARN, "rope_theta": 150000.0, "truncate": False}}, {}),
    # Sizes that blocks of 8 x 16 divide: Transformers takes the size of a block from the number of them.
    "deepseek-v3-fp8": ("DeepseekV3", {**MLA, "q_lora_rank": 32, "n_group": 4, "topk_group": 2,
                                       "routed_scaling_factor": 2.5, "norm_topk_prob": True, "num_experts_per_tok": 3,
                                       "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}},
                        {"quantise": "fp8-block"}),
    "gpt-oss-mxfp4": ("GptOss", {"num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 32,
                                 "hidden_size": 64, "sliding_window": 12,
                                 "layer_types": ["sliding_attention", "full_attention"],
                                 "rope_parameters": {**YARN, "rope_theta": 150000.0, "truncate": False}},
                      {"quantise": "mxfp4"}),
    "llama-nvfp4": ("Llama", {**rope("default")}, {"quantise": "nvfp4"}),
    "granite": ("Granite", {**SMALL, **MUP, **rope("default")}, {}),
    "granite-moe": ("GraniteMoeShared", {**SMALL, **MUP, "intermediate_size": 16, "shared_intermediate_size": 32,
                                         "num_local_experts": 8, "num_experts_per_tok": 3, **rope("default")}, {}),
    # Its Mamba layers norm all channels at once, which only one rank has.
    "granite-hybrid": ("GraniteMoeHybrid", {
        **SMALL, **MUP, "num_hidden_layers": 3, "intermediate_size": 16, "shared_intermediate_size": 32,
        "num_local_experts": 8, "num_experts_per_tok": 3, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8,
        "mamba_chunk_size": 16, "layer_types": ["linear_attention", "full_attention", "linear_attention"]},
        {"published": {"layer_types": ["mamba", "attention", "mamba"], "position_embedding_type": "nope"}}),
    "olmo2": ("Olmo2", {**SMALL, **rope("default")}, {"classic": True}),
    # Windows turn at the plain rotation, full layers at the scaled one.
    "olmo3": ("Olmo3", {**SMALL, "num_hidden_layers": 3, "sliding_window": 12, "num_key_value_heads": 8,
                        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                        "rope_parameters": {"full_attention": YARN,
                                            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}, {}),
    "olmoe": ("Olmoe", {**SMALL, "intermediate_size": 16, "num_key_value_heads": 8, "num_experts": 8,
                        "num_experts_per_tok": 3, **rope("default")}, {}),
    "cohere": ("Cohere", {**SMALL, "use_qk_norm": True, "logit_scale": 0.5, **rope("default")}, {}),
    "cohere2": ("Cohere2", {**SMALL, "num_hidden_layers": 3, "sliding_window": 12, "logit_scale": 0.25,
                            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                            **rope("default")}, {}),
    "glm4": ("Glm4", {**SMALL, "head_dim": 8, "attention_bias": True, "num_key_value_heads": 2,
                      **rope("default", partial_rotary_factor=0.5)}, {}),
    "chatglm": ("Glm", {**SMALL, "attention_bias": True, "num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-6,
                        **rope("default", partial_rotary_factor=0.5)},
                {"hub": "ChatGLMModel", "published": {"add_qkv_bias": True, "post_layer_norm": True}}),
    "exaone": ("Llama", {**SMALL, **rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                         original_max_position_embeddings=32)},
               {"hub": "ExaoneForCausalLM", "published": {"activation_function": "silu", "layer_norm_epsilon": 1e-6}}),
    "exaone4": ("Exaone4", {**SMALL, "num_hidden_layers": 3, "head_dim": 8, "sliding_window": 12,
                            "sliding_window_pattern": 3, **rope("default")},
                {"published": {"sliding_window_pattern": "LLG"}}),
    "exaone-moe": ("ExaoneMoe", {
        **SMALL, "num_hidden_layers": 3, "head_dim": 8, "sliding_window": 12, "sliding_window_pattern": 3,
        "moe_intermediate_size": 8, "num_experts": 8, "num_experts_per_tok": 3, "num_shared_experts": 1,
        **rope("default")}, {"published": {"architectures": ["ExaoneMoEForCausalLM"]}}),
    "afmoe": ("Afmoe", {**SMALL, "num_hidden_layers": 3, "head_dim": 8, "sliding_window": 12, "mup_enabled": True,
                        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                        "moe_intermediate_size": 8, "num_experts": 8, "num_experts_per_tok": 3,
                        "num_shared_experts": 1, "route_scale": 1.5, **rope("default")}, {}),
    # No class of Transformers': Llama, whose queries, keys and values are put together.
    "internlm2": ("Llama", {**SMALL, **rope("default")}, {"hub": "InternLM2ForCausalLM"}),
    "qwen2-moe": ("Qwen2Moe", {**SMALL, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 8,
                               "shared_expert_intermediate_size": 16, "mlp_only_layers": [0], **rope("default")}, {}),
    "gemma": ("Gemma", {**SMALL, "head_dim": 8, "num_key_value_heads": 1, **rope("default")}, {}),
    "arcee": ("Arcee", {**SMALL, "head_dim": 8, "rope_parameters": YARN}, {}),
    "stablelm": ("StableLm", {**SMALL, "hidden_size": 64, "use_qkv_bias": True,
                              **rope("default", partial_rotary_factor=0.25)}, {}),
    "starcoder2": ("Starcoder2", {**SMALL, "sliding_window": 12, "tie_word_embeddings": False, **rope("default")}, {}),
    # Ling 2.0, of which Transformers has no class: GLM-4.5's experts and attention, under other names.
    "ling": ("Glm4Moe", {**SMALL, "head_dim": 8, "use_qk_norm": True, "n_routed_experts": 8, "num_experts_per_tok": 3,
                         "moe_intermediate_size": 8, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 4,
                         "topk_group": 2, "routed_scaling_factor": 2.5, "norm_topk_prob": True, "rms_norm_eps": 1e-6,
                         **rope("default", partial_rotary_factor=0.5)},
             {"hub": "BailingMoeV2ForCausalLM",
              "published": {"n_routed_experts": None, "n_shared_experts": None, "num_experts": 8, "num_shared_experts": 1, "rotary_dim": 4, "use_qkv_bias": False,
                            "use_bias": False, "moe_router_enable_expert_bias": True}}),
    # Queries grow within the prompts.
    "ministral3": ("Ministral3", {**SMALL, "head_dim": 8, "rope_parameters": {
        **YARN, "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.5}}, {}),
    # A window is one longer than sliding_window_size; twice the keys there, values narrower than keys.
    "mimo-v2": ("MiMoV2Flash", {
        **SMALL, "num_hidden_layers": 3, "head_dim": 24, "v_head_dim": 8, "sliding_window": 13, "n_routed_experts": 8,
        "num_experts_per_tok": 3, "moe_intermediate_size": 8,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        "mlp_layer_types": ["dense", "sparse", "sparse"],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 5000000.0, "partial_rotary_factor": 0.334},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.334}}},
        {"published": {"hybrid_layer_pattern": [0, 1, 1], "moe_layer_freq": [0, 1, 1], "sliding_window_size": 12,
                       "swa_num_key_value_heads": 8, "swa_head_dim": 24, "swa_v_head_dim": 8, "rope_theta": 5000000, "swa_rope_theta": 10000,
                       "partial_rotary_factor": 0.334, "layernorm_epsilon": 1e-5, "add_swa_attention_sink_bias": True,
                       "add_full_attention_sink_bias": False}}),
    # Of each kind of layer one; the longest prompt has an entry of 128 tokens, and more of 4 than are chosen.
    "deepseek-v4": ("DeepseekV4", {
        "hidden_size": 16, "num_hidden_layers": 3, "num_key_value_heads": 1, "head_dim": 8, "intermediate_size": None,
        "max_position_embeddings": 1024, "q_lora_rank": 8, "qk_rope_head_dim": 4, "o_groups": 8, "o_lora_rank": 4,
        "index_n_heads": 8, "index_head_dim": 8, "index_topk": 6, "hc_mult": 2, "hc_sinkhorn_iters": 5, "sliding_window": 12,
        "compress_ratios": [4, 128, 0], "num_hash_layers": 1, "moe_intermediate_size": 8, "n_routed_experts": 4,
        "num_experts_per_tok": 2, "swiglu_limit": 0.5, "compress_rope_theta": 160000.0, "rope_parameters": YARN},
        {"lengths": (1, 9, 140), "published": {
            "rope_scaling": {key: value for key, value in YARN.items() if key != "rope_theta"}, "rope_theta": 10000.0,
            "compress_rope_theta": 160000.0, "compress_ratios": [4, 128, 0], "num_hash_layers": 1, "qk_rope_head_dim": 4}}),
    # Of whole heads; all lengths are below the original context, whose factors are the short ones.
    "phi3-longrope": ("Phi3", {**SMALL, "original_max_position_embeddings": 128,
                               "rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0,
                                                   "original_max_position_embeddings": 128,
                                                   "short_factor": [1.0, 1.5], "long_factor": [2.0, 4.0]}}, {}),
}


class TextAndHead(torch.nn.Module):
    """A text model that Transformers has inside of a multimodal one alone."""

    def __init__(self, config, text):
        super().__init__()
        self.config = config
        self.model = text(config)
        self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, ids, use_cache):
        return types.SimpleNamespace(logits=self.lm_head(self.model(ids, use_cache=use_cache).last_hidden_state))


# Per kind of a "hub" model: what the checkpoint's own config.json and names say where Transformers' do not.
def step_tensors(tensors):
    out = {}
    for key, tensor in tensors.items():
        for ours, theirs in ((".mlp.gate.e_score_correction_bias", ".moe.router_bias"), (".mlp.gate.", ".moe.gate."),
                             (".mlp.shared_experts.", ".share_expert."),
                             (".mlp.experts.down_proj", ".moe.down_proj.weight")):
            key = key.replace(ours, theirs)
        if key.endswith(".mlp.experts.gate_up_proj"):
            at = key.removesuffix("mlp.experts.gate_up_proj") + "moe."
            out[at + "gate_proj.weight"], out[at + "up_proj.weight"] = tensor.chunk(2, dim=1)
        else:
            out[key] = tensor
    return out


def minimax_m3_tensors(tensors):
    out = {}
    for key, tensor in one_tensor_per_expert(tensors, mixtral=True).items():
        key = key.replace("gate.e_score", "e_score").replace(".indexer.", ".index_")
        key = key.replace("mlp.shared_experts.", "block_sparse_moe.shared_experts.")
        if "gate_up_proj" in key:
            for part, rows in zip(("gate_proj", "up_proj"), tensor.chunk(2)):
                out[key.replace("gate_up_proj", part)] = rows
        else:
            out[key] = tensor
    return out


def internlm2_tensors(tensors):
    """Of each KV head its queries, its key and its value, in one tensor."""
    out = {}
    for key, tensor in tensors.items():
        if any(part in key for part in ("k_proj", "v_proj")):
            continue
        if "q_proj" in key:
            kv = SMALL["num_key_value_heads"]
            parts = [tensors[key.replace("q_proj", name)].unflatten(0, (kv, -1)) for name in ("q_proj", "k_proj", "v_proj")]
            key, tensor = key.replace("q_proj", "wqkv"), torch.cat(parts, 1).flatten(0, 1)
        out[key] = tensor
    return renamed(out, {"self_attn.o_proj": "attention.wo", "self_attn": "attention",
                         "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3",
                         "mlp.down_proj": "feed_forward.w2", "input_layernorm": "attention_norm",
                         "post_attention_layernorm": "ffn_norm", "embed_tokens": "tok_embeddings",
                         "lm_head": "output"})


def renamed(tensors, names):
    out = {}
    for key, tensor in tensors.items():
        for ours, theirs in names.items():
            key = key.replace(ours, theirs)
        out[key] = tensor
    return out


def one_qkv(tensors):
    out = {}
    for key, tensor in tensors.items():
        if "q_proj" in key:
            parts = [tensors[key.replace("q_proj", name)] for name in ("q_proj", "k_proj", "v_proj")]
            out[key.replace("q_proj", "qkv_proj")] = torch.cat(parts)
        elif "k_proj" not in key and "v_proj" not in key:
            out[key] = tensor
    return out


def ling_tensors(tensors):
    return renamed(one_qkv(one_tensor_per_expert(tensors, mixtral=False)), {
        "embed_tokens": "word_embeddings", "self_attn.qkv_proj": "attention.query_key_value",
        "self_attn.o_proj": "attention.dense", "self_attn.q_norm": "attention.query_layernorm",
        "self_attn.k_norm": "attention.key_layernorm", "e_score_correction_bias": "expert_bias"})


def chatglm_tensors(tensors):
    return renamed(one_qkv(tensors), {"model.embed_tokens": "transformer.embedding.word_embeddings",
                         "model.norm": "transformer.encoder.final_layernorm",
                         "model.layers": "transformer.encoder.layers", "lm_head": "transformer.output_layer",
                         "self_attn.qkv_proj": "self_attention.query_key_value",
                         "self_attn.o_proj": "self_attention.dense", "mlp.gate_up_proj": "mlp.dense_h_to_4h",
                         "mlp.down_proj": "mlp.dense_4h_to_h"})


def exaone_tensors(tensors):
    return renamed(tensors, {"model.embed_tokens": "transformer.wte", "model.norm": "transformer.ln_f",
                             "model.layers": "transformer.h", "o_proj": "out_proj", "self_attn": "attn.attention",
                             "input_layernorm": "ln_1", "post_attention_layernorm": "ln_2",
                             "mlp.gate_proj": "mlp.c_fc_0", "mlp.up_proj": "mlp.c_fc_1", "mlp.down_proj": "mlp.c_proj"})


HUB_TENSORS = {"InternLM2ForCausalLM": internlm2_tensors, "ExaoneForCausalLM": exaone_tensors,
               "ChatGLMModel": chatglm_tensors, "BailingMoeV2ForCausalLM": ling_tensors,
               "Step3p5ForCausalLM": step_tensors, "MiniMaxM3SparseForCausalLM": minimax_m3_tensors}


def make_model(name):
    kind, changes, stored = MODELS[name]
    words = {key: value for key, value in {**COMMON, **changes}.items() if value is not None or key == "q_lora_rank"}
    config = getattr(transformers, kind + "Config", None) or getattr(transformers.models.step3p7, kind + "Config", None) \
        or getattr(transformers.models.minimax_m3_vl, kind + "Config")
    config = config(**words)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    if kind.startswith("Step"):
        model = TextAndHead(config, getattr(transformers.models.step3p7.modeling_step3p7, kind + "Model"))
    elif kind.startswith("MiniMaxM3"):
        model = transformers.models.minimax_m3_vl.modeling_minimax_m3_vl.MiniMaxM3VLForCausalLM(config)
    else:
        model = getattr(transformers, kind.removesuffix("Text") + "ForCausalLM")(config)
    model.words = words
    model = model.to(torch.float32).eval()
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    gemma = kind == "Gemma" or kind.startswith(("Gemma2", "Gemma3", "Step", "MiniMaxM3"))  # norms are stored less 1
    large_embedding = kind.startswith("Gemma")
    hybrid = kind.startswith(("Qwen3Next", "Qwen3_5"))

    def fill(key, tensor):
        normal = torch.randn(tensor.shape, generator=generator)
        if "tid2eid" in key:
            return torch.rand((len(tensor), config.n_routed_experts), generator=generator).argsort()[:, :tensor.shape[1]]
        if tensor.dim() == 1:
            if "norm" in key and not (key.endswith("bias") and kind.startswith(("StableLm", "Starcoder2"))):
                return 0.2 * normal + (0 if gemma or hybrid and "linear_attn" not in key else 1)
            return 0.3 * normal if "sinks" not in key else normal
        if "correction_bias" in key:  # ERNIE's, of one row, which softmax scores meet
            return 0.1 * normal
        if "embed" in key or "lm_head" in key:
            # Where the head is the embedding, a large one says the last token again and again.
            tied = config.tie_word_embeddings
            return normal * (0.02 if large_embedding else 0.1 if tied else 1)
        fan_in = tensor.shape[-2 if kind == "GptOss" and tensor.dim() == 3 else -1]
        gain = 2.0 if any(part in key for part in ("q_proj", "k_proj", "q_b_proj", "kv_b_proj")) else 1.2
        return normal * gain / fan_in ** 0.5

    with torch.no_grad():
        for key, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if "inv_freq" in key or "embed_scale" in key:
                continue
            filled = fill(key, tensor)
            tensor.copy_(filled.to(stored.get("dtype", torch.bfloat16)) if filled.is_floating_point() else filled)
    if "quantise" in stored:
        model.quantised = quantised.quantise_model(model, stored["quantise"])
    return model


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0, -1]


def lead_of(logits):
    best = torch.topk(logits, 2).values
    return float((best[0] - best[1]) / logits.abs().max())


def make_prompt(model, length, generator):
    """A prompt whose greedy tokens are not decided by rounding, with what follows it."""
    for _ in range(400):
        ids = torch.randint(3, VOCABULARY, (length,), generator=generator).tolist()
        all_ids, first = list(ids), None
        for _ in range(NEW_TOKENS):
            logits = logits_of(model, all_ids)
            first = logits if first is None else first
            if lead_of(logits) < LEAST_LEAD:
                break
            all_ids.append(int(logits.argmax()))
        if len(all_ids) == length + NEW_TOKENS:
            return {"prompt_ids": ids, "token_ids": all_ids[length:], "logits": [float(f"{x:.7g}") for x in first]}
    raise SystemExit(f"no prompt of {length} tokens without near ties")


def classic_config(config):
    """config.json as Transformers 4 writes it: torch_dtype, rope_theta and rope_scaling."""
    config["torch_dtype"] = config.pop("dtype")
    parameters = dict(config.pop("rope_parameters"))
    config["rope_theta"] = parameters.pop("rope_theta")
    if "partial_rotary_factor" in parameters:
        config["partial_rotary_factor"] = parameters.pop("partial_rotary_factor")
    config["rope_scaling"] = None if parameters["rope_type"] == "default" else parameters
    config.pop("layer_types", None)
    return config


def one_tensor_per_expert(tensors, mixtral):
    """Expert weights as Transformers 4 stores them."""
    out = {}
    for key, tensor in tensors.items():
        at, _, leaf = key.rpartition("experts.")
        if leaf not in ("gate_up_proj", "down_proj") or tensor.dim() != 3:
            out[key.replace("mlp.gate.", "block_sparse_moe.gate.") if mixtral else key] = tensor
            continue
        at = at.replace("mlp.", "block_sparse_moe.") if mixtral else at
        for i, expert in enumerate(tensor):
            names = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
            parts = zip(names, expert.chunk(2)) if leaf == "gate_up_proj" else [(names[2], expert)]
            for name, part in parts:
                out[f"{at}experts.{i}.{name}.weight"] = part
    return out


def publish(folder, words):
    """Where Transformers writes other keys and names than published checkpoints have: the heads of single layers, the
    context of Kimi Linear, and its dense MLPs, which it calls as the experts; the blocks of Nemotron-H; DeepSeek V4."""
    path = os.path.join(folder, "model.safetensors")
    tensors = {re.sub(r"block_sparse_moe\.(\w+_proj)", r"mlp.\1", key): tensor
               for key, tensor in safetensors.torch.load_file(path).items()}
    if "compress_ratios" in words:
        tensors = renamed(tensors, {"attn.norm.": "attn.kv_norm.", "model.embed_tokens.": "embed.",
                                    "model.hc_head.hc_": "hc_head_", "model.": ""})
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    for key in ("model_max_length", "per_layer_config", "layers_block_type") + ("compress_rates", "layer_types",
                "mlp_layer_types", "rope_parameters", "partial_rotary_factor") * ("compress_ratios" in words):
        config.pop(key, None)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({**config, **words}, file, indent=1)


def save(model, name, folder):
    kind, _, stored = MODELS[name]
    dtype = stored.get("dtype", torch.bfloat16)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    if "hub" in stored:
        tensors = {key: value.to(dtype).contiguous() for key, value in model.state_dict().items()}
        tensors = HUB_TENSORS[stored["hub"]](tensors)
        tensors = {key: value.contiguous() for key, value in tensors.items()}
        safetensors.torch.save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump({"architectures": [stored["hub"]], **model.words, **stored.get("published", {}),
                       "dtype": str(dtype).removeprefix("torch.")}, file, indent=1)
    elif stored.get("classic") or stored.get("fused") or "quantise" in stored:
        config = json.loads(model.config.to_json_string(use_diff=False))
        config = {key: value for key, value in config.items() if not key.startswith("_")}
        config.update(architectures=[type(model).__name__], dtype=str(dtype).removeprefix("torch."))
        for key in ("id2label", "label2id", "problem_type", "return_dict", "output_hidden_states",
                    "output_attentions", "chunk_size_feed_forward", "is_encoder_decoder"):
            config.pop(key, None)
        tied = model.config.tie_word_embeddings
        tensors = {key: value.to(dtype) for key, value in model.state_dict().items()
                   if not (tied and key == "lm_head.weight")}
        if stored.get("classic"):
            config = classic_config(config)
            tensors = one_tensor_per_expert(tensors, kind == "Mixtral")
        if "quantise" in stored:
            tensors, config["quantization_config"] = model.quantised
        tensors = {key: value.contiguous() for key, value in tensors.items()}
        safetensors.torch.save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file, indent=1)
    else:
        model.to(dtype).save_pretrained(folder, max_shard_size="100KB" if stored.get("shards") else "1GB")
        model.to(torch.float32)
    if "published" in stored and "hub" not in stored:
        publish(folder, stored["published"])
    for extra in ("generation_config.json",):
        path = os.path.join(folder, extra)
        if os.path.exists(path):
            os.remove(path)


def main():
    root = sys.argv[1]
    torch.set_num_threads(1)
    for name in sys.argv[2:] or MODELS:
        model = make_model(name)
        generator = torch.Generator().manual_seed(7)
        prompts = [make_prompt(model, length, generator) for length in MODELS[name][2].get("lengths", PROMPT_LENGTHS)]
        folder = os.path.join(root, name)
        save(model, name, folder)
        with open(os.path.join(folder, "reference.json"), "w") as file:
            json.dump({"made_with": f"transformers {transformers.__version__}, torch {torch.__version__}",
                       "prompts": prompts}, file, indent=None)
        distinct = [len(set(prompt["token_ids"])) for prompt in prompts]
        size = sum(os.path.getsize(os.path.join(folder, file)) for file in os.listdir(folder))
        print(f"{name}: {sorted(os.listdir(folder))}, {size} bytes, distinct tokens {distinct}", flush=True)
    total = sum(os.path.getsize(os.path.join(at, file)) for at, _, files in os.walk(root) for file in files)
    print(f"{total} bytes in all")
    if total > MOST_BYTES:
        raise SystemExit(f"more than {MOST_BYTES} bytes")


if __name__ == "__main__":
    main()
