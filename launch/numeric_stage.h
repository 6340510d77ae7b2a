// What numeric execution shares over the runs of one command: weights, threads, collectives.
#pragma once

#include <memory>

#include "launch/deployment.h"
#include "launch/server_args.h"
#include "rank/linear/packed_matrix.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/collectives.h"
#include "rank/parallel/mpi_session.h"
#include "rank/parallel/numeric_ranks.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::launch {

class NumericStage {
 public:
  // Opens the checkpoint of --model-path, or seeds dummy weights. Collective where `group` has several
  // processes. Throws UserError naming --model-path or --load-format.
  NumericStage(const ServerArgs& args, const rank::ModelConfig& model, const rank::ProcessGroup& group);

  // Loads this process's ranks of `deployment`. Throws UserError, among others for too little memory.
  std::unique_ptr<rank::NumericRanks> make_ranks(const Deployment& deployment, bool return_logits = false);

 private:
  const ServerArgs& args_;
  rank::ProcessGroup group_;
  std::unique_ptr<rank::TensorSource> weights_;
  rank::ThreadPool pool_;
  std::unique_ptr<rank::Collectives> collectives_;
};

// "dummy" in --load-format, or a folder with safetensors. Throws UserError.
std::unique_ptr<rank::TensorSource> open_weights(const ServerArgs& args, const rank::ModelConfig& model);

// How weights are kept: bfloat16 as it is, float16 and float32 as fp32.
rank::WeightType weight_type(const ServerArgs& args, const rank::ModelConfig& model);

}  // namespace tpsim::launch
