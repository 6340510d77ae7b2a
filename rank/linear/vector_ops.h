// Norms and activations on rows of fp32.
#pragma once

#include <cstdint>

namespace tpsim::rank {

// out[i] = x[i] / sqrt(mean(x^2) + eps) * (weight[i] + offset); out may be x. offset 1 for Gemma's norms.
void rms_norm(const float* x, std::uint32_t size, const float* weight, float offset, float eps, float* out);
// out[i] = (x[i] - mean) / sqrt(variance + eps) * weight[i] + bias[i]; out may be x.
void layer_norm(const float* x, std::uint32_t size, const float* weight, const float* bias, float eps,
                float* out);
// x += y
void add(float* x, const float* y, std::uint64_t size);
float dot(const float* x, const float* y, std::uint64_t size);
void scale(float* x, std::uint64_t size, float factor);
// gate and up [size]; out may be gate.
void silu_and_mul(const float* gate, const float* up, std::uint32_t size, float* out);
// out = x sigmoid(gate); out may be x.
void sigmoid_and_mul(const float* gate, const float* x, std::uint64_t size, float* out);
void gelu_tanh_and_mul(const float* gate, const float* up, std::uint32_t size, float* out);
// gpt-oss: gate at most 7, up within +-7, gate * sigmoid(1.702 gate) * (up + 1).
void gpt_oss_swiglu(const float* gate, const float* up, std::uint32_t size, float* out);
// x = cap * tanh(x / cap)
void soft_cap(float* x, std::uint64_t size, float cap);
// In place; size > 0.
void softmax(float* x, std::uint32_t size);

}  // namespace tpsim::rank
