// A small comparison with every field set, for tests.
#pragma once

#include <string>

#include "launch/report/comparison.h"
#include "proto/report.pb.h"
#include "proto/versions.h"

namespace tpsim::launch {

inline proto::RunReport sample_run(const std::string& backend, double factor) {
  proto::RunReport run;
  run.set_version(kRunReportVersion);
  run.set_backend(backend);
  run.set_prefill_attention_backend(backend);
  run.set_decode_attention_backend(backend);
  run.set_model("llama-3.1-70b");
  run.set_hardware("h200-sxm");
  run.set_tp_size(2);
  run.set_trace("sample.jsonl");
  run.set_executor("modeled");
  run.set_clock("virtual");
  run.set_completed(1000);
  run.set_failed(2);
  run.set_duration(100 * factor);
  run.set_total_input_tokens(5000000000);
  run.set_total_output_tokens(300000);
  run.set_request_throughput(10 / factor);
  run.set_input_throughput(40000 / factor);
  run.set_output_throughput(3000 / factor);
  run.set_total_throughput(43000 / factor);
  run.set_mean_ttft_ms(123.456 * factor);
  run.set_median_ttft_ms(100 * factor);
  run.set_p99_ttft_ms(987.6 * factor);
  run.set_mean_tpot_ms(12.5 * factor);
  run.set_median_tpot_ms(11 * factor);
  run.set_p99_tpot_ms(44 * factor);
  run.set_mean_itl_ms(12.4 * factor);
  run.set_p99_itl_ms(99.5 * factor);
  run.set_mean_e2e_latency_ms(4500 * factor);
  run.set_cache_hit_rate(0.512);
  run.set_peak_kv_usage(0.75);
  run.set_retractions(3);
  run.set_steps(2000);
  run.set_kv_pool_tokens(2000000);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    proto::RankReport& r = *run.add_ranks();
    r.set_rank(rank);
    r.set_slowdown(1);
    r.set_attention_seconds(20 * factor);
    r.set_gemm_seconds(50);
    r.set_collective_seconds(15);
    r.set_other_seconds(5);
    r.set_launch_seconds(2);
    r.set_wait_seconds(rank);
  }
  for (int i = 0; i < 50; ++i) {
    proto::TimelinePoint& point = *run.add_timeline();
    point.set_time(2 * i);
    point.set_queue(i % 7);
    point.set_running(20 + i % 13);
    point.set_kv_usage(0.3 + 0.01 * (i % 20));
    point.set_cache_hit_rate(0.5);
    point.set_prefill_tokens_per_second(40000);
    point.set_decode_tokens_per_second(3000);
  }
  for (proto::Histogram* h :
       {run.mutable_ttft_histogram(), run.mutable_tpot_histogram(), run.mutable_itl_histogram()}) {
    for (const double upper : {1.0, 10.0, 100.0}) {
      h->add_upper_ms(upper * factor);
      h->add_fraction(1.0 / 3);
    }
  }
  proto::Calibration& c = *run.add_calibration();
  c.set_operator_class("attention." + backend + ".decode");
  c.set_status("uncalibrated");
  (*run.mutable_server_args())["page_size"] = "1";
  (*run.mutable_server_args())["chunked_prefill_size"] = "8192";
  return run;
}

inline proto::ComparisonReport sample_comparison() {
  proto::ComparisonReport report;
  report.set_version(kRunReportVersion);
  *report.add_runs() = sample_run("fa3", 1);
  *report.add_runs() = sample_run("triton", 1.3);
  *report.add_runs() = sample_run("flashinfer+fa3", 0.995);
  choose_best(report);
  return report;
}

}  // namespace tpsim::launch
