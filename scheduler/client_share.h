// The client's part of a front end. The times of FrontEndConfig were fitted to what clients in Python saw,
// from the stamp before they ask to the stamp when a token is with them. So part of `pass_seconds` is theirs:
// writing JSON, opening a connection, until the first bytes of the request are at the server; and part of
// `response_seconds`: from the server's write until the token was read. A client that really runs, in front
// of `tpsim serve`, needs it itself.
#pragma once

#include "scheduler/config.h"

namespace tpsim::scheduler {

// Seconds.
struct ClientShare {
  double asking = 0;   // of FrontEndConfig::pass_seconds
  double reading = 0;  // of FrontEndConfig::response_seconds
  constexpr double seconds() const { return asking + reading; }
};

// `fitted`, of which `share` is its client's, with one that takes `seconds` for the same; 0: as seen from the
// server's socket. REQUIRES: share.seconds() > 0.
constexpr FrontEndConfig with_client(FrontEndConfig fitted, const ClientShare& share, double seconds) {
  const double more = seconds / share.seconds() - 1;
  fitted.pass_seconds += share.asking * more;
  fitted.response_seconds += share.reading * more;
  return fitted;
}

}  // namespace tpsim::scheduler
