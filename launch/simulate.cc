#include "launch/simulate.h"

#include <spdlog/spdlog.h>

#include <memory>
#include <optional>
#include <vector>

#include "launch/commands.h"
#include "launch/deployment.h"
#include "launch/logging.h"
#include "launch/run_monitor.h"
#include "launch/workload_args.h"
#include "rank/parallel/modeled_executor.h"
#include "rank/parallel/mpi_executor.h"
#include "rank/parallel/mpi_worker.h"
#include "rank/parallel/stop_flag.h"
#include "scheduler/engine.h"

namespace tpsim::launch {}  // namespace tpsim::launch
