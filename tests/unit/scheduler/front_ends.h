// Front ends with times such as hosts have (rank/catalogue/hosts).
#pragma once

#include "scheduler/config.h"

namespace tpsim::scheduler {

inline constexpr FrontEndConfig kTokenIdFrontEnd = {.pass_seconds = 2.75e-3,
                                                    .request_seconds = 0.67e-3,
                                                    .token_seconds = 0.74e-6,
                                                    .stream_seconds = 4.5e-5,
                                                    .response_seconds = 0.95e-3,
                                                    .prepares_images = true,
                                                    .by_socket = true};
// A client that makes its prompts one by one, and opens connections.
inline constexpr FrontEndConfig kKitFrontEnd = {.client_seconds = 0.13e-3,
                                                .client_token_seconds = 0.285e-6,
                                                .pass_seconds = 2.75e-3,
                                                .request_seconds = 0.67e-3,
                                                .token_seconds = 0.74e-6,
                                                .stream_seconds = 4.5e-5,
                                                .response_seconds = 0.95e-3,
                                                .dispatch_seconds = 0.9e-3,
                                                .connect_seconds = 0.1e-3,
                                                .prepares_images = true,
                                                .by_socket = true};
inline constexpr ClientShare kClient = {.asking = 0.53e-3, .reading = 0.49e-3};

}  // namespace tpsim::scheduler
