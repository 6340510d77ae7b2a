// Links between prefill and decode servers: each server has one wire out and one in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/disaggregation/config.h"

namespace tpsim::scheduler {

class KvLinks {
 public:
  // Of so many servers that send, and receive.
  KvLinks(const KvLinkConfig& config, std::size_t senders, std::size_t receivers)
      : config_(config), out_(senders), in_(receivers) {}

  const KvLinkConfig& config() const { return config_; }
  // A chunk is handed over at `time` (seconds). Returns when its last byte is there: chunks are prepared side
  // by side, as by SGLang's transfer threads, and take turns on the wires of both ends.
  double send(std::size_t from, std::size_t to, double time, std::uint32_t tokens, std::uint32_t runs);
  // Time begins again at 0.
  void restart_clock();

 private:
  const KvLinkConfig config_;
  std::vector<double> out_, in_;  // when each is free
};

}  // namespace tpsim::scheduler
