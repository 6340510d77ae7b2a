// Numeric execution as the rest of launch/ sees it. Only programs that compute are linked with it
// (launch/numeric, launch/programs): it takes as long to build as all that a priced run needs.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "launch/flags/server_args.h"
#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/local_ranks.h"
#include "rank/parallel/mpi_session.h"
#include "rank/parallel/worker_link.h"

namespace tpsim::launch {

struct Deployment;

// What computing ranks share over the runs of one command.
class NumericStage {
 public:
  virtual ~NumericStage() = default;
  // Of process 0, with the logits of prompts if they are wanted; `link` null: it stands in for all ranks. The
  // first call of this or of make_worker() loads weights. Throws UserError naming --model-path, --load-format
  // or a file, or for too little memory.
  virtual std::unique_ptr<rank::DeploymentExecutor> make_executor(rank::WorkerLink* link,
                                                                  const Deployment& deployment,
                                                                  bool return_logits) = 0;
  // Of another process, for its ranks.
  virtual std::unique_ptr<rank::WorkerRanks> make_worker(const Deployment& deployment) = 0;
  // Called now and then while this process waits for others in a collective; what it throws ends the wait.
  virtual void set_while_waiting(std::function<void()> hook) = 0;
};

struct NumericExecution {
  // Collective where `group` has several processes.
  std::unique_ptr<NumericStage> (*make_stage)(const ServerArgs& args, const rank::ProcessGroup& group);
  // Whether images of models of an architecture are computed; all that are simulated are priced.
  bool (*computes_images)(std::string_view architecture);
};

// Called once, before any command, by a program that is linked with `execution`.
void link_numeric_execution(const NumericExecution& execution);
// Throws UserError in a program that is linked without.
const NumericExecution& numeric_execution();

}  // namespace tpsim::launch
