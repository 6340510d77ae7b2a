#include "launch/sglang_flags.h"

#include <algorithm>
#include <array>

namespace tpsim::launch {

namespace {

using Verdict = SglangFlag::Verdict;

struct Group {
  Verdict verdict;
  std::string_view reason;
  // Flags without their dashes. NAME is a switch, NAME= takes a value, NAME=A|B a value that changes nothing
  // where it is A or B, NAME* takes a list, NAME? a value or none. NAME-* stands for all that begin so, for
  // releases to come.
  std::string_view flags;
};

// All of SGLang 0.5.23's server_args.py that the commands do not have themselves (whose flags come first),
// and what 0.5.12 and 0.5.14 had besides.
// clang-format off
constexpr Group kGroups[] = {
    {Verdict::kIgnored,
     "",
     "speculative-draft-model-revision= speculative-draft-load-format= enable-draft-weights-cpu-backup "
     "image-format= no-mm-enable-dp-encoder tokenizer-path= tokenizer-mode= tokenizer-backend= tokenizer-worker-num= "
     "detokenizer-worker-num= skip-tokenizer-init model-loader-extra-config= trust-remote-code "
     "revision= model-config-parser= served-model-name= weight-version= download-dir= model-checksum? "
     "delete-ckpt-after-loading startup-weight-load-mode= custom-weight-loader* "
     "weight-loader-disable-mmap weight-loader-prefetch-checkpoints "
     "weight-loader-prefetch-num-threads= weight-loader-drop-cache-after-load "
     "remote-instance-weight-loader-seed-instance-ip= "
     "remote-instance-weight-loader-seed-instance-service-port= "
     "remote-instance-weight-loader-send-weights-group-ports= remote-instance-weight-loader-backend= "
     "remote-instance-weight-loader-start-seed-via-transfer-engine engine-info-bootstrap-port= "
     "modelexpress-config= checkpoint-engine-wait-weights-before-ready weight-cache-mode= "
     "weight-cache-socket= weight-cache-timeout= enable-weights-cpu-backup enable-memory-saver host= "
     "port= fastapi-root-path= smg-grpc-mode grpc-mode grpc-port= grpc-response-timeout-secs= "
     "sidecar= sidecar-args= smg-http-sidecar-port= grpc-http-sidecar-port= "
     "enable-http-worker-reuseport enable-http2 http2-max-concurrent-streams= "
     "http2-initial-connection-window-size= ssl-keyfile= ssl-certfile= ssl-ca-certs= "
     "ssl-keyfile-password= enable-ssl-refresh api-key= admin-api-key= skip-server-warmup warmups= "
     "file-storage-path= enable-response-store tool-server= nccl-port= dist-timeout= dist-init-addr= "
     "nccl-init-addr= gated-launch-port= pre-warm-nccl enable-p2p-check base-gpu-id= gpu-id-step= "
     "numa-node* use-ray gc-threshold* sleep-on-idle watchdog-timeout= "
     "soft-watchdog-timeout= custom-sigquit-handler= chat-template= trust-request-chat-template "
     "hf-chat-template-name= completion-template= default-chat-template-kwargs= reasoning-parser= "
     "tool-call-parser= enable-strict-thinking sampling-defaults= preferred-sampling-params= "
     "grammar-backend= constrained-json-whitespace-pattern= constrained-json-disable-any-whitespace "
     "constrained-json-max-whitespace-cnt= disable-outlines-disk-cache enable-custom-logit-processor "
     "return-input-ids return-output-ids enable-cache-report batch-notify-size= "
     "stream-response-default-include-usage incremental-streaming-output stream-output "
     "asr-max-buffer-seconds= asr-max-concurrent-sessions= enable-dynamic-batch-tokenizer "
     "dynamic-batch-tokenizer-batch-size= dynamic-batch-tokenizer-batch-timeout= "
     "enable-tokenizer-batch-encode disable-tokenizer-batch-decode log-level-http= log-requests "
     "log-requests-level= log-requests-format= log-requests-target* "
     "uvicorn-access-log-exclude-prefixes* crash-dump-folder= show-time-cost decode-log-interval= "
     "enable-metrics enable-mfu-metrics enable-metrics-for-all-schedulers "
     "load-snapshot-publish-interval= tokenizer-metrics-custom-labels-header= "
     "tokenizer-metrics-allowed-custom-labels* extra-metric-labels= bucket-time-to-first-token* "
     "bucket-inter-token-latency* bucket-e2e-request-latency* prompt-tokens-buckets* "
     "generation-tokens-buckets* collect-tokens-histogram gc-warning-threshold-secs= "
     "enable-request-time-stats-logging kv-events-config= load-publish-endpoint= "
     "enable-forward-pass-metrics forward-pass-metrics-worker-id= forward-pass-metrics-ipc-name= "
     "enable-trace trace-modules= otlp-traces-endpoint= otlp-service-name= export-metrics-to-file "
     "export-metrics-to-file-dir= enable-layerwise-nvtx-marker enable-profile-cuda-graph "
     "enable-cudagraph-gc expert-balancedness-report-mode="},
    {Verdict::kRefused,
     "tpsim simulates CUDA GPUs only; leave it out",
     "device=cuda mlx-enable-sampling"},
    {Verdict::kRefused,
     "tpsim is told how many drafts are right, by --speculative-accept-rates or --speculative-accept-lengths; "
     "leave it out",
     "speculative-accept-threshold-single=1.0|1 speculative-accept-threshold-acc=1.0|1 "
     "speculative-use-rejection-sampling speculative-use-block-verification "
     "speculative-ngram-min-bfs-breadth=1 speculative-ngram-match-type=BFS "
     "speculative-ngram-max-trie-depth=18 speculative-ngram-capacity=10000000 "
     "speculative-ngram-external-corpus-path= speculative-ngram-external-sam-budget=0 "
     "speculative-ngram-external-corpus-max-tokens=10000000"},
    {Verdict::kRefused,
     "a run keeps its --speculative-num-steps, whatever is accepted; `tpsim compare` takes a list of them",
     "speculative-adaptive speculative-adaptive-config="},
    {Verdict::kRefused,
     "is for DFLASH, DSPARK or UNO, which are not simulated; use EAGLE, EAGLE3, NEXTN, STANDALONE or NGRAM",
     "uno-lora-path= speculative-dflash-block-size= speculative-dflash-draft-window-size= "
     "speculative-dspark-block-size= speculative-dspark-sps-table-path= "
     "speculative-dspark-confidence-sts-path= speculative-dspark-align-verify-tokens-to-graph-tier "
     "speculative-domino-candidate-pool-size=2048"},
    {Verdict::kRefused,
     "maps of tokens are not read; the draft_vocab_size of an EAGLE3 head says how many it drafts from",
     "speculative-token-map="},
    {Verdict::kRefused,
     "is for models with several layers for the next token (MiMo V2, Step 3.5), none of which is simulated; "
     "leave it out",
     "enable-multi-layer-eagle"},
    {Verdict::kRefused,
     "drafts see the whole context; leave it out",
     "speculative-draft-window-size= speculative-draft-sink-size="},
    {Verdict::kRefused,
     "with data-parallel attention, ranks that prefill and ranks that verify take turns; leave it out",
     "speculative-skip-dp-mlp-sync"},
    {Verdict::kRefused,
     "this part of speculative decoding is not simulated; leave it out",
     "speculative-dsa-topk-backend=sgl-kernel speculative-enable-w4a4-mxfp4-megamoe "
     "no-speculative-enable-w4a4-mxfp4-megamoe decoupled-spec-bind-endpoint= "
     "decoupled-spec-connect-endpoints= decoupled-spec-rank= decoupled-spec-role=null spec-trace-dir= "
     "decrypted-draft-config-file= speculative-*"},
    {Verdict::kRefused,
     "images are simulated with SGLang's default processors, in one server; leave it out",
     "mm-process-config= mm-processor-worker-num=0 mm-io-worker-num=0 allowed-media-domains* "
     "media-url-max-file-size-mb= mm-preprocess-cache-size-mb= trust-mm-content-hashes "
     "limit-mm-data-per-request= enable-mm-global-cache image-processor-backend=auto "
     "mm-global-cache-backend= disable-fast-image-processor keep-mm-feature-on-device "
     "mm-feature-transport= enable-broadcast-mm-inputs-process enable-prefix-mm-cache encoder-only "
     "language-only language-model-only encoder-transfer-backend= encoder-urls* "
     "encoder-bootstrap-port= encoder-register-urls* enable-adaptive-dispatch-to-encoder "
     "enable-encoder-swa-bounded-replay enable-precise-embedding-interpolation mm-*"},
    {Verdict::kRefused,
     "only the weights' own format (--quantization) is simulated",
     "quantization-param-path= torchao-config= modelopt-quant= "
     "modelopt-checkpoint-restore-path= modelopt-checkpoint-save-path= modelopt-export-path= "
     "quantize-and-serve rl-quant-profile= fp4-gemm-backend=auto"},
    {Verdict::kRefused,
     "chunks of pipeline stages keep their size, --chunked-prefill-size; leave it out",
     "enable-dynamic-chunking"},
    {Verdict::kRefused,
     "of parallelism, --tp, --ep-size, --dp-size and what belongs to them are simulated; leave it out",
     "enable-dp-attention-local-control-broadcast "
     "dcp-size=1 decode-context-parallel-size=1 dcp-comm-backend= "
     "dcp-replicate-q-proj no-dcp-replicate-q-proj attn-cp-size=1 attention-context-parallel-size=1 "
     "enable-prefill-cp enable-prefill-context-parallel enable-nsa-prefill-context-parallel "
     "enable-dsa-prefill-context-parallel prefill-cp-mode= nsa-prefill-cp-mode= dsa-prefill-cp-mode= "
     "cp-strategy= enable-dsa-cache-layer-split enable-cp-decode-attn-tp enable-kv-cache-sharding "
     "moe-dp-size=1 moe-data-parallel-size=1 dwdp-size=1 "
     "enable-tp-lm-head-all-to-all no-enable-tp-lm-head-all-to-all enable-attn-tp-input-scattered "
     "enable-shared-experts-attn-tp shared-experts-tp-size= enable-dense-mlp-attn-tp "
     "enable-layernorm-sp enable-megamoe-for-layernorm-sp disable-attn-tp-gather "
     "deepep-v2-mode= deepep-config= deepep-dispatcher-output-dtype= enable-deepep-waterfill "
     "fuseep-mode= ep-num-redundant-experts=0 ep-dispatch-algorithm= init-expert-location=trivial "
     "enable-eplb eplb-algorithm=auto eplb-rebalance-num-iterations= eplb-rebalance-layers-per-chunk= "
     "eplb-min-rebalancing-utilization-threshold= expert-distribution-recorder-mode= "
     "expert-distribution-recorder-buffer-size= enable-expert-distribution-metrics "
     "elastic-ep-backend=none elastic-ep-rejoin enable-elastic-expert-backup mooncake-ib-device= "
     "enable-waterfill elastic-ep-join-mode= elastic-ep-join-rank-offset=0 elastic-ep-initial-size= "
     "max-ep-size= elastic-ep-scale-timeout= prefill-round-robin-balance dp-* deepep-* eplb-*"},
    {Verdict::kRefused,
     "one deployment is simulated on one node; leave it out",
     "nnodes=1 node-rank=0"},
    {Verdict::kRefused,
     "prefill/decode disaggregation is not simulated yet; leave it out",
     "disaggregation-mode=null disaggregation-transfer-backend= disaggregation-bootstrap-port= "
     "disaggregation-ib-device= disaggregation-decode-enable-radix-cache "
     "disaggregation-decode-enable-offload-kvcache disaggregation-decode-retraction-backup= "
     "num-reserved-decode-tokens= disaggregation-decode-extra-slots= "
     "disaggregation-decode-polling-interval= optimistic-prefill-attempts=0 "
     "disaggregation-enable-kv-checksum enable-pd-role-switch "
     "disaggregation-decode-host-receive-threshold= disaggregation-decode-allocation-policy= "
     "enable-pdmux pdmux-config-path= sm-group-num= disaggregation-*"},
    {Verdict::kRefused,
     "the host cache tier is not simulated yet; leave it out",
     "enable-hierarchical-cache enable-hicache hicache-host-memory-mode= hicache-ratio= "
     "hicache-size=0 hicache-write-policy= hicache-io-backend= hicache-mem-layout= "
     "hicache-storage-backend= hicache-storage-prefetch-policy= hicache-storage-backend-extra-config= "
     "hicache-storage-prefetch-retry-poll-interval= hicache-storage-prefetch-retry-max-attempts= "
     "hicache-host-memory-fraction= enable-unified-cache-external-linker "
     "unified-cache-external-linker-backend= unified-cache-external-linker-config= "
     "enable-linker-mla-dedup enable-lmcache lmcache-config-file= enable-flexkv flexkv-config-file= "
     "radix-cache-backend= hicache-*"},
    {Verdict::kRefused,
     "LoRA adapters are not simulated; leave it out",
     "enable-lora enable-lora-overlap-loading max-lora-rank= lora-target-modules* lora-paths* "
     "max-loaded-loras= max-loras-per-batch= lora-eviction-policy= lora-backend= max-lora-chunk-size= "
     "experts-shared-outer-loras no-experts-shared-outer-loras lora-use-virtual-experts "
     "lora-strict-loading no-lora-strict-loading lora-drain-wait-threshold= record-nolora-graph "
     "lora-*"},
    {Verdict::kRefused,
     "torch.compile is not simulated; leave it out",
     "enable-torch-compile enable-torch-compile-debug-mode torch-compile-max-bs= "
     "piecewise-cuda-graph-compiler= cuda-graph-tc-compiler="},
    {Verdict::kRefused,
     "decode is captured whole and prefill in pieces; --disable-decode-cuda-graph and --disable-prefill-cuda-graph turn them off",
     "cuda-graph-config= cuda-graph-backend-decode=full cuda-graph-backend-prefill= "
     "enable-breakable-cuda-graph enable-piecewise-cuda-graph enforce-piecewise-cuda-graph "
     "cuda-graph-prefill-max-context= context-bucket= cuda-graph-max-seq-len-prefill= "
     "debug-cuda-graph"},
    {Verdict::kRefused,
     "graphs are simulated with padding only; name sizes by --cuda-graph-bs",
     "disable-cuda-graph-padding"},
    {Verdict::kRefused,
     "overlap of two batches is not simulated; leave it out",
     "enable-two-batch-overlap enable-single-batch-overlap tbo-token-distribution-threshold="},
    {Verdict::kRefused,
     "the scheduler has no such rule in tpsim; leave it out",
     "max-queued-requests= prefill-decode-interval= prefill-decode-interval-min-bs=0 "
     "prefill-max-requests= num-continuous-decode-steps=1 "
     "allow-auto-truncate enable-prefill-delayer prefill-delayer-max-delay-passes= "
     "prefill-delayer-token-usage-low-watermark= prefill-delayer-forward-passes-buckets* "
     "prefill-delayer-wait-seconds-buckets* prefill-delayer-queue-min-ratio= "
     "prefill-delayer-max-delay-ms= min-free-slots-delay= enable-streaming-session "
     "enable-session-radix-cache strip-thinking-cache radix-eviction-policy-config= "
     "prefill-only-disable-kv-cache hybrid-kvcache-ratio= is-embedding enable-mis"},
    {Verdict::kRefused,
     "the KV cache has one pool of equal pages; leave it out",
     "swa-prefix-tails= enable-decoder-swa-bounded-replay "
     "no-enable-decoder-swa-bounded-replay c128-page-size= enable-page-major-kv-layout "
     "enable-unified-memory kv-canary=none kv-canary-sweep-interval=0 "
     "kv-canary-real-data=none prefill-kv-cache-dequant-dtype=auto"},
    {Verdict::kRefused,
     "sparse attention is simulated with SGLang's default indexer; leave it out",
     "dsa-paged-mqa-logits-backend=auto dsa-topk-backend=sgl-kernel dsa-triton-union=0 enable-dsa-fused-indexer "
     "no-enable-dsa-fused-indexer dsv4-prefill-backend=auto dsv4-attn-backend=auto "
     "enable-deepseek-v4-fp4-indexer qsa-indexer-dtype=auto enable-hisparse hisparse-config= "
     "hierarchical-sparse-attention-extra-config= enable-double-sparsity nsa-* dsa-* ds-*"},
    {Verdict::kRefused,
     "state-space and diffusion models are not simulated; leave it out",
     "mamba-backend= enable-mamba-cache-stochastic-rounding mamba-cache-philox-rounds= "
     "linear-attn-verify-backend= "
     "enable-linear-replayssm linear-replayssm-cache-len= enable-linear-replayssm-spec "
     "enable-scattered-sconv dllm-algorithm= dllm-algorithm-config= dllm-fdfo no-dllm-fdfo"},
    {Verdict::kRefused,
     "states of gated delta-net layers are cached as they are, as many as fit; leave it out",
     "mamba-max-states-per-path=-1 enable-int8-mamba-checkpoint int8-mamba-ckpt-size="},
    {Verdict::kRefused,
     "offloading of weights is not simulated; leave it out",
     "cpu-offload-gb=0 offload-group-size=-1 offload-num-in-group= offload-prefetch-step= "
     "offload-mode= kt-weight-path= kt-method= kt-cpuinfer= kt-threadpool-count= kt-num-gpu-experts= "
     "kt-max-deferred-experts-per-token= ple-offload-embedding no-ple-offload-embedding "
     "ple-offload-backend= ple-offload-dir= enable-paged-experts paged-experts-num-resident= "
     "offload-*"},
    {Verdict::kRefused,
     "the kernels are SGLang's default ones for the GPU; leave it out",
     "model-impl=auto|sglang enable-lean-attention triton-attention-reduce-in-fp32 "
     "triton-attention-num-kv-splits=8 triton-attention-split-tile-size= "
     "disable-flashinfer-autotune flashinfer-autotune-skip-ops* "
     "bf16-gemm-backend=auto sampling-backend= enable-fp32-lm-head enable-tf32-matmul "
     "no-enable-tf32-matmul enable-fused-qk-norm-rope no-enable-fused-qk-norm-rope "
     "moe-runner-backend=auto speculative-moe-runner-backend=auto flashinfer-mxfp4-moe-precision=default "
     "flashinfer-a2a-dispatch-type= enable-w4a4-mxfp4-megamoe "
     "disable-flashinfer-cutlass-moe-fp4-allgather "
     "enforce-shared-experts-fusion enable-fused-moe-sum-all-reduce enable-deterministic-inference "
     "rl-on-policy-target= monokernel-backend enable-amd-monokernel enable-nvidia-megakernel "
     "triton-attention-* flashinfer-* moe-*"},
    {Verdict::kRefused,
     "the collective algorithm is chosen by the hardware profile; leave it out",
     "disable-custom-all-reduce enable-nccl-nvls enable-symm-mem enable-mscclpp enable-torch-symm-mem "
     "boundary-reduction=auto enable-quant-communications enable-flashinfer-allreduce-fusion "
     "enforce-disable-flashinfer-allreduce-fusion flashinfer-allreduce-fusion-backend= "
     "enable-aiter-allreduce-fusion disable-aiter-allreduce-fusion-in-prefill "
     "disable-aiter-allreduce-fusion-in-decode"},
    {Verdict::kRefused,
     "what it returns or records costs time that is not simulated; leave it out",
     "enable-return-hidden-states return-hidden-states-mode= enable-return-routed-experts "
     "enable-return-indexer-topk enable-return-aux-hidden-states return-aux-hidden-state-layer-ids* "
     "sampling-mask-max-tokens= enable-watermark watermark-config= debug-tensor-dump-output-folder= "
     "debug-tensor-dump-layers* debug-tensor-dump-input-file= debug-tensor-dump-inject= "
     "forward-hooks= msprobe-dump-config= enable-nan-detection debug-tensor-dump-*"},
    {Verdict::kRefused,
     "the model is described by its config.json; change that instead",
     "json-model-override-args={} decrypted-config-file="},
    {Verdict::kRefused,
     "prompts are made of lengths, which is fast already; leave it out",
     "gsp-fast-prepare"},
    {Verdict::kRefused,
     "one server is simulated, nothing is routed; leave it out",
     "gsp-send-routing-key"},
};
// clang-format on

// The word of kGroups as a flag.
SglangFlag parse_word(std::string_view word, const Group& group) {
  using Values = SglangFlag::Values;
  SglangFlag flag{.verdict = group.verdict, .values = Values::kNone, .harmless = {}, .reason = group.reason};
  if (const std::size_t equals = word.find('='); equals != std::string_view::npos) {
    flag.values = Values::kOne;
    flag.harmless = word.substr(equals + 1);
  } else if (word.ends_with('*')) {
    flag.values = Values::kMany;
  } else if (word.ends_with('?')) {
    flag.values = Values::kOneOrNone;
  }
  return flag;
}

bool names(std::string_view word, std::string_view name) {
  if (word.ends_with("-*")) return name.starts_with(word.substr(0, word.size() - 1));
  return word.substr(0, word.find_first_of("=*?")) == name;
}

}  // namespace

bool SglangFlag::changes_nothing(std::string_view value) const {
  if (values == Values::kNone) return value == "false";
  for (std::string_view rest = harmless; !rest.empty();) {
    const std::size_t bar = std::min(rest.find('|'), rest.size());
    if (rest.substr(0, bar) == value) return true;
    rest.remove_prefix(std::min(bar + 1, rest.size()));
  }
  return false;
}

// The commands' own flags that begin as one of the families does.
constexpr std::array<std::string_view, 24> kOwn = {"deepep-mode",
                                                   "dp-size",
                                                   "dsa-decode-backend",
                                                   "dsa-prefill-backend",
                                                   "flashinfer-mla-disable-ragged",
                                                   "moe-a2a-backend",
                                                   "mm-attention-backend",
                                                   "mm-enable-dp-encoder",
                                                   "moe-dense-tp-size",
                                                   "nsa-decode-backend",
                                                   "nsa-prefill-backend",
                                                   "speculative-algo",
                                                   "speculative-algorithm",
                                                   "speculative-attention-mode",
                                                   "speculative-draft-attention-backend",
                                                   "speculative-draft-kv-cache-dtype",
                                                   "speculative-draft-model",
                                                   "speculative-draft-model-path",
                                                   "speculative-draft-model-quantization",
                                                   "speculative-eagle-topk",
                                                   "speculative-moe-a2a-backend",
                                                   "speculative-ngram-max-bfs-breadth",
                                                   "speculative-num-draft-tokens",
                                                   "speculative-num-steps"};

std::optional<SglangFlag> find_sglang_flag(std::string_view name) {
  if (std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end()) return std::nullopt;
  for (const bool families : {false, true}) {
    for (const Group& group : kGroups) {
      for (std::string_view rest = group.flags; !rest.empty();) {
        const std::size_t blank = std::min(rest.find(' '), rest.size());
        const std::string_view word = rest.substr(0, blank);
        if (word.ends_with("-*") == families && names(word, name)) return parse_word(word, group);
        rest.remove_prefix(std::min(blank + 1, rest.size()));
      }
    }
  }
  return std::nullopt;
}

}  // namespace tpsim::launch
