// What one rank's share of the model costs for one pass. The executors know nothing else of a model, so they
// can be tested with any arithmetic in its place.
#pragma once

#include "attention/backend.h"

namespace tpsim {
class StateReader;
class StateWriter;
}  // namespace tpsim

namespace tpsim::rank {

// One pass on one rank. Times in seconds, all layers together.
struct StepCost {
  double attention = 0;
  double gemm = 0;
  double collective = 0;  // from the moment that the slowest rank arrives
  double other = 0;       // norms, rope, activations, embedding, sampling, copies
  double launch = 0;      // kernel launch gaps or graph replay
  double encoder = 0;     // encoding images, its collectives and launches included
  double receive = 0;     // pipeline stages: gathering what the stage before sent …
  double send = 0;        // … and sending to the next; not part of the pass
  double flops = 0;
  double memory_bytes = 0;        // device memory traffic
  double communicated_bytes = 0;  // sent by this rank
  double network_bytes = 0;       // of them, to other nodes, and the seconds of exchanges that do so
  double network_seconds = 0;
  // Host work that must precede the pass and cannot overlap the pass before it.
  double host_seconds = 0;
  // Of a pass alone on the device, and of the host that issues its kernels (0: captured); `launch` is what
  // the longer of the two has beyond the kernels.
  double device_seconds = 0, issue_seconds = 0;
  // Launches, of kernels and graphs, that take a place in the device's queue.
  double launches = 0;
  // Speculative decoding: of the seconds above, those of drafting and of extending the draft model.
  double draft_seconds = 0, draft_extend_seconds = 0;

  StepCost& operator+=(const StepCost& other) {
    attention += other.attention;
    gemm += other.gemm;
    collective += other.collective;
    this->other += other.other;
    launch += other.launch;
    encoder += other.encoder;
    flops += other.flops;
    memory_bytes += other.memory_bytes;
    communicated_bytes += other.communicated_bytes;
    network_bytes += other.network_bytes;
    network_seconds += other.network_seconds;
    host_seconds += other.host_seconds;
    device_seconds += other.device_seconds;
    issue_seconds += other.issue_seconds;
    launches += other.launches;
    draft_seconds += other.draft_seconds;
    draft_extend_seconds += other.draft_extend_seconds;
    return *this;
  }

  friend bool operator==(const StepCost&, const StepCost&) = default;
};

// REQUIRES of implementations: the answer depends only on the passes given so far, so that every process
// that prices the same stream gets the same bits.
class RankModel {
 public:
  virtual ~RankModel() = default;
  virtual StepCost forward(const attention::ForwardMetadata& metadata) = 0;

  // What later answers depend on of the passes so far, for a checkpoint (proto/base/archive.h); mostly
  // nothing.
  virtual void save(StateWriter&) const {}
  virtual void load(StateReader&) {}
};

}  // namespace tpsim::rank
