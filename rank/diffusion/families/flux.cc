// FLUX.1: 19 blocks of two streams, 38 of one; guidance is an input, not a second pass.
//
// Facts: SGLang's runtime/models/dits/flux.py, configs/{models/dits,pipeline_configs,sample}/flux.py.
#include <array>

#include "rank/diffusion/joint_blocks.h"

namespace tpsim::rank {
namespace {

// Kernels of SGLang 0.5.12's blocks between products: 24 ms on an H200 at 1024 x 1024, 2,099 kernels in all
// (sglang_dit.json).
constexpr JointKernels kFluxKernels{.stream = 34, .single = 36, .small = 20, .single_small = 12};

void read_flux(const ConfigReader& config, TransformerConfig& t) {
  t.heads = config.number_or("num_attention_heads", 24);
  t.head_dim = config.number_or("attention_head_dim", 128);
  t.layers = config.number_or("num_layers", 19);
  t.single_layers = config.number_or("num_single_layers", 38);
  t.ffn = 4 * t.width();
  t.in_channels = config.number_or("in_channels", 64);
  t.out_channels = config.number_or("out_channels", static_cast<std::uint32_t>(t.in_channels));
  t.text_dim = config.number_or("joint_attention_dim", 4096);
  t.pooled_dim = config.number_or("pooled_projection_dim", 768);
  t.guidance_embedded = config.flag("guidance_embeds", false);
}

void write_flux(const TransformerConfig& t, const PassShape& s, OperatorList& list) {
  const std::uint64_t d = t.width();
  list.product(s.rows, t.in_channels, d, 1);
  list.product(s.text_rows, t.text_dim, d, 1);
  write_embedder(s, t.frequencies, d, list);
  if (t.guidance_embedded) write_embedder(s, t.frequencies, d, list);
  write_embedder(s, t.pooled_dim, d, list);
  write_double_blocks(t, s, t.layers, list, kFluxKernels);
  write_single_blocks(t, s, t.single_layers, list);
  list.product(s.batch, d, 2 * d, 1);
  list.elementwise(4 * s.rows * static_cast<double>(d), 2);
  list.product(s.rows, d, t.out_channels, 1);
}

constexpr std::array<std::string_view, 1> kFluxClasses = {"FluxTransformer2DModel"};
constexpr EncoderUse kFluxEncoders[] = {{.component = "text_encoder", .tokens = 77},
                                        {.component = "text_encoder_2", .tokens = 512}};
constexpr std::array<PipelineRow, 1> kFluxPipelines = {
    {{.class_name = "FluxPipeline",
      .defaults = {.width = 1024, .height = 1024, .steps = 50, .guidance = 3.5},
      .text = 512,
      .encoders = kFluxEncoders}}};

}  // namespace

extern const TransformerFamily kFluxTransformers;
const TransformerFamily kFluxTransformers = {
    .classes = kFluxClasses, .pipelines = kFluxPipelines, .read = read_flux, .write = write_flux};

}  // namespace tpsim::rank
