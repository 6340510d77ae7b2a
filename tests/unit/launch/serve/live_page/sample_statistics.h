// A server in the middle of its work, with all figures apart from each other.
#pragma once

#include "launch/serve/live_statistics.h"

namespace tpsim::launch {

inline LiveStatistics sample_statistics() {
  LiveStatistics s;
  s.description.served_model_name = "my \"own\" model";
  s.description.model_path = "llama-3.1-70b";
  s.description.hardware = "h200-sxm";
  s.description.attention_backend = "flashinfer+fa3";
  s.description.executor = "modeled";
  s.description.tokenizer = "four bytes a token";
  s.description.tp_size = 8;
  s.description.speedup = 10;
  s.description.page_size = 16;
  s.description.max_total_num_tokens = 1600000;
  s.description.max_running_requests = 4096;
  s.description.context_length = 131072;
  s.description.speculative = true;
  s.description.speculative_num_draft_tokens = 5;
  s.description.startup_seconds = 1.5;
  s.wall_uptime = 60;
  s.now = 600;
  s.wall_lag = 0.25;
  s.num_running_reqs = 37;
  s.num_queue_reqs = 5;
  s.kv_used_tokens = 400000;
  s.kv_evictable_tokens = 200000;
  s.kv_available_tokens = 1000000;
  s.gen_throughput = 1234.5;
  s.cache_hit_rate = 0.625;
  s.utilization = 0.75;
  s.spec_accept_length = 3;
  s.open_connections = 50;
  s.open_streams = 42;
  s.accepted_requests = 1042;
  s.finished_requests = 990;
  s.rejected_requests = 3;
  s.aborted_requests = 7;
  s.invalid_requests = 2;
  s.prompt_tokens = 1000000;
  s.cached_tokens = 620000;
  s.generation_tokens = 250000;
  s.prefill_compute_tokens = 390000;
  s.prefill_cache_tokens = 630000;
  s.decode_tokens = 251000;
  s.retractions = 4;
  s.evicted_tokens = 12345678;
  s.steps = 20000;
  s.prefill_steps = 900;
  s.graph_steps = 19000;
  s.gpu_seconds = 450;
  s.prefill_gpu_seconds = 150;
  s.http_active = {{{"/generate", "POST"}, 42}};
  s.http_responses = {
      {{"/generate", "POST", 200}, 980}, {{"/generate", "POST", 400}, 2}, {{"/metrics", "GET", 200}, 60}};
  for (int i = 0; i < 100; ++i) {
    s.ttft.observe(0.01 * i);
    s.inter_token.observe(0.001 * i, 10);
    s.e2e.observe(0.2 * i);
    s.prompt_length.observe(20000.0 * i);
  }
  for (int i = 1; i <= 60; ++i) {
    LiveSample sample;
    sample.time = 10.0 * i;
    sample.seconds = 10;
    sample.running = static_cast<std::uint32_t>(30 + i % 7);
    sample.kv_used_tokens = 400000 + 1000 * static_cast<std::uint64_t>(i);
    sample.kv_cached_tokens = 200000;
    sample.kv_free_tokens = 1600000 - sample.kv_used_tokens - sample.kv_cached_tokens;
    sample.prompt_tokens = 16000;
    sample.cached_tokens = 10000;
    sample.prefill_tokens = 6000;
    sample.decode_tokens = 12000;
    sample.finished = 16;
    sample.steps = 330;
    sample.gpu_seconds = 7.5;
    sample.mean_ttft = 0.2;
    sample.mean_inter_token = 0.02;
    s.samples.push_back(sample);
  }
  return s;
}

}  // namespace tpsim::launch
