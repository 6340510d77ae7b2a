// What numeric execution shares over the runs of one command: weights, threads, collectives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "launch/deployment/deployment.h"
#include "launch/deployment/numeric_execution.h"
#include "launch/flags/server_args.h"
#include "rank/linear/packed_matrix.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/collectives.h"
#include "rank/numeric/numeric_forward.h"
#include "rank/numeric/vision/image_encoder.h"
#include "rank/parallel/mpi_session.h"
#include "rank/parallel/numeric_ranks.h"
#include "rank/parallel/numeric_speculation.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::launch {

class ComputingStage : public NumericStage {
 public:
  // Collective where `group` has several processes.
  ComputingStage(const ServerArgs& args, const rank::ProcessGroup& group);

  // Opens the weights of --model-path, or seeds dummy ones, and loads this process's ranks of
  // `deployment`; later runs of the command, which are of the same model and --tp, share them. Throws
  // UserError naming --model-path, --load-format or a file, or for too little memory.
  std::unique_ptr<rank::NumericRanks> make_ranks(const Deployment& deployment, bool return_logits = false);

  std::unique_ptr<rank::DeploymentExecutor> make_executor(rank::WorkerLink* link,
                                                          const Deployment& deployment,
                                                          bool return_logits) override;
  std::unique_ptr<rank::WorkerRanks> make_worker(const Deployment& deployment) override;
  void set_while_waiting(std::function<void()> hook) override;

 private:
  std::shared_ptr<rank::ImageEncoder> image_encoder(const Deployment& deployment,
                                                    const rank::NumericOptions& options);
  // Fills what depends on the draft model of `drafting`.
  std::unique_ptr<rank::TokenForward> make_draft(const Deployment& deployment, rank::NumericOptions options,
                                                 rank::DraftingConfig& drafting);

  const ServerArgs& args_;
  rank::ProcessGroup group_;
  rank::ThreadPool pool_;
  std::unique_ptr<rank::Collectives> collectives_;
  rank::LoadedRanks loaded_, loaded_draft_;
  std::shared_ptr<rank::ImageEncoder> images_;
  std::vector<std::uint32_t> token_map_;  // of the draft's vocabulary
};

// "dummy" in --load-format, or a folder with safetensors. Throws UserError.
std::unique_ptr<rank::TensorSource> open_weights(const ServerArgs& args, const rank::ModelConfig& model);

}  // namespace tpsim::launch
