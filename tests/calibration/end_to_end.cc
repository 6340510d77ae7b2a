// Compares predicted with measured serving: every row of sglang_end_to_end.csv whose model and GPU are known
// and whose parallelism is tensor parallelism runs through the scheduler and the modeled executor, closed
// loop.
//
//   end_to_end CSV [NAME=VALUE …]
//
// NAME is a launch constant of the hardware profile (kernel_launch_seconds, graph_replay_seconds,
// graph_kernel_gap_seconds, scheduler_step_seconds) or elementwise.fixed_seconds / elementwise.memory; with
// it one sees what a constant is worth before it enters the catalogue.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "attention/registry.h"
#include "kvcache/page_allocator.h"
#include "proto/base/error.h"
#include "rank/model/hardware.h"
#include "rank/model/memory.h"
#include "rank/model/modeled_forward.h"
#include "rank/model/quantization_config.h"
#include "rank/parallel/modeled_executor.h"
#include "scheduler/engine.h"
#include "scheduler/workload/synthetic.h"

namespace tpsim::calibration {
namespace {

using Row = std::map<std::string, std::string>;

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> cells;
  std::stringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
  return cells;
}

std::vector<Row> read_rows(const std::string& path) {
  std::ifstream stream(path);
  std::string line;
  std::getline(stream, line);
  const std::vector<std::string> header = split(line);
  std::vector<Row> rows;
  while (std::getline(stream, line)) {
    const std::vector<std::string> cells = split(line);
    Row row;
    for (std::size_t i = 0; i < std::min(header.size(), cells.size()); ++i) row[header[i]] = cells[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

class Quiet : public scheduler::RunObserver {
 public:
  void on_request(const scheduler::RequestRecord&) override {}
  void on_step(const scheduler::StepRecord& step) override {
    if (step.forward_mode == proto::DECODE) {
      decode_seconds += step.step_time;
      ++decode_steps;
    }
  }
  bool on_progress(const scheduler::Progress&) override { return true; }
  double decode_seconds = 0;
  std::uint64_t decode_steps = 0;
};

void apply(proto::HardwareProfile& profile, const std::string& name, double value) {
  if (name.starts_with("elementwise.")) {
    proto::OperatorEfficiency* found = nullptr;
    for (auto& entry : *profile.mutable_efficiencies())
      if (entry.operator_class() == "elementwise") found = &entry;
    if (found == nullptr) {
      found = profile.add_efficiencies();
      found->set_operator_class("elementwise");
      found->set_memory(0.8);
      found->set_fixed_seconds(3e-6);
    }
    if (name == "elementwise.memory")
      found->set_memory(value);
    else
      found->set_fixed_seconds(value);
    return;
  }
  const auto* field = profile.GetDescriptor()->FindFieldByName(name);
  if (field == nullptr) throw_user_error("{}: no such constant", name);
  profile.GetReflection()->SetDouble(&profile, field, value);
}

struct Prediction {
  double ttft_ms, tpot_ms, decode_ms;
};

Prediction predict(const Row& row, const rank::ModelConfig& model, const proto::HardwareProfile& profile) {
  const auto number = [&](const char* key) { return static_cast<std::uint32_t>(std::stoul(row.at(key))); };
  const std::uint32_t tp = number("tp_size");
  const std::uint32_t concurrency = number("concurrency");
  const rank::Shard shard = rank::make_shard(model, tp, 0);
  const rank::BatchDefaults defaults = rank::default_batches(profile, tp, /*larger_below_35_gib=*/false);
  const std::vector<std::uint32_t> pieces = rank::capture_prefill_tokens(defaults.chunked_prefill_size);
  const double mem_fraction_static =
      rank::default_mem_fraction(profile, {.tp_size = tp,
                                           .activation_tokens = defaults.chunked_prefill_size,
                                           .cuda_graph_max_bs = defaults.cuda_graph_max_bs,
                                           .prefill_captures = static_cast<std::uint32_t>(pieces.size())});
  const rank::KvCapacity capacity =
      rank::kv_capacity(profile, model, shard, mem_fraction_static, NumberFormat::kBf16, 1);

  scheduler::SchedulerConfig config;
  config.max_total_num_tokens = capacity.tokens;
  config.chunked_prefill_size = defaults.chunked_prefill_size;
  config.context_length = model.context_length;
  config.max_running_requests = rank::default_max_running_requests(capacity.tokens, model.context_length);
  config.cuda_graph_bs = rank::capture_batch_sizes(defaults.cuda_graph_max_bs);
  config.scheduler_step_seconds = profile.scheduler_step_seconds();

  rank::DeploymentConfig ranks;
  ranks.tp_size = tp;
  ranks.state.num_pages = kvcache::PageAllocator::with_slack(static_cast<std::uint32_t>(capacity.tokens));
  ranks.state.kv_bytes_per_token = capacity.kv_bytes_per_token;
  ranks.slowdown.assign(tp, 1.0);
  ranks.ranks.resize(tp);
  std::vector<std::unique_ptr<rank::RankModel>> models;
  const std::string backend =
      attention::choose_backend(
          {.generation = attention::parse_gpu_generation(profile.architecture()).value()})
          .backend;
  models.push_back(std::make_unique<rank::ModeledForward>(
      model, profile, shard, attention::create_attention_backend(backend, profile, 1),
      rank::ModeledForward::Options{.kv_format = NumberFormat::kBf16,
                                    .cuda_graph_bs = config.cuda_graph_bs,
                                    .prefill_graphs = {.tokens = pieces}}));
  rank::ModeledExecutor executor(rank::LocalRanks(ranks, 0, tp, std::move(models)));

  scheduler::RandomOptions random;
  random.num_prompts = std::uint64_t{concurrency} * 6;
  random.random_input_len = number("isl");
  random.random_output_len = number("osl");
  random.random_range_ratio = 1;
  scheduler::LoadConfig load;
  load.max_concurrency = concurrency;
  load.front_end = scheduler::kTextFrontEnd;
  Quiet quiet;
  const proto::RunReport report =
      scheduler::run_workload(config, load, scheduler::make_random_workload(random), executor, quiet);
  return {report.mean_ttft_ms(), report.mean_tpot_ms(),
          quiet.decode_seconds / static_cast<double>(std::max<std::uint64_t>(1, quiet.decode_steps)) * 1e3};
}

// Of the weights: a checkpoint in blocks of fp8 (DeepSeek), a 16-bit one quantised while loading, or NVIDIA's
// nvfp4 ones, whose attention stays 16 bit.
void set_precision(const std::string& precision, rank::ModelConfig& model) {
  if (precision == "fp8" && !model.quantization.quantized())
    model.quantization = rank::resolve_quantization({}, "fp8");
  if (precision == "fp4") {
    model.quantization = rank::read_hf_quant_config(
        nlohmann::json::parse(R"({"quantization": {"quant_algo": "NVFP4", "group_size": 16,
                                  "exclude_modules": ["self_attn", "lm_head"]}})"),
        "nvfp4");
  }
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

int run(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: end_to_end CSV [NAME=VALUE …]\n";
    return 2;
  }
  std::map<std::string, std::vector<double>> ttft, tpot, signed_tpot;
  for (const Row& row : read_rows(argv[1])) {
    if (std::stoul(row.at("tp_size")) > 8 || std::stoul(row.at("moe_ep_size")) > 1) continue;
    std::string gpu = row.at("system");
    std::replace(gpu.begin(), gpu.end(), '_', '-');
    if (gpu == "b200-sxm") gpu = "b200";
    rank::ModelConfig model;
    proto::HardwareProfile profile;
    try {
      model = rank::load_model_config(row.at("model_path"));
      profile = rank::load_hardware(gpu);
      set_precision(row.at("precision"), model);
    } catch (const UserError&) {
      continue;  // not in the catalogue
    }
    for (int i = 2; i < argc; ++i) {
      const std::string setting = argv[i];
      const std::size_t equals = setting.find('=');
      if (equals == std::string::npos) throw_user_error("{}: must be NAME=VALUE", setting);
      apply(profile, setting.substr(0, equals), std::stod(setting.substr(equals + 1)));
    }
    Prediction p;
    try {
      p = predict(row, model, profile);
    } catch (const UserError& error) {
      std::cout << "not asked: " << error.what() << "\n";
      continue;
    }
    const double ttft_ratio = p.ttft_ms / std::stod(row.at("silicon_ttft_ms"));
    const double tpot_ratio = p.tpot_ms / std::stod(row.at("silicon_tpot_ms"));
    const std::string key = model.name + " " + row.at("precision") +
                            (row.at("precision").empty() ? "" : " ") + gpu + " tp" + row.at("tp_size");
    for (const std::string& k : {key, std::string("all")}) {
      ttft[k].push_back(std::abs(ttft_ratio - 1));
      tpot[k].push_back(std::abs(tpot_ratio - 1));
      signed_tpot[k].push_back(tpot_ratio);
    }
    std::cout << key << " c" << row.at("concurrency") << " " << row.at("isl") << "+" << row.at("osl")
              << ": decode step " << p.decode_ms << " ms; TPOT " << p.tpot_ms << " of "
              << row.at("silicon_tpot_ms") << " (x" << tpot_ratio << "), TTFT " << p.ttft_ms << " of "
              << row.at("silicon_ttft_ms") << " (x" << ttft_ratio << ")\n";
  }
  for (const auto& [key, errors] : tpot) {
    std::cout << key << ": " << errors.size() << " rows, median error TPOT " << median(errors) * 100
              << " % (median ratio " << median(signed_tpot[key]) << "), TTFT " << median(ttft[key]) * 100
              << " %\n";
  }
  return 0;
}

}  // namespace
}  // namespace tpsim::calibration

int main(int argc, char** argv) { return tpsim::calibration::run(argc, argv); }
