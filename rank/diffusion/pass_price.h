// The price of a list of operators on one GPU of a plan: products, kernels between them, attention with the
// exchanges of sequence parallelism, device against host.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attention/diffusion/selection/diffusion_attention.h"
#include "rank/cost/op_cost.h"
#include "rank/cost/pass_clock.h"
#include "rank/diffusion/calibration.h"
#include "rank/diffusion/operators.h"
#include "rank/diffusion/pipeline.h"

namespace tpsim::rank {

// How a pass runs.
struct PassSetting {
  std::uint32_t tp = 1, ulysses = 1, ring = 1, kv_gather = 1;
  bool fp32 = false;
  WeightFormat weights = {};
  KeptModules kept = {};
  bool compile = false;
  double batch = 1;
  std::array<std::uint32_t, 3> grid{};
  std::uint32_t step = 0, steps = 1;
  bool shards_text = false;
  // Of the layers' attention; null: by its arithmetic alone (encoders, VAEs).
  const attention::DiffusionAttention* self = nullptr;
  const attention::DiffusionAttention* cross = nullptr;
  double launch = diffusion::kLaunch;  // a kernel's, in the profile's launches
  double issued = 0;                   // kernels in all; 0: those that are listed
  const diffusion::VaeRates* vae = nullptr;
  bool even_channels = false;  // of a VAE, all multiples of 128
};

// What a pass takes, before memory.
struct PassCost {
  double device = 0, host = 0, seconds = 0, sent = 0;
  std::vector<OperatorShare> operators;
  // Adds to the share of that name.
  void add(std::string_view name, const KernelCost& cost, double times = 1);
  void add(const PassCost& other, double times);
};

class PassPrice {
 public:
  explicit PassPrice(const proto::HardwareProfile& profile);
  PassCost price(const OperatorList& list, const PassSetting& setting) const;
  double launch_seconds() const { return clock_.launch_seconds(); }
  const OperatorCosts& costs() const { return costs_; }

 private:
  struct Sum;
  KernelCost product(const PassOperator& op, const PassSetting& setting, const WeightFormat& weights) const;
  void self_attention(const PassOperator& op, const PassSetting& setting, Sum& sum) const;
  KernelCost plain_attention(const PassOperator& op, const PassSetting& setting) const;

  OperatorCosts costs_;
  PassClock clock_;
  double dense_flops_, bandwidth_;
};

}  // namespace tpsim::rank
