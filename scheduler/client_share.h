// The client's part of a front end. The times of FrontEndConfig were fitted to what clients in Python saw,
// from the stamp before they ask to the stamp when a token is with them. So part of `pass_seconds` is theirs:
// writing JSON, opening a connection, until the first bytes of the request are at the server; and part of
// `response_seconds`: from the server's write until the token was read. A client that really runs, in front
// of `tpsim serve`, needs it itself.
//
// Measured by tests/calibration/measure_clients.py for the client of shared/measure, which asked the servers
// that the constants were fitted to, with 1,024 ids and one request in flight: 0.50 ms and 0.48 ms on a
// machine on which it draws the ids of its prompts at 0.33 us each. On the hosts of the H200s it took 0.285
// us (FrontEndConfig's kit), so both are less there by that ratio.
#pragma once

#include "scheduler/config.h"

namespace tpsim::scheduler {

// Seconds.
struct ClientShare {
  double asking = 0;   // of FrontEndConfig::pass_seconds
  double reading = 0;  // of FrontEndConfig::response_seconds
  constexpr double seconds() const { return asking + reading; }
};

inline constexpr ClientShare kFittedClient = {.asking = 0.43e-3, .reading = 0.41e-3};

// `fitted`, whose client is kFittedClient, with one that takes `seconds` for the same; 0: as seen from the
// server's socket.
constexpr FrontEndConfig with_client(FrontEndConfig fitted, double seconds) {
  const double more = seconds / kFittedClient.seconds() - 1;
  fitted.pass_seconds += kFittedClient.asking * more;
  fitted.response_seconds += kFittedClient.reading * more;
  return fitted;
}

}  // namespace tpsim::scheduler
