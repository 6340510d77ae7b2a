// LTX-2: a video and an audio stream, each with self-attention, cross-attention to the text, cross-attention
// to the other and an MLP.
//
// Facts: SGLang's runtime/models/dits/ltx_2.py, configs/{models/dits,pipeline_configs,sample}/ltx_2.py;
// Diffusers' transformer_ltx2.py.
#include <array>

#include "rank/diffusion/joint_blocks.h"

namespace tpsim::rank {
namespace {

constexpr double kLtx2SmallOfBlock =
    30;  // not measured: tables of modulations of both streams and of both crossings

void read_ltx2(const ConfigReader& config, TransformerConfig& t) {
  t.heads = config.number_or("num_attention_heads", 32);
  t.head_dim = config.number_or("attention_head_dim", 128);
  t.layers = config.number_or("num_layers", 48);
  t.ffn = 4 * t.width();
  t.in_channels = config.number_or("in_channels", 128);
  t.out_channels = config.number_or("out_channels", 128);
  t.text_dim = config.number_or("caption_channels", 3840);
  t.audio_heads = config.number_or("audio_num_attention_heads", 32);
  t.audio_head_dim = config.number_or("audio_attention_head_dim", 64);
  t.audio_channels = config.number_or("audio_in_channels", 128);
  t.patch = 1;
}

void write_ltx2(const TransformerConfig& t, const PassShape& s, OperatorList& list) {
  const std::uint64_t video = t.width(), audio = std::uint64_t{t.audio_heads} * t.audio_head_dim;
  const double layers = t.layers, heard = s.audio * s.batch, text = s.text * s.batch;
  struct Stream {
    double rows, tokens;
    std::uint64_t width, channels;
    std::uint32_t heads, head_dim;
    bool sharded;
  };
  for (const Stream& a :
       {Stream{s.rows, s.tokens, video, t.in_channels, t.heads, t.head_dim, true},
        Stream{heard, s.audio, audio, t.audio_channels, t.audio_heads, t.audio_head_dim, false}}) {
    const double wide = static_cast<double>(a.width);
    list.product(a.rows, a.channels, a.width, 1);
    write_embedder(s, t.frequencies, a.width, list);
    list.product(s.batch, a.width, 6 * a.width, 1);
    for (const std::uint64_t parts : {4, 1}) {  // modulation of the crossings
      write_embedder(s, t.frequencies, a.width, list);
      list.product(s.batch, a.width, parts * a.width, 1);
    }
    list.product(text, t.text_dim, a.width, 1);
    list.product(text, a.width, a.width, 1);
    list.within(Module::kAttention);
    list.product(a.rows, a.width, a.width, 3 * layers, Cut::kOutputs);
    list.self_attention(a.sharded ? a.tokens : 0, a.sharded ? 0 : a.tokens, a.heads, a.head_dim, layers,
                        a.sharded);
    list.product(a.rows, a.width, a.width, layers, Cut::kInputs);
    list.product(a.rows, a.width, a.width, layers, Cut::kOutputs);
    list.product(text, a.width, a.width, 2 * layers, Cut::kOutputs);
    list.cross_attention(a.rows / s.batch, s.text, a.heads, a.head_dim, layers);
    list.product(a.rows, a.width, a.width, layers, Cut::kInputs);
    list.within(Module::kMlp);
    list.product(a.rows, a.width, 4 * a.width, layers, Cut::kOutputs);
    list.product(a.rows, 4 * a.width, a.width, layers, Cut::kInputs);
    list.within(Module::kOutside);
    list.elementwise(8 * a.rows * wide, layers);       // GELU
    list.elementwise(3 * a.rows * wide, 14 * layers);  // norms, modulation, rotation, gates, residuals
    list.elementwise(2 * text * wide, layers);
    list.product(a.rows, a.width, a.channels, 1);
    list.weights((6 + 5 + 2 + 2 + 2 + 2) * wide * layers + 2 * wide);
  }
  // From audio to video and back, with the audio's heads.
  list.within(Module::kAttention);
  list.product(s.rows, video, audio, layers, Cut::kOutputs);
  list.product(heard, audio, audio, 2 * layers, Cut::kOutputs);
  list.product(s.rows, audio, video, layers, Cut::kInputs);
  list.cross_attention(s.rows / s.batch, s.audio, t.audio_heads, t.audio_head_dim, layers);
  list.product(heard, audio, audio, 2 * layers, Cut::kOutputs);
  list.product(s.tokens * s.batch, video, audio, 2 * layers, Cut::kOutputs);
  list.cross_attention(s.audio, s.tokens, t.audio_heads, t.audio_head_dim, layers);
  list.elementwise(4 * static_cast<double>(video), kLtx2SmallOfBlock * layers);
  list.live(s.rows * static_cast<double>(6 * video + 2 * t.ffn));
}

constexpr std::array<std::string_view, 1> kLtx2Classes = {"LTX2VideoTransformer3DModel"};
constexpr EncoderUse kLtx2Encoders[] = {{.component = "text_encoder", .tokens = 1024}};
constexpr std::array<PipelineRow, 1> kLtx2Pipelines = {
    {{.class_name = "LTX2Pipeline",
      .video = true,
      .defaults =
          {.width = 768, .height = 512, .frames = 121, .fps = 24, .steps = 40, .guidance = 4, .guided = true},
      .text = 1024,
      .encoders = kLtx2Encoders}}};

}  // namespace

extern const TransformerFamily kLtx2Transformers;
const TransformerFamily kLtx2Transformers = {.classes = kLtx2Classes,
                                             .pipelines = kLtx2Pipelines,
                                             .read = read_ltx2,
                                             .write = write_ltx2,
                                             .cross_attention = true,
                                             .shards_text = false};

}  // namespace tpsim::rank
