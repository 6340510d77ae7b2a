// A small comparison with every field set, for tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "launch/report/comparison.h"
#include "launch/report/html_page.h"
#include "launch/report/json_writer.h"
#include "launch/report/step_profile.h"
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
  run.set_prefill_steps(400);
  run.set_decode_steps(1600);
  run.set_replayed_steps(1500);
  run.set_replayed_fraction(0.9375);
  run.set_cuda_graphs(36);
  run.set_cuda_graph_capture_seconds(9.5);
  run.set_cuda_graph_bytes(540'000'000);
  run.set_last_arrival_time(90);
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
    r.mutable_prefill()->set_attention(5 * factor);
    r.mutable_prefill()->set_gemm(30);
    r.mutable_prefill()->set_collective(10);
    r.mutable_decode()->set_attention(15 * factor);
    r.mutable_decode()->set_gemm(20);
    r.mutable_decode()->set_collective(5);
    r.mutable_decode()->set_other(5);
    r.mutable_decode()->set_launch(2);
    r.mutable_decode()->set_wait(rank);
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

// 600 steps of 80 to 120 ms, five of six of them decode.
inline StepProfile sample_steps() {
  StepProfile profile;
  scheduler::StepRecord step;
  for (int i = 0; i < 600; ++i) {
    const bool prefill = i % 6 == 0;
    step.forward_mode = prefill ? proto::EXTEND : proto::DECODE;
    step.step_time = prefill ? 0.12 : 0.08;
    step.extend_tokens = prefill ? 1000 + 10 * static_cast<std::uint32_t>(i) : 0;
    step.decode_requests = prefill ? 0 : 20;
    profile.add(step);
    step.start_time += step.step_time;
  }
  return profile;
}

// 96 settings, with the keys of a sweep: throughput grows with the rate until the backend is full.
inline nlohmann::ordered_json sample_sweep() {
  using Json = nlohmann::ordered_json;
  const Json axes = {{{"flag", "attention_backends"}, {"values", {"fa3", "flashinfer", "triton"}}},
                     {{"flag", "tp"}, {"values", {"4", "8"}}},
                     {{"flag", "page_size"}, {"values", {"1", "64"}}},
                     {{"flag", "schedule_policy"}, {"values", {"lpm", "fcfs"}}},
                     {{"flag", "request_rate"}, {"values", {"1", "2", "4", "8"}}}};
  Json report = {{"best", "fa3"}, {"best_reason", "highest throughput"}, {"runs", Json::array()}};
  report["sweep"]["axes"] = axes;
  report["planned_runs"] = 100;
  report["refused"] = {
      {{"settings", {{"attention_backends", "fa3"}, {"tp", "3"}}}, {"reason", "--tp 3: no"}}};
  for (int i = 0; i < 96; ++i) {
    const int backend = i / 32, tp = i / 16 % 2, page = i / 8 % 2, policy = i / 4 % 2, rate = i % 4;
    const double full =
        (26000 - 3000 * backend) * (tp == 1 ? 1 : 0.6) * (page == 1 ? 0.97 : 1) * (policy == 1 ? 0.95 : 1);
    const double offered = 4000 << rate;
    proto::RunReport run = sample_run(std::string(axes[0]["values"][static_cast<std::size_t>(backend)]), 1);
    run.clear_timeline();
    run.clear_ttft_histogram();
    run.clear_tpot_histogram();
    run.clear_itl_histogram();
    run.set_total_throughput(std::min(full, offered));
    run.set_mean_e2e_latency_ms(4000 * (1 + offered / full) * (1 + offered / full));
    run.set_mean_ttft_ms(run.mean_e2e_latency_ms() / 30);
    Json json = to_json(run);
    for (std::size_t k = 0; k < axes.size(); ++k) {
      const int value = std::array{backend, tp, page, policy, rate}[k];
      json["settings"][std::string(axes[k]["flag"])] = axes[k]["values"][static_cast<std::size_t>(value)];
    }
    json["pareto"] = backend == 0 && tp == 1 && page == 0 && policy == 0;
    if (json["pareto"])
      report["best_by_load"].push_back({{"load", {{"request_rate", json["settings"]["request_rate"]}}},
                                        {"setting", json["settings"]},
                                        {"backend", "fa3"},
                                        {"reason", "highest throughput"}});
    if (json["pareto"] && rate == 3) report["best_setting"] = json["settings"];
    if (offered > full)
      json["overload"]["message"] = "offered more than it serves: the queue grows without end";
    json["request_goodput"] = rate + 0.5;
    json["goodput_share"] = 0.75;
    json["turns"] = 100;
    json["early_turns"] = i == 7 ? 3 : 0;
    report["runs"].push_back(std::move(json));
  }
  return report;
}

}  // namespace tpsim::launch
