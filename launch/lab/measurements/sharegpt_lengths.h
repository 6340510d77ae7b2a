// Requests of ShareGPT where a benchmark published only their sums.
//
// How long a turn of it goes on is nearly without memory: in SGLang's cookbook a latency's mean is 1.34
// to 1.62 of its median in seven of its runs whose time per token is even (DeepSeek-V3.2, MiMo-V2.5,
// GPT-OSS), and an exponential's is 1.44. So a burst ends with a few answers of seven times the mean, on
// nearly idle GPUs.
#pragma once

#include <cstdint>
#include <vector>

#include "launch/lab/measurements/measured_requests.h"

namespace tpsim::launch {

// `prompts` requests with `input` and `output` tokens in the mean, at most rounded: the middles of as many
// equal parts of the distribution, in an order of their own each, the same every time.
// REQUIRES: prompts, input, output > 0.
std::vector<MeasuredRequest> sharegpt_requests(std::uint64_t prompts, double input, double output);

}  // namespace tpsim::launch
