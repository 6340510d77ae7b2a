#include "launch/unsupported_flags.h"

#include <string_view>

#include "proto/error.h"

namespace tpsim::launch {

namespace {

struct Family {
  std::string_view prefix;  // a flag, or the start of a family of flags where it ends in '-'
  std::string_view reason;
};

constexpr std::string_view kServer =
    "is about SGLang's server process, which tpsim does not start; leave it out";
constexpr std::string_view kParallel = "only tensor parallelism (--tp) is simulated";

// Names: SGLang 0.5's server_args.py.
constexpr Family kFamilies[] = {
    {"--speculative-", "speculative decoding is not simulated yet; leave it out"},
    {"--mm-", "multimodal models are not simulated yet; leave it out"},
    {"--enable-multimodal", "multimodal models are not simulated yet; leave it out"},
    {"--quantization", "quantised weights are not simulated yet; leave it out for bfloat16 weights"},
    {"--torchao-config", "quantised weights are not simulated yet; leave it out"},
    {"--quantization-param-path", "quantised weights are not simulated yet; leave it out"},
    {"--pp-", kParallel},
    {"--pipeline-parallel-size", kParallel},
    {"--dp-", kParallel},
    {"--dp", kParallel},
    {"--data-parallel-size", kParallel},
    {"--enable-dp-attention", kParallel},
    {"--enable-dp-lm-head", kParallel},
    {"--moe-dense-tp-size", kParallel},
    {"--moe-", "the choice of MoE kernels is not simulated; leave it out"},
    {"--deepep-", kParallel},
    {"--enable-eplb", kParallel},
    {"--eplb-", kParallel},
    {"--nnodes", "one deployment is simulated on one node; leave it out"},
    {"--node-rank", "one deployment is simulated on one node; leave it out"},
    {"--dist-", "ranks are started by mpirun; leave it out"},
    {"--disaggregation-", "prefill/decode disaggregation is not simulated yet; leave it out"},
    {"--enable-hierarchical-cache", "the host cache tier is not simulated yet; leave it out"},
    {"--hicache-", "the host cache tier is not simulated yet; leave it out"},
    {"--enable-lmcache", "the host cache tier is not simulated yet; leave it out"},
    {"--enable-lora", "LoRA adapters are not simulated; leave it out"},
    {"--lora-", "LoRA adapters are not simulated; leave it out"},
    {"--max-lora", "LoRA adapters are not simulated; leave it out"},
    {"--enable-torch-compile", "torch.compile is not simulated; leave it out"},
    {"--torch-compile-max-bs", "torch.compile is not simulated; leave it out"},
    {"--enable-piecewise-cuda-graph", "prefill runs in captured pieces by default; leave it out"},
    {"--enforce-piecewise-cuda-graph", "prefill runs in captured pieces by default; leave it out"},
    {"--piecewise-cuda-graph-compiler", "torch.compile is not simulated; leave it out"},
    {"--cuda-graph-tc-compiler", "torch.compile is not simulated; leave it out"},
    {"--cuda-graph-backend-",
     "decode is captured whole and prefill in pieces; use --disable-decode-cuda-graph or "
     "--disable-prefill-cuda-graph to run without"},
    {"--cuda-graph-config",
     "decode is captured whole and prefill in pieces; use --disable-decode-cuda-graph or "
     "--disable-prefill-cuda-graph to run without"},
    {"--disable-cuda-graph-padding", "graphs are simulated with padding only; name sizes by --cuda-graph-bs"},
    {"--enable-two-batch-overlap", "two-batch overlap is not simulated; leave it out"},
    {"--enable-single-batch-overlap", "single-batch overlap is not simulated; leave it out"},
    {"--num-continuous-decode-steps", "one decode step at a time is simulated; leave it out"},
    {"--swa-full-tokens-ratio", "separate pools for window layers are not simulated yet; leave it out"},
    {"--disable-hybrid-swa-memory", "separate pools for window layers are not simulated yet; leave it out"},
    {"--nsa-", "sparse attention is not simulated yet; leave it out"},
    {"--enable-double-sparsity", "sparse attention is not simulated yet; leave it out"},
    {"--ds-", "sparse attention is not simulated yet; leave it out"},
    {"--mamba-", "state-space models are not simulated; leave it out"},
    {"--cpu-offload-gb", "offloading of weights is not simulated; leave it out"},
    {"--offload-", "offloading of weights is not simulated; leave it out"},
    {"--triton-attention-", "the triton backend runs with SGLang's defaults; leave it out"},
    {"--flashinfer-", "the flashinfer backend runs with SGLang's defaults; leave it out"},
    {"--sampling-backend", "sampling kernels are not told apart; leave it out"},
    {"--grammar-backend", "constrained decoding is not simulated; leave it out"},
    {"--enable-deterministic-inference", "deterministic kernels are not simulated; leave it out"},
    {"--disable-custom-all-reduce",
     "the collective algorithm is chosen by the hardware profile; leave it out"},
    {"--enable-flashinfer-allreduce-fusion", "fused collectives are not simulated; leave it out"},
    {"--enable-nccl-nvls", "the collective algorithm is chosen by the hardware profile; leave it out"},
    {"--enable-symm-mem", "the collective algorithm is chosen by the hardware profile; leave it out"},
    {"--enable-mscclpp", "the collective algorithm is chosen by the hardware profile; leave it out"},
    {"--gsp-fast-prepare", "prompts are made of lengths, which is fast already; leave it out"},
    {"--gsp-send-routing-key", "one server is simulated, nothing is routed; leave it out"},
    {"--tokenizer-", kServer},
    {"--skip-tokenizer-init", kServer},
    {"--served-model-name", kServer},
    {"--trust-remote-code", kServer},
    {"--revision", kServer},
    {"--host", kServer},
    {"--port", kServer},
    {"--api-key", kServer},
    {"--chat-template", kServer},
    {"--reasoning-parser", kServer},
    {"--tool-call-parser", kServer},
    {"--enable-metrics", kServer},
    {"--log-requests", kServer},
    {"--download-dir", kServer},
    {"--device", kServer},
    {"--base-gpu-id", kServer},
    {"--watchdog-timeout", kServer},
    {"--stream-interval", kServer},
    {"--warmups", kServer},
    {"--skip-server-warmup", kServer},
};

}  // namespace

void refuse_unsupported_flag(const std::string& flag) {
  for (const Family& family : kFamilies) {
    const bool whole = flag == family.prefix;
    const bool member = family.prefix.back() == '-' && flag.rfind(family.prefix, 0) == 0;
    if (whole || member) throw_user_error("{}: {}", flag, family.reason);
  }
}

}  // namespace tpsim::launch
