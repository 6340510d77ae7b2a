// What the user asked for: the flags of `tpsim run` and `tpsim compare` under SGLang's names, checked one by
// one. What was left open (an empty optional) is chosen in launch/deployment.h, where model, GPU and
// attention backend are known.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcache/eviction_policy.h"
#include "launch/flag_set.h"
#include "scheduler/config.h"
#include "scheduler/workload/benchmark_datasets.h"

namespace tpsim::launch {

// A backend, or a hybrid pair with one for prefill and one for decode.
struct BackendPair {
  std::string prefill;
  std::string decode;

  // SGLang's spelling: "fa3", or "flashinfer+fa3" for a pair.
  std::string name() const { return prefill == decode ? prefill : prefill + "+" + decode; }
};

// How the model is shared among the GPUs, beside --tp and --ep-size (launch/parallel_args.h).
struct ParallelArgs {
  std::uint32_t dp_size = 1;
  bool enable_dp_attention = false;
  std::optional<std::uint32_t> attn_dp_size;  // of SGLang 0.5.23: both of the above
  bool enable_dp_lm_head = false;
  std::uint32_t pp_size = 1;
  std::optional<std::uint32_t> pp_max_micro_batch_size;
  std::uint32_t pp_async_batch_depth = 0;
  std::string pp_layer_partition;  // SGLANG_PP_LAYER_PARTITION of the environment
  std::optional<std::uint32_t> moe_dense_tp_size;
  std::string moe_a2a_backend = "none";
  std::string deepep_mode = "auto";
  std::optional<std::string> expert_distribution;  // default uniform
  scheduler::LoadBalanceMethod load_balance = scheduler::LoadBalanceMethod::kRoundRobin;
};

// How images are served, and what images a dataset has.
struct ImageArgs {
  bool enable_multimodal = false;
  std::string mm_attention_backend;  // empty: SGLang's default
  bool mm_enable_dp_encoder = false;
  std::optional<std::uint64_t> vlm_cache_size_mb;
  std::optional<std::uint32_t> image_count;  // default 1
  std::optional<std::string> image_resolution;
  bool random_image_count = false;
  std::string image_content;  // empty: random
};

// Speculative decoding (launch/speculation.h).
struct SpeculationArgs {
  std::string algorithm;  // EAGLE, EAGLE3, NEXTN, STANDALONE or NGRAM; empty: none
  std::string draft_model_path;
  std::optional<std::uint32_t> num_steps, eagle_topk, num_draft_tokens;
  std::uint32_t ngram_max_bfs_breadth = 10;
  std::string attention_mode = "prefill";
  std::optional<std::string> draft_attention_backend;
  // Empty: as the target has it.
  std::string draft_kv_cache_dtype, draft_quantization, moe_a2a_backend;
  std::vector<double> accept_rates;
  bool accept_from_trace = false;
  std::string accept_lengths_file;
  std::string given;  // some flag of these but the algorithm; empty: none was given
};

struct ServerArgs {
  // Deployment.
  std::string model_path;
  std::string hardware;
  std::uint32_t tp_size = 1;
  std::string executor = "modeled";
  std::optional<std::string> load_format;  // default auto
  std::string dtype = "auto";
  std::uint32_t ep_size = 1;
  ParallelArgs parallel;
  bool disable_shared_experts_fusion = false;
  std::optional<std::uint32_t> context_length;
  std::vector<std::string> rank_slowdown;  // RANK:FACTOR, read by rank/parallel/slowdown.h

  // Attention.
  std::optional<std::string> attention_backend;
  std::optional<std::string> prefill_attention_backend;
  std::optional<std::string> decode_attention_backend;
  std::vector<BackendPair> attention_backends;  // compare
  bool all_attention_backends = false;  // compare: whatever can be run, found by launch/all_backends.h
  std::optional<std::string> nsa_prefill_backend, nsa_decode_backend;  // kernels of sparse attention
  std::optional<std::uint32_t> page_size;
  std::string kv_cache_dtype = "auto";
  std::string quantization;               // "": the checkpoint's
  std::string fp8_gemm_backend = "auto";  // or flashinfer_trtllm

  SpeculationArgs speculation;
  // The pool of sliding-window layers.
  std::optional<double> swa_full_tokens_ratio;  // default 0.8
  bool disable_hybrid_swa_memory = false;

  // States of gated delta-net layers.
  std::optional<double> mamba_full_memory_ratio;      // default 0.9
  std::optional<std::uint32_t> max_mamba_cache_size;  // states
  std::string mamba_ssm_dtype = "auto";
  std::string mamba_radix_cache_strategy = "auto";    // auto, no_buffer, extra_buffer
  std::optional<std::uint32_t> mamba_track_interval;  // tokens; default 256
  // Empty: open.
  std::string linear_attn_backend, linear_attn_decode_backend, linear_attn_prefill_backend;

