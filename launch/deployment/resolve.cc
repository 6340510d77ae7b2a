#include "launch/deployment/resolve.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "kvcache/pools/page_allocator.h"
#include "launch/deployment/batches.h"
#include "launch/deployment/host.h"
#include "launch/deployment/images.h"
#include "launch/deployment/nodes.h"
#include "launch/deployment/sides.h"
#include "proto/versions.h"
#include "rank/cost/hardware.h"
#include "rank/llm/layers.h"
#include "rank/parallel/local_ranks.h"
#include "rank/vision/vision_encoder.h"

namespace tpsim::launch {
namespace {

scheduler::SchedulerConfig scheduler_config(const ServerArgs& args, const Deployment& deployment,
                                            const Batches& batches, std::uint32_t context_length) {
  const Memory& memory = deployment.memory;
  const Switches switches = deployment.pipeline.switches;
  scheduler::SchedulerConfig config =
      with_batches(host_options(args, deployment.hardware, deployment.host), args, batches);
  derive_host_steps(config, deployment.host, deployment.hardware);
  config.page_size = deployment.attention.page_size;
  config.max_total_num_tokens = memory.tokens;
  config.sliding_window_size = memory.windows.window;
  config.swa_max_total_num_tokens = memory.window_tokens;
  config.hicache = deployment.hicache.config;
  config.states = deployment.states.config;
  if (memory.state_slots > 0 && switches.radix_cache)
    config.states.slots = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(memory.state_slots, std::numeric_limits<std::uint32_t>::max() / 2));
  config.max_running_requests = memory.max_running_requests;
  config.enable_mixed_chunk = switches.mixed_chunk;
  config.disable_radix_cache = !switches.radix_cache;
  config.disable_overlap_schedule = !switches.overlap;
  config.context_length = context_length;
  config.cuda_graph_bs =
      captured_sizes(deployment.graphs.decode, memory.max_running_requests, deployment.parallel.layout);
  config.random_seed = args.random_seed;
  config.speculation = deployment.speculation.config;
  config.pipeline = deployment.pipeline.config;
  config.send_tokens = args.numeric() || !args.record_batches.empty();
  config.eos_token_ids = deployment.model.eos_token_ids;
  config.check_invariants = args.check_invariants;
  return config;
}

rank::DeploymentConfig rank_config(const ServerArgs& args, const Deployment& deployment) {
  const rank::ParallelLayout& layout = deployment.parallel.layout;
  const Memory& memory = deployment.memory;
  const std::uint32_t page_size = deployment.attention.page_size;
  rank::DeploymentConfig ranks;
  ranks.tp_size = args.tp_size;
  ranks.dp_size = layout.dp_size;
  if (!args.numeric()) ranks.images = make_image_encoder(deployment.hardware, layout, deployment.model);
  ranks.pp_size = deployment.pipeline.config.size;
  for (const rank::KvCapacity& stage : memory.stages)
    ranks.stage_kv_bytes.push_back(stage.kv_bytes_per_token);
  ranks.slowdown = rank::parse_rank_slowdowns(args.rank_slowdown, ranks.num_ranks());
  ranks.state.page_size = page_size;
  // Page numbers: the allocator's address space is larger than the pool.
  ranks.state.num_pages =
      kvcache::PageAllocator::with_slack(static_cast<std::uint32_t>(memory.tokens / page_size));
  ranks.state.kv_bytes_per_token = memory.kv_bytes_per_token;
  ranks.state.max_requests = kMaxRunningRequests;
  ranks.state.check = args.check_invariants;
  for (std::uint32_t r = 0; r < ranks.num_ranks(); ++r) {
    const std::uint32_t stage = r / args.tp_size;
    const rank::ModelConfig model = deployment.pipeline.model_of_stage(deployment.model, stage);
    const rank::Shard of_rank = deployment.pipeline.shard_of(model, layout, r % args.tp_size, stage);
    proto::RankReport report;
    report.set_rank(r);
    report.add_q_heads(of_rank.q_heads.first);
    report.add_q_heads(of_rank.q_heads.last);
    report.add_kv_heads(of_rank.kv_heads.first);
    report.add_kv_heads(of_rank.kv_heads.last);
    report.set_slowdown(ranks.slowdown[r]);
    report.set_weight_bytes(rank::weight_bytes(model, of_rank));
    if (model.vision.served)
      report.set_vision_weight_bytes(
          rank::vision_weight_bytes(model.vision, {layout.attn_tp_size(), model.vision.replicated}));
    report.set_kv_pool_bytes(memory.tokens * memory.stages[stage].kv_bytes_per_token +
                             memory.window_tokens * memory.stages[stage].window_bytes_per_token);
    ranks.ranks.push_back(std::move(report));
  }
  return ranks;
}

void write_header(const ServerArgs& args, Deployment& deployment) {
  proto::RunReport& header = deployment.header;
  header.set_version(kRunReportVersion);
  header.set_backend(deployment.attention.backends.name());
  header.set_prefill_attention_backend(deployment.attention.backends.prefill);
  header.set_decode_attention_backend(deployment.attention.backends.decode);
  header.set_model(deployment.model.name);
  header.set_hardware(args.numeric() ? "CPU" : deployment.hardware.name());
  header.set_tp_size(args.tp_size);
  if (deployment.scheduler.pipeline.staged()) header.set_pp_size(deployment.scheduler.pipeline.size);
  header.set_executor(args.executor);
  header.set_clock(args.numeric() ? "wall" : "virtual");
  if (!args.numeric()) write_calibration(deployment, args.launch_queue.has_value(), header);
  if (deployment.speculation.config.enabled())
    header.mutable_speculation()->set_algorithm(deployment.speculation.algorithm);
  if (!args.numeric()) deployment.describe_captures(header);
  const scheduler::SchedulerConfig& config = deployment.scheduler;
  Rows& rows = *header.mutable_server_args();
  write_model(args, deployment.hardware, deployment.model, deployment.weights, config.context_length, rows);
  write_kernels(args, deployment.kernels, rows);
  write_attention(args, deployment.model, deployment.attention, deployment.sparse, rows);
  write_states(args, deployment.model, deployment.states, deployment.memory.states.full_memory_ratio,
               deployment.memory.state_slots, rows);
  write_memory(deployment.memory, deployment.model, rows);
  write_hicache(args, deployment.hicache, rows);
  write_batches(config, rows);
  write_host(args, config, rows);
  write_graphs(config.cuda_graph_bs, deployment.graphs.prefill, rows);
  write_load(args, rows);
  write_images(deployment.model.vision, rows);
  write_speculation(args, deployment.speculation, rows);
  write_parallel(args.parallel, deployment.parallel, deployment.pipeline, deployment.model,
                 config.max_running_requests, rows);
  write_router(deployment.router, rows);
}

Deployment resolve_one(const ServerArgs& args, const BackendPair* pair) {
  Deployment out;
  rank::ModelConfig& model = out.model;
  model = load_model(args);
  model.linear.state_bytes = state_bytes(args, model);
  check_window_flags(args, model);
  out.hardware = with_named_kernels(args, load_device(args));
  const proto::HardwareProfile& hardware = out.hardware;
  out.host = rank::load_host(hardware_name(args));
  out.weights = resolve_weights(args, hardware, model);
  model.quantization = out.weights.quantization;
  out.speculation = resolve_speculation(args, out.host, model);
  out.attention = choose_attention(args, pair, hardware, model);
  out.parallel = resolve_parallel(args, model);
  place_on_nodes(args, out.hardware, out.parallel);
  out.router = resolve_router(args);
  out.kernels = resolve_kernels(args, hardware, model, out.parallel.layout);
  model.facts.trtllm_experts = out.kernels.trtllm_experts;
  out.parallel.layout.fuses_all_reduces = out.kernels.fuses_all_reduces;
  const rank::ParallelLayout& layout = out.parallel.layout;
  if (!args.numeric() && model.quantization.quantized())
    rank::check_blocks(rank::weight_list(model, rank::make_shard(model, layout, 0)), model.name);
  out.draft = resolve_draft(args, hardware, model, out.speculation, out.attention, layout);
  out.sparse = choose_sparse_attention(args, hardware, model, out.attention.kv_format, layout);
  Images images = resolve_images(args, hardware, layout, model, out.attention.profiled_qwen3_vl);
  model.vision = std::move(images.vision);
  const std::uint32_t context_length = resolve_context_length(args, model);
  const scheduler::SpeculationConfig& speculation = out.speculation.config;
  Batches batches =
      resolve_batches(args, hardware, model, layout, out.attention.page_size, out.speculation.switches);
  out.states = resolve_states(args, hardware, model, out.attention.page_size, batches.chunk, speculation,
                              batches.switches);
  out.pipeline = resolve_pipeline(args, model, layout, speculation.enabled(), out.states.switches);
  out.graphs = resolve_graphs(args, hardware, model, out.attention, layout, batches,
                              out.pipeline.config.staged() || out.parallel.two_batches);
  out.memory = resolve_memory(args, hardware, model, out.speculation, out.attention, out.sparse, layout,
                              batches, out.states, out.pipeline, out.graphs,
                              draft_memory(args, model, out.speculation, out.draft), context_length);
  out.hicache = resolve_hicache(args, hardware, model, out.attention.hicache,
                                {.tokens = out.memory.tokens,
                                 .bytes_per_token = out.memory.kv_bytes_per_token,
                                 .page_size = out.attention.page_size,
                                 .layers = model.num_layers,
                                 .ranks = layout.attn_tp_size(),
                                 .windows = out.memory.windows.window > 0,
                                 .states = out.memory.state_slots > 0},
                                speculation.has_head(), out.pipeline.switches.radix_cache);
  for (Notes* notes : {&out.attention.notes, &out.speculation.notes, &out.parallel.notes, &out.router.notes,
                       &out.kernels.notes, &images.notes, &batches.notes, &out.states.notes,
                       &out.pipeline.notes, &out.graphs.notes, &out.memory.notes, &out.hicache.notes})
    out.notes.insert(out.notes.end(), notes->begin(), notes->end());
  for (Notes* warnings :
       {&out.attention.warnings, &out.speculation.warnings, &out.weights.warnings, &out.router.warnings})
    out.warnings.insert(out.warnings.end(), warnings->begin(), warnings->end());
  out.scheduler = scheduler_config(args, out, batches, context_length);
  out.ranks = rank_config(args, out);
  out.fresh_kernels =
      fresh_kernels(args, model, out.attention, layout, batches.chunk, out.scheduler.cuda_graph_bs);
  write_header(args, out);
  return out;
}

Deployment join(const ServerArgs& prefill, const ServerArgs& decode, const BackendPair* pair) {
  Deployment out = resolve_one(prefill_side_args(prefill), pair);
  join_sides(prefill, resolve_one(decode_side_args(decode), pair), out);
  return out;
}

Deployment resolve_servers(const ServerArgs& args, const BackendPair* pair) {
  if (!args.disaggregation.pd_disaggregation) return resolve_one(args, pair);
  return join(args, decode_server_args(args), pair);
}

}  // namespace

Deployment resolve_split(const ServerArgs& prefill, const ServerArgs& decode) {
  return join(prefill, decode, nullptr);
}

std::vector<Deployment> resolve_deployments(const ServerArgs& args, bool compare) {
  std::vector<Deployment> deployments;
  if (!compare) {
    deployments.push_back(resolve_servers(args, nullptr));
  } else {
    for (const BackendPair& pair : args.attention_backends)
      deployments.push_back(resolve_servers(args, &pair));
  }
  return deployments;
}

}  // namespace tpsim::launch
