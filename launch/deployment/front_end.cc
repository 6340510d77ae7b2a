#include "launch/deployment/front_end.h"

namespace tpsim::launch {

scheduler::FrontEndConfig front_end_of(const proto::HostProfile& host, std::string_view kind) {
  const proto::HostProfile::FrontEnd& times = host.front_end();
  scheduler::FrontEndConfig config = {
      .pass_seconds = times.pass_seconds(),
      .request_seconds = times.request_seconds(),
      .token_seconds = kind == "text" ? times.text_token_seconds() : times.token_seconds(),
      .stream_seconds = times.stream_seconds(),
      .response_seconds = times.response_seconds(),
      .prepares_images = true,
      .by_socket = true};
  if (kind == "kit") {
    config.client_seconds = host.kit().client_seconds();
    config.client_token_seconds = host.kit().client_token_seconds();
    config.dispatch_seconds = host.kit().dispatch_seconds();
    config.connect_seconds = host.kit().connect_seconds();
  }
  return config;
}

scheduler::ClientShare client_share_of(const proto::HostProfile& host) {
  return {.asking = host.client_share().asking_seconds(), .reading = host.client_share().reading_seconds()};
}

}  // namespace tpsim::launch
