#include "launch/deployment/startup.h"

#include "proto/report.pb.h"

namespace tpsim::launch {
namespace {

constexpr double kProcessSeconds = 42;
constexpr double kWeightBytesPerSecond = 2e9;  // of a GPU

}  // namespace

double startup_seconds(const Deployment& deployment) {
  if (deployment.router.startup_seconds) return *deployment.router.startup_seconds;
  proto::RunReport captures;
  deployment.describe_captures(captures);
  return kProcessSeconds +
         static_cast<double>(deployment.ranks.ranks.front().weight_bytes()) / kWeightBytesPerSecond +
         captures.cuda_graph_capture_seconds();
}

}  // namespace tpsim::launch
