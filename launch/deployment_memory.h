// The memory of a deployment: pools of KV, of window layers and of states, and how many requests share them.
#pragma once

#include "launch/deployment.h"
#include "launch/server_args.h"
#include "rank/model/memory.h"
#include "rank/model/model_config.h"

namespace tpsim::launch {

// Flags that are about the pool of window layers, for a model that may have one.
void check_window_flags(const ServerArgs& args, const rank::ModelConfig& model);
// Flags that are about states, for a model that has some.
void read_state_flags(const ServerArgs& args, rank::ModelConfig& model);

// What is said of the pool of states. REQUIRES: layout, speculation and the scheduler's options but its
// sizes.
rank::StatePool state_pool(const ServerArgs& args, const Deployment& deployment);
// Whether window layers have a pool of their own, and how large it is to be. REQUIRES: page size, chunks and
// the scheduler's other options but its sizes.
rank::WindowPool window_pool(const ServerArgs& args, const Deployment& deployment);

// Sizes of the scheduler's pools, its running requests and captured batches, and the ranks that hold them.
// REQUIRES: all other options are resolved. Throws UserError for flags that leave no room.
void resolve_memory(const ServerArgs& args, double mem_fraction_static, Deployment& deployment);

}  // namespace tpsim::launch
