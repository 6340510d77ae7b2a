// Constants of diffusion pipelines that are no operator's: what they are and where they come from.
#pragma once

namespace tpsim::rank::diffusion {

// --- host ---
// A kernel's launch by SGLang's modules, in those of the profile's (kernel_launch_seconds, 46 us on the
// measured H200s): passes of ../shared/data/diffusion/sglang_dit.json that wait for the host, one and two
// GPUs.
inline constexpr double kLaunch = 1.04;
// What the exchanges of one attention layer take of the host, in launches: all-to-alls of queries, keys,
// values and output; a hop of a ring (sends, merging); the gather of keys and values (not measured: as two
// collectives). The same source.
inline constexpr double kUlyssesLaunches = 1, kRingLaunches = 16, kGatherLaunches = 4;
// The sampler's own kernels of a step, and a request's preparation (TimestepPreparationStage and the like of
// SGLang's CI on H100: 2 to 30 ms); not fitted.
inline constexpr double kStepLaunches = 15;
// A kernel of Diffusers' and Transformers' plain modules (VAEs), in launches: FLUX.1 at 512 x 512 of
// dit_forward.json, 62 ms for 2,945 kernels.
inline constexpr double kPlainLaunch = 0.46;
// Kernels of VAEs for each that is listed: copies, paddings, casts (h100-sxm_diffusion.json).
inline constexpr double kVaeKernels = 2;

// --- exchanges ---
// Bytes that a permuted copy before or behind an all-to-all moves for each of its own: strided (other_ms of
// ulysses2 less that of one GPU, sglang_dit.json).
inline constexpr double kPermuted = 2;
// Of a ring's hop, what is not hidden behind the attention of the one before, of the transfer's own time.
inline constexpr double kRingExposed = 1;

// --- power ---
// A pass of so many seconds on the device is not slowed by the board's power limit, and from so many on
// wholly (attention/diffusion/dense_kernel.cc has the same of attention alone).
inline constexpr double kUnlimited = 0.13, kLimited = 0.25;

// --- compilation ---
// torch.compile: what it leaves of kernels between products and attention, and of launches. xDiT, FLUX.1 on
// an H100: 28 steps take 6.70 s eager and 4.29 compiled (docs/performance/flux.md; F0488, F0489 of
// published.csv).
inline constexpr double kCompiled = 0.5;

// --- VAE ---
// Of the dense rate of 16 bit, what convolutions reach, 2D and of video, in 16 bit and fp32 (TF32); and times
// the bytes of kernels between them, what they take (h100-sxm_diffusion.json, vae_encoder.json).
struct VaeRates {
  double convolution, fp32_convolution, traffic, fp32_traffic;
};
inline constexpr VaeRates kVae2d{
    .convolution = 0.5, .fp32_convolution = 0.25, .traffic = 2, .fp32_traffic = 1.2};
inline constexpr VaeRates kVaeVideo{
    .convolution = 0.3, .fp32_convolution = 0.15, .traffic = 2, .fp32_traffic = 1.2};
// Attention of one wide head: FLUX.1's VAE at 1024 x 1024, 4.5 ms in 16 bit, 13.9 in fp32.
inline constexpr double kWideAttention = 0.125, kFp32WideAttention = 0.04;

// --- host link ---
// Pinned memory to the device and back: 55 GB/s (copies of 1 GiB on an H100, h100-sxm_diffusion.json). Two
// GPUs share it: on SGLang's CI text encoders that stream take twice as long on two GPUs (PUBLISHED.md).
inline constexpr double kHostLink = 55e9;
inline constexpr unsigned kHostLinkSharers = 2;

// --- memory ---
inline constexpr double kContextBytes = 0.9e9;  // CUDA, cuBLAS, NCCL; not measured for this runtime

}  // namespace tpsim::rank::diffusion