  // Memory and batches.
  std::optional<double> mem_fraction_static;
  std::optional<std::uint64_t> max_total_tokens;
  std::optional<std::uint32_t> max_running_requests;
  std::uint32_t max_prefill_tokens = 16384;
  std::optional<std::int64_t> chunked_prefill_size;  // -1: no chunks
  bool enable_mixed_chunk = false;
  std::uint32_t scheduler_recv_interval = 1;
  std::vector<double> pass_gap_ms;         // of a pass, and of each request in it; empty: hidden
  std::optional<double> kernel_launch_us;  // of an eager pass; none: the hardware profile's
  std::vector<double> compile_seconds;     // at the first prefill of several requests, and of a whole chunk
  std::optional<double> compile_decode_seconds;
  std::optional<std::string>
      served_before;  // by a server that compiles for sizes that it meets; none: it has met all
  std::optional<std::uint32_t> launch_queue;  // 0: any number
  scheduler::SchedulePolicy schedule_policy = scheduler::SchedulePolicy::kFcfs;
  double schedule_conservativeness = 1.0;
  scheduler::SglangRelease sglang_release = scheduler::kNewestRelease;
  scheduler::PriorityConfig priority;
  scheduler::RetractionPolicy retraction_policy = scheduler::RetractionPolicy::kLength;
  bool disable_radix_cache = false;
  bool disable_chunked_prefix_cache = false;  // MLA models
  bool flashinfer_mla_disable_ragged = false;
  kvcache::EvictionPolicy radix_eviction_policy = kvcache::EvictionPolicy::kLru;
  bool disable_overlap_schedule = false;
  bool disable_cuda_graph = false;
  std::optional<std::uint32_t> cuda_graph_max_bs;
  std::vector<std::uint32_t> cuda_graph_bs;
  bool disable_decode_cuda_graph = false;
  bool disable_prefill_cuda_graph = false;  // also --disable-piecewise-cuda-graph
  std::optional<std::uint32_t> prefill_cuda_graph_max_tokens;
  std::vector<std::uint32_t> prefill_cuda_graph_tokens;

  ImageArgs images;

  // Load.
  std::string trace;
  std::string trace_format = "auto";
  std::string dataset_name;  // of SGLang's benchmark; empty: --trace
  std::string dataset_path;  // the file of sharegpt and mooncake
  bool use_trace_timestamps = false;
  std::uint32_t warmup_requests = 0;
  bool flush_cache = false;
  std::optional<scheduler::SessionMode> session_mode;  // default closed
  std::optional<std::uint64_t> num_prompts;
  std::optional<std::uint32_t> random_input_len;   // default 1024
  std::optional<std::uint32_t> random_output_len;  // default 1024
  std::optional<double> random_range_ratio;        // default 0
  scheduler::SharedPrefixOptions gsp;              // its seed is load_seed()
  std::string gsp_flag;                            // the first --gsp-* value that was given; empty: none
  bool gsp_zipf = false;
  std::optional<double> request_rate;
  bool fixed_interval = false;
  std::uint32_t max_concurrency = 0;
  std::optional<std::string> front_end;  // default: by the workload (launch/workload_args.cc)
  std::optional<double> client_seconds;  // default: what was fitted (scheduler/client_share.h); serve: 0
  std::optional<double> tokenize_us;     // of a token of a prompt; default: kTextFrontEnd's
  std::uint32_t stream_interval = 1;
  std::optional<double> time_scale;  // default 1
  std::uint32_t random_seed = 1;
  std::optional<std::uint32_t> seed;

  // Service levels.
  scheduler::ServiceLevels goodput;
  bool max_goodput_rate = false;
  std::optional<double> goodput_share;  // default 0.99

  // Output.
  std::string report_dir;
  std::uint64_t steps_every = 1;  // steps.csv holds every so many-th step; 0: there is none
  bool compress = false;          // CSV files
  std::string output_file;
  std::string log_level = "warning";
  bool quiet = false;
  bool no_progress = false;
  bool check_invariants = false;
  std::string record_batches;  // file; empty: none
  std::string trace_out;       // Perfetto trace; file; empty: none
  // The part of the run's clock that it holds, seconds.
  double trace_from = 0;
  double trace_until = std::numeric_limits<double>::infinity();
  std::string checkpoint;                    // file that receives the run's state; empty: none, or `resume`
  std::optional<double> checkpoint_every;    // seconds of the wall clock; default 60
  std::string resume;                        // file to go on from; empty: none
  std::map<std::string, std::string> given;  // flags, as FlagSet::given()

  // Of compare.
  std::optional<std::uint32_t> jobs;  // settings of a sweep served at once, by each process
  bool swept = false;                 // one setting of a sweep (launch/sweep.h)

  // Flags of SGLang's server that were given and mean nothing here.
  std::vector<std::string> ignored_flags;

  const std::string& checkpoint_file() const { return resume.empty() ? checkpoint : resume; }
  bool numeric() const { return executor == "numeric"; }
  bool dummy_weights() const { return load_format == "dummy"; }
  // Of dataset and arrivals.
  std::uint32_t load_seed() const { return seed.value_or(random_seed); }
};

// Declares the flags of run (or, with `compare`, of compare) in `flags`; they are read into `args`, which
// must outlive `flags`.
void declare_server_flags(FlagSet& flags, ServerArgs& args, bool compare);
// The same without a load, for one deployment: generate, verify, replay.
void declare_deployment_flags(FlagSet& flags, ServerArgs& args);

// --hardware, --model-path and what else decides which attention backends can run: of `tpsim backends`.
void declare_backends_flags(FlagSet& flags, ServerArgs& args);

// The flags that `tpsim compare` takes lists for: the settings that a user chooses between.
std::span<const std::string_view> sweepable_flags();

// Checks that need more than one flag, after all were read: what must be given, what excludes what.
// Throws UserError.
void check_server_args(const ServerArgs& args, bool compare);
void check_deployment_args(const ServerArgs& args);

std::string_view to_string(scheduler::SchedulePolicy policy);
std::string_view to_string(scheduler::SessionMode mode);
std::string_view to_string(kvcache::EvictionPolicy policy);
std::string_view to_string(scheduler::RetractionPolicy policy);
std::string_view to_string(scheduler::LoadBalanceMethod method);

}  // namespace tpsim::launch
