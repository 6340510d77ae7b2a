// What a server listens on, and what its clients may cost.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tpsim::launch {

struct WireConfig {
  std::string host = "127.0.0.1";
  std::uint16_t port = 30000;  // 0: any that is free
  std::size_t threads = 1;
  std::size_t max_connections = 16384;
  std::size_t max_body_bytes = std::size_t{32} << 20;
  std::size_t max_head_bytes = std::size_t{64} << 10;
  std::chrono::seconds idle_timeout{75};     // between two requests
  std::chrono::seconds receive_timeout{60};  // for the next byte of a request
  std::chrono::seconds send_timeout{120};    // for the next byte of an answer to be taken
};

}  // namespace tpsim::launch
