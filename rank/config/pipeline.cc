#include "rank/config/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::rank {
namespace {

constexpr const char* kPartition = "SGLANG_PP_LAYER_PARTITION";

std::vector<LayerRange> partitioned(std::uint32_t num_layers, std::uint32_t pp_size,
                                    const std::string& partition) {
  std::vector<LayerRange> stages;
  std::uint32_t first = 0;
  for (const std::string& part : split_list(partition)) {
    const auto count = static_cast<std::uint32_t>(parse_count(kPartition, part, 1, num_layers));
    stages.push_back({first, count});
    first += count;
  }
  if (stages.size() != pp_size)
    throw_user_error("{} {}: names {} stages, --pp-size is {}", kPartition, partition, stages.size(),
                     pp_size);
  if (first != num_layers)
    throw_user_error("{} {}: adds up to {} layers, the model has {}", kPartition, partition, first,
                     num_layers);
  return stages;
}

}  // namespace

std::vector<LayerRange> pipeline_layers(std::uint32_t num_layers, std::uint32_t pp_size,
                                        const std::string& partition) {
  if (pp_size > num_layers)
    throw_user_error("--pp-size {}: the model has {} layers, each stage needs one", pp_size, num_layers);
  if (pp_size > 1 && !partition.empty()) return partitioned(num_layers, pp_size, partition);
  std::vector<LayerRange> stages;
  const std::uint32_t with_one_more = num_layers % pp_size;
  std::uint32_t first = 0;
  for (std::uint32_t stage = 0; stage < pp_size; ++stage) {
    const std::uint32_t count = num_layers / pp_size + (stage >= pp_size - with_one_more ? 1 : 0);
    stages.push_back({first, count});
    first += count;
  }
  return stages;
}

void check_pipeline(const ModelConfig& model) {
  if (model.is_hybrid_linear())
    throw_user_error(
        "--pp-size: stages of {}, whose gated delta-net layers keep states, are not simulated; use --tp",
        model.name);
  // InternVL's text model has an architecture of its own; the class that serves it makes no stages of it.
  const std::string& served = model.vision.present() ? model.vision.architecture : model.architecture;
  if (served != model.architecture || !model.facts.pipeline)
    throw_user_error("--pp-size: SGLang's {} has no pipeline stages; use --tp", served);
  if (model.tie_word_embeddings && model.facts.tied_head_is_embedding)
    throw_user_error(
        "--pp-size: {} ties its head to the embedding, and the last stage of SGLang's {} has no embedding; "
        "use --tp",
        model.name, model.architecture);
}

void check_deepstack(const ModelConfig& model, const std::vector<LayerRange>& stages) {
  if (stages.size() > 1 && model.vision.served && stages.front().count < model.vision.deepstack)
    throw_user_error(
        "--pp-size {}: the first stage has {} layers of {}, and image features go into its first {}; use "
        "fewer stages",
        stages.size(), stages.front().count, model.name, model.vision.deepstack);
}

ModelConfig stage_model(const ModelConfig& model, LayerRange layers) {
  ModelConfig stage = model;
  stage.first_layer = model.first_layer + layers.first;
  stage.num_layers = layers.count;
  stage.layers.assign(model.layers.begin() + layers.first,
                      model.layers.begin() + layers.first + layers.count);
  stage.attention.clear();
  stage.moe.num_layers = stage.indexer.num_layers = stage.linear.num_layers = 0;
  std::vector<std::uint32_t> kind_in_stage(model.attention.size(), LayerConfig::kNoRope);
  std::uint32_t kv_layer = 0;
  for (LayerConfig& layer : stage.layers) {
    if (layer.moe) ++stage.moe.num_layers;
    if (layer.indexer) layer.index_layer = stage.indexer.num_layers++;
    if (layer.linear) {
      ++stage.linear.num_layers;
      continue;
    }
    layer.kv_layer = kv_layer++;
    std::uint32_t& kind = kind_in_stage[layer.attention];
    if (kind == LayerConfig::kNoRope) {
      kind = static_cast<std::uint32_t>(stage.attention.size());
      stage.attention.push_back(model.attention[layer.attention]);
      stage.attention.back().num_layers = 0;
    }
    layer.attention = kind;
    ++stage.attention[kind].num_layers;
  }
  return stage;
}

Shard stage_shard(const ModelConfig& stage_model, const ParallelLayout& layout, std::uint32_t tp_rank,
                  std::uint32_t pp_rank, std::uint32_t pp_size) {
  Shard shard = make_shard(stage_model, layout, tp_rank);
  shard.stage.rank = pp_rank;
  shard.stage.size = pp_size;
  shard.stage.head_on_every_stage = stage_model.facts.head_on_every_stage;
  return shard;
}

}  // namespace tpsim::rank
