// Norms and activations on rows of fp32.
#pragma once

#include <cstdint>
#include <span>

namespace tpsim::rank {

// out[i] = x[i] / sqrt(mean(x^2) + eps) * (weight[i] + offset); out may be x. offset 1 for Gemma's norms.
void rms_norm(const float* x, std::uint32_t size, const float* weight, float offset, float eps, float* out);
// out[i] = (x[i] - mean) / sqrt(variance + eps) * weight[i] + bias[i]; out may be x, bias null.
void layer_norm(const float* x, std::uint32_t size, const float* weight, const float* bias, float eps,
                float* out);
// x += y
void add(float* x, const float* y, std::uint64_t size);
float dot(const float* x, const float* y, std::uint64_t size);
void scale(float* x, std::uint64_t size, float factor);
// log(1 + e^x), beyond 20 x itself (PyTorch's threshold).
float softplus(float x);
// gate and up [size]; out may be gate.
void silu_and_mul(const float* gate, const float* up, std::uint32_t size, float* out);
// The same with silu(gate) at most `limit` and up within +-limit (Step 3.5).
void limited_silu_and_mul(const float* gate, const float* up, std::uint32_t size, float limit, float* out);
// out = x sigmoid(gate); out may be x.
void sigmoid_and_mul(const float* gate, const float* x, std::uint64_t size, float* out);
// out may be gate or up.
void gelu_tanh_and_mul(const float* gate, const float* up, std::uint32_t size, float* out);
// gpt-oss: gate at most 7, up within +-7, gate * sigmoid(1.702 gate) * (up + 1).
void gpt_oss_swiglu(const float* gate, const float* up, std::uint32_t size, float* out);
// x = cap * tanh(x / cap)
void soft_cap(float* x, std::uint64_t size, float cap);
// In place; size > 0.
void softmax(float* x, std::uint32_t size);

// The gated delta rule (Yang, Kautz, Hatamizadeh 2024) as it is defined, token by token.
//
// A head keeps a matrix S [k_dim, v_dim]. With the decay a and the write strength b of a token:
//   S <- a S;  S <- S + k (b (v - S^T k))^T;  o = S^T q
// where q and k are divided by their lengths, and q by sqrt(k_dim). In Kimi Delta Attention every row of S
// has a decay of its own.

// A causal convolution of one token: `inputs` are as many rows of `channels` as the kernel is long, the
// token's own last; weights [channels, inputs.size()]; out [channels]. Before the rule SiLU comes after it.
void convolve(std::span<const float* const> inputs, std::uint64_t channels, const float* weights, bool silu,
              float* out);

// One token of one head. q, k [k_dim] and v [v_dim] as they come out of the convolution; decays[i x
// decay_stride] is row i's; `state` [k_dim, v_dim] is updated; out [v_dim]. REQUIRES: v_dim <= 1024.
void gated_delta_step(std::uint32_t k_dim, std::uint32_t v_dim, const float* q, const float* k,
                      const float* v, const float* decays, std::uint32_t decay_stride, float strength,
                      float* state, float* out);

}  // namespace tpsim::rank
