// Wan 2.1 and 2.2: blocks of self-attention, cross-attention to the text (and to an image's CLIP features)
// and an MLP, all modulated by the time step.
//
// Facts: SGLang's runtime/models/dits/wanvideo.py, configs/{models/dits/wanvideo,pipeline_configs/wan,
// sample/wan}.py; Diffusers' transformer_wan.py.
#include <algorithm>
#include <array>

#include "rank/diffusion/transformer.h"

namespace tpsim::rank {
namespace {

// Tiny kernels of a block between those listed: slices and sums of modulation tables, casts (1078 kernels of
// Wan 2.1 1.3B, sglang_dit.json), and of the pass outside its blocks.
constexpr double kWanSmallOfBlock = 13, kWanSmallOfPass = 28;

void read_wan(const ConfigReader& config, TransformerConfig& t) {
  t.heads = config.number_or("num_attention_heads", 40);
  t.head_dim = config.number_or("attention_head_dim", 128);
  t.layers = config.number_or("num_layers", 40);
  t.ffn = config.number_or("ffn_dim", 13824);
  t.in_channels = config.number_or("in_channels", 16);
  t.out_channels = config.number_or("out_channels", 16);
  t.text_dim = config.number_or("text_dim", 4096);
  t.frequencies = config.number_or("freq_dim", 256);
  if (config.has("added_kv_proj_dim")) t.image_dim = config.number_or("image_dim", 1280);
  t.token_timesteps = config.flag("expand_timesteps", false);
}

void write_wan(const TransformerConfig& t, const PassShape& s, OperatorList& list) {
  const std::uint64_t d = t.width();
  const double wide = static_cast<double>(d), r = s.rows, rd = r * wide, layers = t.layers;
  const double text = s.text_rows, side = t.patch;
  const std::uint64_t patch = std::uint64_t{t.patch} * t.patch;
  // A time step for each token where the first frame is given.
  const double times = t.token_timesteps ? std::max(r, s.batch) : s.batch;
  list.product(r, t.in_channels * patch, d, 1);
  list.product(text, t.text_dim, d, 1);
  list.product(text, d, d, 1);
  list.product(times, t.frequencies, d, 1);
  list.product(times, d, d, 1);
  list.product(times, d, 6 * d, 1);
  if (t.image_dim > 0) {
    const double image = s.image_context * s.batch;
    list.product(image, t.image_dim, t.image_dim, 1);
    list.product(image, t.image_dim, d, 1);
    list.weights(2.0 * static_cast<double>(t.image_dim + d));
  }
  // A table of modulations is as large as the activations where each token has its own.
  const double modulation = t.token_timesteps ? 1 : 0;
  list.elementwise((4 + 2 * modulation) * rd, layers);  // norm, scale and shift, in fp32
  list.within(Module::kAttention);
  list.product(r, d, d, 3 * layers, Cut::kOutputs);
  list.elementwise(2 * rd, 2 * layers);  // norms of queries and keys
  list.elementwise(4 * rd, layers);      // rotation of both
  list.self_attention(s.tokens, 0, t.heads, t.head_dim, layers);
  list.product(r, d, d, layers, Cut::kInputs);
  list.elementwise((5 + modulation) * rd, layers);  // gate, residual, norm
  list.product(r, d, d, layers, Cut::kOutputs);
  list.elementwise(2 * rd, layers);
  list.product(text, d, d, 2 * layers, Cut::kOutputs);
  list.elementwise(2 * text * wide, layers);
  list.cross_attention(r / s.batch, s.text, t.heads, t.head_dim, layers);
  if (t.image_dim > 0) {
    list.product(s.image_context * s.batch, d, d, 2 * layers, Cut::kOutputs);
    list.elementwise(2 * s.image_context * s.batch * wide, layers);
    list.cross_attention(r / s.batch, s.image_context, t.heads, t.head_dim, layers);
    list.elementwise(3 * rd, layers);
    list.weights(wide * layers);
  }
  list.product(r, d, d, layers, Cut::kInputs);
  list.elementwise((6 + 2 * modulation) * rd, layers);  // residual, norm, scale and shift
  list.within(Module::kMlp);
  list.product(r, d, t.ffn, layers, Cut::kOutputs);
  list.elementwise(2 * r * static_cast<double>(t.ffn), layers);
  list.product(r, t.ffn, d, layers, Cut::kInputs);
  list.within(Module::kOutside);
  list.elementwise((3 + modulation) * rd, layers);  // gate, residual
  list.elementwise(6 * wide, kWanSmallOfBlock * layers + kWanSmallOfPass);
  // The sum of the block's table and each token's modulation, in fp32.
  if (t.token_timesteps) list.elementwise(18 * rd, layers);
  list.elementwise(4 * rd, 1);
  list.product(r, d, t.out_channels * patch, 1);
  list.weights((6 + 4 + 2) * wide * layers + 2 * wide);  // tables, norms
  list.live(side > 0 ? 6 * rd + 2 * r * static_cast<double>(t.ffn) : 0);
}

constexpr std::array<std::string_view, 1> kWanClasses = {"WanTransformer3DModel"};
// UMT5 in fp32 (text_encoder_precisions of configs/pipeline_configs/wan.py).
constexpr EncoderUse kWanText[] = {{.component = "text_encoder", .tokens = 512, .bytes = 4}};
constexpr EncoderUse kWanTextAndImage[] = {{.component = "text_encoder", .tokens = 512, .bytes = 4},
                                           {.component = "image_encoder", .tokens = 257, .bytes = 4}};
constexpr std::array<PipelineRow, 2> kWanPipelines = {
    {{.class_name = "WanPipeline",
      .video = true,
      .defaults =
          {.width = 1280, .height = 720, .frames = 81, .fps = 16, .steps = 50, .guidance = 5, .guided = true},
      .text = 512,
      .encoders = kWanText,
      .vae_bytes = 4,
      .vae_encodes = false,
      .autocast = true},
     {.class_name = "WanImageToVideoPipeline",
      .video = true,
      .image_input = true,
      .needs_image = true,
      .defaults =
          {.width = 1280, .height = 720, .frames = 81, .fps = 16, .steps = 50, .guidance = 5, .guided = true},
      .text = 512,
      .image_tokens = 257,
      .encoders = kWanTextAndImage,
      .vae_bytes = 4,
      .autocast = true,
      .encodes_frames = true}}};

}  // namespace

extern const TransformerFamily kWanTransformers;
const TransformerFamily kWanTransformers = {.classes = kWanClasses,
                                            .pipelines = kWanPipelines,
                                            .read = read_wan,
                                            .write = write_wan,
                                            .cross_attention = true,
                                            .shards_text = false};

}  // namespace tpsim::rank
