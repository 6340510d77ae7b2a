// FLUX.2: as FLUX.1 with gated MLPs, no biases, and one modulation for all blocks of a kind.
//
// Facts: SGLang's runtime/models/dits/flux_2.py, configs/{pipeline_configs,sample}/flux.py,
// configs/models/encoders/flux_2.py; Diffusers' transformer_flux2.py.
#include <array>

#include "rank/diffusion/joint_blocks.h"

namespace tpsim::rank {
namespace {

void read_flux2(const ConfigReader& config, TransformerConfig& t) {
  t.heads = config.number_or("num_attention_heads", 48);
  t.head_dim = config.number_or("attention_head_dim", 128);
  t.layers = config.number_or("num_layers", 8);
  t.single_layers = config.number_or("num_single_layers", 48);
  t.ffn = static_cast<std::uint64_t>(config.real("mlp_ratio", 3, 0.1, 64) * static_cast<double>(t.width()));
  t.in_channels = config.number_or("in_channels", 128);
  t.out_channels = config.number_or("out_channels", static_cast<std::uint32_t>(t.in_channels));
  t.text_dim = config.number_or("joint_attention_dim", 15360);
  t.guidance_embedded = config.flag("guidance_embeds", true);
}

void flux2_embedder(const PassShape& s, std::uint64_t from, std::uint64_t width, OperatorList& list) {
  list.product(s.batch, from, width, 1, Cut::kWhole, false);
  list.product(s.batch, width, width, 1, Cut::kWhole, false);
}

void write_flux2(const TransformerConfig& t, const PassShape& s, OperatorList& list) {
  const std::uint64_t d = t.width();
  const double wide = static_cast<double>(d), ffn = static_cast<double>(t.ffn);
  const double joint = s.rows + s.text_rows, layers = t.layers, singles = t.single_layers;
  list.product(s.rows, t.in_channels, d, 1, Cut::kWhole, false);
  list.product(s.text_rows, t.text_dim, d, 1, Cut::kWhole, false);
  flux2_embedder(s, t.frequencies, d, list);
  if (t.guidance_embedded) flux2_embedder(s, t.frequencies, d, list);
  list.within(Module::kModulation);
  for (const std::uint64_t parts : {6, 6, 3}) list.product(s.batch, d, parts * d, 1, Cut::kWhole, false);
  for (const double rows : {s.rows, s.text_rows}) {
    list.within(Module::kAttention);
    list.product(rows, d, d, 3 * layers, Cut::kOutputs, false);
    list.product(rows, d, d, layers, Cut::kInputs, false);
    list.within(Module::kMlp);
    list.product(rows, d, 2 * t.ffn, layers, Cut::kOutputs, false);
    list.elementwise(3 * rows * ffn, layers);
    list.product(rows, t.ffn, d, layers, Cut::kInputs, false);
    list.elementwise(kJointKernels.stream / 7 * rows * wide, 7 * layers);
    list.weights(2 * t.head_dim * layers);
  }
  list.elementwise(2 * joint * wide, 4 * layers);
  list.self_attention(s.tokens, s.text, t.heads, t.head_dim, layers);
  list.within(Module::kSingle);
  list.product(joint, d, 3 * d + 2 * t.ffn, singles, Cut::kOutputs, false);
  list.elementwise(3 * joint * ffn, singles);
  list.product(joint, d + t.ffn, d, singles, Cut::kInputs, false);
  list.within(Module::kOutside);
  list.elementwise(kJointKernels.single / 6 * joint * wide, 6 * singles);
  list.elementwise(4 * wide, kJointKernels.single_small * (layers + singles));
  list.weights(2 * t.head_dim * singles);
  list.self_attention(s.tokens, s.text, t.heads, t.head_dim, singles);
  list.product(s.batch, d, 2 * d, 1, Cut::kWhole, false);
  list.elementwise(4 * s.rows * wide, 2);
  list.product(s.rows, d, t.out_channels, 1, Cut::kWhole, false);
  list.live(6 * joint * wide + 3 * joint * ffn);
}

constexpr std::array<std::string_view, 1> kFlux2Classes = {"Flux2Transformer2DModel"};
// Hidden states of layers 10, 20 and 30 of 40; of 9, 18 and 27 of 36.
constexpr EncoderUse kFlux2Dev[] = {{.component = "text_encoder", .tokens = 512, .layers_share = 1}};
constexpr EncoderUse kFlux2Klein[] = {{.component = "text_encoder", .tokens = 512, .layers_share = 1}};
constexpr std::array<PipelineRow, 2> kFlux2Pipelines = {
    {{.class_name = "Flux2Pipeline",
      .image_input = true,
      .defaults = {.width = 1024, .height = 1024, .steps = 50, .guidance = 4},
      .text = 512,
      .reference_tokens = true,
      .encoders = kFlux2Dev},
     {.class_name = "Flux2KleinPipeline",
      .image_input = true,
      .defaults = {.width = 1024, .height = 1024, .steps = 4, .guidance = 1},
      .text = 512,
      .reference_tokens = true,
      .encoders = kFlux2Klein}}};

}  // namespace

extern const TransformerFamily kFlux2Transformers;
const TransformerFamily kFlux2Transformers = {.classes = kFlux2Classes,
                                              .pipelines = kFlux2Pipelines,
                                              .read = read_flux2,
                                              .write = write_flux2,
                                              .kept = kModulationIsKept};

}  // namespace tpsim::rank
