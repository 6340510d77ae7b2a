#include "launch/serve/live_args.h"

#include <chrono>

#include "launch/cli/flag_values.h"

namespace tpsim::launch {
namespace {

FlagSet::ReadValue seconds(std::chrono::seconds& target) {
  return [&target](std::string_view flag, const std::string& value) {
    target = std::chrono::seconds(parse_count(flag, value, 1, 1'000'000));
  };
}

}  // namespace

void declare_live(FlagSet& flags, LiveArgs& args) {
  flags.group("Server");
  flags.add_value("--host", "ADDRESS", "to listen at (default 127.0.0.1; 0.0.0.0 for every interface)",
                  text(args.wire.host));
  flags.add_value("--port", "PORT", "to listen at; 0 takes one that is free and prints it (default 30000)",
                  count(args.wire.port, 0, 65535));
  flags.add_value("--served-model-name", "NAME", "that /v1/models says (default: --model-path)",
                  text(args.served_model_name));
  flags.group("Clock and answers");
  flags.add_value("--speedup", "X",
                  "the replica's clock passes X times as fast as the wall's; rates and latencies of clients "
                  "follow (default 1)",
                  real(args.speedup, 0, false, 1e6, true));
  flags.group("Limits");
  flags.add_value("--max-open-requests", "N", "not yet answered; more are answered 503 (default 65536)",
                  count(args.max_open_requests, 1, 10'000'000));
  flags.add_value("--max-connections", "N", "that are open; more are answered 503 (default 16384)",
                  count(args.wire.max_connections, 1, 1'000'000));
  flags.add_value("--max-body-bytes", "BYTES",
                  "of a request; longer ones are answered 413 (default 33554432)",
                  count(args.wire.max_body_bytes, 1, std::uint64_t{1} << 32));
  flags.add_value("--idle-timeout", "S", "until a connection without a request is closed (default 75)",
                  seconds(args.wire.idle_timeout));
  flags.add_value("--receive-timeout", "S", "without a byte of a request that has begun (default 60)",
                  seconds(args.wire.receive_timeout));
  flags.add_value("--send-timeout", "S",
                  "without a byte of its answer being taken, until a client counts as gone (default 120)",
                  seconds(args.wire.send_timeout));
  flags.add_value("--drain-timeout", "S",
                  "after SIGTERM, until answers that are not finished are cut off (default: never)",
                  real(args.drain_timeout, 0, true, 1e6, true));
}

}  // namespace tpsim::launch
