#include "rank/diffusion/joint_blocks.h"

namespace tpsim::rank {

void write_embedder(const PassShape& s, std::uint64_t from, std::uint64_t width, OperatorList& list) {
  list.product(s.batch, from, width, 1);
  list.product(s.batch, width, width, 1);
  list.elementwise(2 * s.batch * static_cast<double>(width), 4);
}

void write_double_blocks(const TransformerConfig& t, const PassShape& s, double layers, OperatorList& list,
                         const JointKernels& kernels) {
  const std::uint64_t d = t.width();
  const double wide = static_cast<double>(d);
  for (const bool image : {true, false}) {
    const double rows = image ? s.rows : s.text_rows;
    list.within(Module::kModulation);
    list.product(s.batch, d, 6 * d, layers);
    list.within(Module::kAttention);
    list.product(rows, d, d, 3 * layers, Cut::kOutputs);
    list.product(rows, d, d, layers, Cut::kInputs);
    list.within(Module::kMlp);
    list.product(rows, d, t.ffn, layers, Cut::kOutputs);
    list.elementwise(2 * rows * static_cast<double>(t.ffn), layers);
    if (image) list.within(Module::kImageMlpOut);
    list.product(rows, t.ffn, d, layers, Cut::kInputs);
    list.elementwise(kernels.stream / 7 * rows * wide, 7 * layers);
    list.weights(2 * t.head_dim * layers);
  }
  list.within(Module::kOutside);
  list.elementwise(4 * wide, kernels.small * layers);
  // Joint sequences are put together and taken apart.
  list.elementwise(2 * (s.rows + s.text_rows) * wide, 4 * layers);
  list.self_attention(s.tokens, s.text, t.heads, t.head_dim, layers);
  list.live(6 * (s.rows + s.text_rows) * wide + 2 * s.rows * static_cast<double>(t.ffn));
}

void write_single_blocks(const TransformerConfig& t, const PassShape& s, double layers, OperatorList& list,
                         const JointKernels& kernels) {
  const std::uint64_t d = t.width();
  const double wide = static_cast<double>(d), rows = s.rows + s.text_rows;
  list.within(Module::kModulation);
  list.product(s.batch, d, 3 * d, layers);
  list.within(Module::kSingle);
  list.product(rows, d, d, 3 * layers, Cut::kOutputs);
  list.within(Module::kSingleMlp);
  list.product(rows, d, t.ffn, layers, Cut::kOutputs);
  list.elementwise(2 * rows * static_cast<double>(t.ffn), layers);
  list.within(Module::kSingle);
  list.product(rows, d + t.ffn, d, layers, Cut::kInputs);
  list.within(Module::kOutside);
  list.elementwise(kernels.single / 6 * rows * wide, 6 * layers);
  list.elementwise(4 * wide, kernels.single_small * layers);
  list.weights(2 * t.head_dim * layers);
  list.self_attention(s.tokens, s.text, t.heads, t.head_dim, layers);
}

}  // namespace tpsim::rank
