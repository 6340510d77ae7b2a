// The gated delta rule (Yang, Kautz, Hatamizadeh 2024) as it is defined, token by token.
//
// A head keeps a matrix S [k_dim, v_dim]. With the decay a and the write strength b of a token:
//   S <- a S;  S <- S + k (b (v - S^T k))^T;  o = S^T q
// where q and k are divided by their lengths, and q by sqrt(k_dim).
#pragma once

#include <cstdint>
#include <span>

namespace tpsim::rank {

// The causal convolution before it, of one token, with SiLU: `inputs` are as many rows of `channels` as the
// kernel is long, the token's own last; weights [channels, inputs.size()]; out [channels].
void convolve(std::span<const float* const> inputs, std::uint64_t channels, const float* weights, float* out);

// One token of one head. q, k [k_dim] and v [v_dim] as they come out of the convolution; `state` [k_dim,
// v_dim] is updated; out [v_dim]. REQUIRES: v_dim <= 1024.
void gated_delta_step(std::uint32_t k_dim, std::uint32_t v_dim, const float* q, const float* k,
                      const float* v, float decay, float strength, float* state, float* out);

}  // namespace tpsim::rank
