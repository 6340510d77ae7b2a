// Where the weights of a pipeline's components lie, what a GPU holds of them, and what moving them takes.
#pragma once

#include <cstdint>
#include <string_view>

#include "rank/diffusion/encoder.h"
#include "rank/diffusion/pass_price.h"
#include "rank/diffusion/pipeline.h"

namespace tpsim::rank {

class Placement {
 public:
  // Both outlive it.
  Placement(const PipelineConfig& config, const PipelinePlan& plan) : config_(config), plan_(plan) {}

  // That share each layer of it by tensor parallelism.
  std::uint32_t gpus_of(const PipelineComponent& c) const;
  const PipelineComponent& component(std::string_view name) const;
  // Of one GPU, while it runs `running`, without activations.
  double held_bytes(std::string_view running) const;
  // Adds to `stage` what `passes` passes of `c` take with what is moved for them, and the bytes.
  void run(const PipelineComponent& c, const PassCost& pass, double passes, StageCost& stage) const;

 private:
  Residency residency(std::string_view component) const;
  const EncoderConfig* encoder(const PipelineComponent& c) const;  // null: it is none
  double weight_bytes(const PipelineComponent& c) const;           // of one GPU
  double streamed_bytes(const PipelineComponent& c) const;
  double host_link() const;  // bytes a second of one GPU

  const PipelineConfig& config_;
  const PipelinePlan& plan_;
};

}  // namespace tpsim::rank
