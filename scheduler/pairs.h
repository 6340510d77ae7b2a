// What two servers tell each other of a request that one prefills and the other decodes, and how long that
// takes.
#pragma once

#include <cstdint>
#include <span>

#include "scheduler/disaggregation/kv_link.h"
#include "scheduler/disaggregation/queues.h"
#include "scheduler/fleet.h"
#include "scheduler/replica.h"

namespace tpsim::scheduler {

// A request's servers, as a fleet numbers them: those that decode after those that prefill.
struct Split {
  std::uint32_t prefill = 0, decode = 0;

  std::uint32_t told(const KvMessage& message) const {
    return message.kind == KvMessage::Kind::kPages ? prefill : decode;
  }
};

class Pairs {
 public:
  // Of servers that prefill, and of those that decode; of either all alike. Each data-parallel rank has GPUs,
  // and so wires, of its own.
  Pairs(const KvLinkConfig& link, std::span<const FleetServer> prefill, std::span<const FleetServer> decode);

  // Tells `prefill` and `decode`, the servers of `split`, what `message` says; either may have left the
  // request alone meanwhile. Returns when what is sent is there (seconds), of kPages when the other side
  // knows.
  double hand_on(const KvMessage& message, const Split& split, Replica& prefill, Replica& decode);
  void restart_clock() { links_.restart_clock(); }

 private:
  KvLinks links_;
  std::uint32_t prefill_;                       // servers
  std::uint32_t prefill_ranks_, decode_ranks_;  // of each
};

}  // namespace tpsim::scheduler
