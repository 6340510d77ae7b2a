// Constants of diffusion pipelines that are no operator's: what they are and where they come from.
#pragma once

namespace tpsim::rank::diffusion {

// --- host ---
// A kernel's launch by SGLang's modules, in those of the profile's (kernel_launch_seconds, 46 us on the
// measured H200s): passes of ../shared/data/diffusion/sglang_dit.json that wait for the host, one and two
// GPUs.
inline constexpr double kLaunch = 0.957;
// What the exchanges of one attention layer take of the host, in launches: all-to-alls of queries, keys,
// values and output; a hop of a ring (sends, merging); the gather of keys and values (not measured: half of
// the former), copies included. The same source: 0.45 and 0.95 ms a layer.
inline constexpr double kUlyssesLaunches = 10, kRingLaunches = 21, kGatherLaunches = 5;
// Where shared text takes padding, a ring goes through _ring_attention_varlen() of layers/usp.py, which sends
// keys and values as one buffer and permutes nothing: 0.52 to 0.60 ms of a layer's host time where
// ring_attn() takes 0.69 (Qwen-Image's attention on two H200s).
inline constexpr double kPaddedRing = 0.81;
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

// --- compilation ---
// torch.compile: what it leaves of kernels between products and attention, and of launches. xDiT, FLUX.1 by
// Ulysses on two H100s: 28 steps take 4.38 s eager and 2.68 compiled (docs/performance/flux.md; F0488, F0489
// of published.csv).
inline constexpr double kCompiled = 0.5;

// --- encoders ---
// Of the rate of fp32 outside of tensor cores (which PyTorch does not use for them unasked): 45 of 67 TFLOP/s
// on an H100 from 256 rows on (h100-sxm_diffusion.json, "fp32 product").
inline constexpr double kFp32Products = 0.67;

// --- VAE ---
// By profiles of Diffusers' classes on an H100 (tests/calibration/measured/h100-sxm_diffusion.json: 23 rows),
// of the dense rate of 16 bit: convolutions of `channels` (the fewer of inputs and outputs), which grow with
// them where the VAE's are multiples of 128, and do not where they are not (Wan's 96, Qwen-Image's); less in
// 2D, and in fp32 (TF32). And times the bytes of kernels between them at 16 bit, what they take in 16 bit and
// in fp32.
struct VaeRates {
  double convolution, fp32, traffic, fp32_traffic;
};
inline constexpr VaeRates kVae2d{.convolution = 0.76, .fp32 = 0.55, .traffic = 6.7, .fp32_traffic = 3.75};
// As SGLang 0.5.23 decodes unless --quality exact is asked: channels last, norms and activations fused,
// written down as 97 to 29 ms at 1024 x 1024 (runtime/models/vaes/flux2_vae_cuda_opt.py).
inline constexpr VaeRates kVae2dFused{.convolution = 1, .fp32 = 0.55, .traffic = 0.75, .fp32_traffic = 0.42};
inline constexpr VaeRates kVaeWan{.convolution = 1, .fp32 = 0.48, .traffic = 6.2, .fp32_traffic = 3.5};
// SGLang's own classes of Wan's and Qwen-Image's VAEs, which fuse norms and activations, with channels first
// and, as 0.5.23 serves them, last (tests/calibration/measured/h100-sxm_vae.json, one GPU): nothing is turned
// between convolutions, which take as long.
inline constexpr VaeRates kVaeWanFused{.convolution = 1, .fp32 = 0.48, .traffic = 4.5, .fp32_traffic = 2.6};
inline constexpr VaeRates kVaeWanLast{.convolution = 1, .fp32 = 0.5, .traffic = 2, .fp32_traffic = 1.15};
// What the exchange of rows between strips takes, of each convolution and, of Wan's, of each frame of
// latents: two H200s decode 6, 7 and 21 in 44, 50 and 37 % of the time of one more than half of it (the same
// file).
inline constexpr double kStripSeconds = 0.2e-3;
inline constexpr VaeRates kVaeLtx{.convolution = 1, .fp32 = 0.48, .traffic = 5.5, .fp32_traffic = 3.1};
// All frames at once, padded before each convolution.
inline constexpr VaeRates kVaeHunyuan{
    .convolution = 0.85, .fp32 = 0.48, .traffic = 12.8, .fp32_traffic = 7.2};
inline constexpr double kOddChannels = 0.29;
inline constexpr struct {
  double channels, share;
} kConvolutions[] = {{128, 0.42}, {256, 0.62}, {512, 0.7}, {1024, 0.75}};
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
