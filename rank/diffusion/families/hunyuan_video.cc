// HunyuanVideo: FLUX.1's blocks over a video, text refined by two layers of its own.
//
// Facts: SGLang's runtime/models/dits/hunyuanvideo.py, configs/{models/dits/hunyuanvideo,pipeline_configs/
// hunyuan,sample/hunyuan}.py.
#include <array>

#include "rank/diffusion/joint_blocks.h"

namespace tpsim::rank {
namespace {

void read_hunyuan(const ConfigReader& config, TransformerConfig& t) {
  t.heads = config.number_or("num_attention_heads", 24);
  t.head_dim = config.number_or("attention_head_dim", 128);
  t.layers = config.number_or("num_layers", 20);
  t.single_layers = config.number_or("num_single_layers", 40);
  t.refiner_layers = config.number_or("num_refiner_layers", 2);
  t.ffn = static_cast<std::uint64_t>(config.real("mlp_ratio", 4, 0.1, 64) * static_cast<double>(t.width()));
  t.in_channels = config.number_or("in_channels", 16);
  t.out_channels = config.number_or("out_channels", 16);
  t.text_dim = config.number_or("text_embed_dim", 4096);
  t.pooled_dim = config.number_or("pooled_projection_dim", 768);
  t.guidance_embedded = config.flag("guidance_embeds", true);
}

void write_hunyuan(const TransformerConfig& t, const PassShape& s, OperatorList& list) {
  const std::uint64_t d = t.width();
  const std::uint64_t patch = std::uint64_t{t.patch} * t.patch;
  const double refined = s.text * s.batch, refiners = t.refiner_layers;
  list.product(s.rows, t.in_channels * patch, d, 1);
  write_embedder(s, t.frequencies, d, list);
  if (t.guidance_embedded) write_embedder(s, t.frequencies, d, list);
  write_embedder(s, t.pooled_dim, d, list);
  // The refiner: its own time and pooled text, then self-attention over the text.
  write_embedder(s, t.frequencies, d, list);
  write_embedder(s, t.text_dim, d, list);
  list.product(refined, t.text_dim, d, 1);
  list.product(s.batch, d, 2 * d, refiners);
  list.product(refined, d, d, 4 * refiners);
  list.self_attention(0, s.text, t.heads, t.head_dim, refiners, false);
  list.product(refined, d, t.ffn, refiners);
  list.product(refined, t.ffn, d, refiners);
  list.elementwise(2 * refined * static_cast<double>(d), 12 * refiners);
  write_double_blocks(t, s, t.layers, list);
  write_single_blocks(t, s, t.single_layers, list);
  list.product(s.batch, d, 2 * d, 1);
  list.elementwise(4 * s.rows * static_cast<double>(d), 2);
  list.product(s.rows, d, t.out_channels * patch, 1);
}

constexpr std::array<std::string_view, 1> kHunyuanClasses = {"HunyuanVideoTransformer3DModel"};
// Llama reads 95 tokens of the template before 256 of the prompt.
constexpr EncoderUse kHunyuanEncoders[] = {{.component = "text_encoder", .tokens = 351},
                                           {.component = "text_encoder_2", .tokens = 77}};
constexpr std::array<PipelineRow, 1> kHunyuanPipelines = {
    {{.class_name = "HunyuanVideoPipeline",
      .video = true,
      .defaults = {.width = 1280, .height = 720, .frames = 125, .fps = 24, .steps = 50, .guidance = 1},
      .text = 256,
      .encoders = kHunyuanEncoders,
      .vae_encodes = false,
      .autocast = true}}};

}  // namespace

extern const TransformerFamily kHunyuanVideoTransformers;
const TransformerFamily kHunyuanVideoTransformers = {.classes = kHunyuanClasses,
                                                     .pipelines = kHunyuanPipelines,
                                                     .read = read_hunyuan,
                                                     .write = write_hunyuan,
                                                     .shards_text = false,
                                                     .kept = kModulationIsKept};

}  // namespace tpsim::rank
