// What the two forms of MLA add to a pass besides its linear layers and the attention kernels.
//
// Absorbed: two batched products a layer, one per head each: queries into the latent's space (W_UK), outputs
// out of it (W_UV); they take kv_b_proj's place. With 8-bit weights their inputs are quantised first.
// Expanded: kv_b_proj over every latent, cached ones fetched before, and the keys put together from their two
// parts.
//
// Source: forward_absorb_prepare/_core and forward_normal_prepare, _chunked_prefix_attn_mha of SGLang 0.5.12
// (models/deepseek_common/attention_forward_methods). Coefficients: classes "mla_bmm" and "mla_bmm_fp8",
// fitted to mla_bmm_perf by launch/lab/calibrate/mla_bmm_fit.h.
#pragma once

#include <string>
#include <string_view>

#include "attention/backend.h"
#include "proto/correction_surface.h"
#include "proto/hardware.pb.h"
#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/config/weight_format.h"
#include "rank/cost/op_cost.h"

namespace tpsim::rank {

// C[b, m, n] = A[b, m, k] B[b, k, n], `bytes` (1 or 2) an element of A and B; c and corrections: of
// product_class(), whose features are kBatchedGemmFeatures, b, m and n. `memory_share`: how much of the
// bytes' time counts (a benchmark that calls it again and again finds some in L2).
KernelCost batched_gemm(const OperatorCoefficients& c, const Corrections& corrections,
                        const proto::HardwareProfile& profile, double b, double m, double n, double k,
                        double bytes, double memory_share = 1);

class MlaCosts {
 public:
  // `kv_b`: how kv_b_proj is stored. What is not 16 or 8 bit is multiplied in 16 bit (w_kc and w_vc in
  // deepseek_weight_loader.py are made once).
  MlaCosts(const ModelConfig& model, const Shard& shard, const proto::HardwareProfile& profile,
           const WeightFormat& kv_b);
  // Of OperatorEfficiency.operator_class.
  static std::string_view product_class(const WeightFormat& kv_b) {
    return kv_b.kind == WeightFormat::Kind::kFp8 ? "mla_bmm_fp8" : "mla_bmm";
  }

  // Both products of one layer over `rows` tokens; more rows are never cheaper.
  KernelCost absorbed(double rows) const;
  // One layer's weights in fp8 that are widened and scaled in front of both products, in every pass, for
  // PyTorch's product has no fp8 on AMD's GPUs before gfx950 (forward_absorb_prepare and
  // forward_absorb_core of models/deepseek_v2.py); nothing elsewhere.
  KernelCost widening(const OperatorCosts& costs) const;
  // One layer's copies of queries and keys whose parts are put together (MlaRule::joins).
  KernelCost joining(const OperatorCosts& costs, double rows) const;
  // `kv_bytes`: of one stored element of the latent.
  // One layer that expands `rows` new tokens' latents and fetches and expands `fetched` cached ones in
  // `chunks` turns (0: none). kv_b_proj over the new tokens is not counted: it is in the pass's linear
  // layers.
  KernelCost expanded(const OperatorCosts& costs, double rows, double fetched, double chunks,
                      double kv_bytes) const;

 private:
  KernelCost product(double rows, double n, double k) const;

  const proto::HardwareProfile& profile_;
  OperatorCoefficients bmm_;
  Corrections bmm_corrections_;
  MonotonePrice into_latent_, out_of_latent_;  // along the rows
  double heads_, latent_, nope_, rope_, v_dim_, product_bytes_;
  WeightFormat kv_b_;
  bool widens_ = false;
};

}  // namespace tpsim::rank
