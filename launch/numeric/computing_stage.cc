#include "launch/numeric/computing_stage.h"

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "attention/selection/registry.h"
#include "launch/numeric/numeric_commands.h"
#include "proto/base/error.h"
#include "rank/numeric/numeric_forward.h"
#include "rank/numeric/vision/tower.h"
#include "rank/parallel/numeric_executor.h"
#include "rank/parallel/numeric_speculation.h"
#include "rank/weights/checkpoint.h"
#include "rank/weights/dummy_weights.h"

namespace tpsim::launch {
namespace {

std::unique_ptr<rank::Collectives> make_collectives(const rank::ProcessGroup& group) {
  if (group.num_processes == 1) return std::make_unique<rank::LocalCollectives>(group.tp_size);
  return std::make_unique<rank::MpiCollectives>(group);
}

// How weights are kept: bfloat16 as it is, float16 and float32 as fp32.
rank::WeightType weight_type(const ServerArgs& args, const rank::ModelConfig& model) {
  // An element times its scale is no 16-bit number.
  if (args.dtype == "auto" && model.quantization.quantized()) return rank::WeightType::kFp32;
  const std::string& dtype = args.dtype == "auto" ? model.dtype : args.dtype;
  return dtype == "bfloat16" ? rank::WeightType::kBf16 : rank::WeightType::kFp32;
}

// What a head that drafts reads of its target.
rank::NumericOptions::Hidden hidden_read(const Deployment& deployment) {
  const std::optional<rank::DraftModel>& draft = deployment.speculation.draft;
  return draft && draft->is_head() ? rank::NumericOptions::Hidden::kNormed
                                   : rank::NumericOptions::Hidden::kNone;
}

std::vector<std::uint32_t> hidden_layers_read(const Deployment& deployment) {
  const std::optional<rank::DraftModel>& draft = deployment.speculation.draft;
  return draft ? draft->hidden_layers : std::vector<std::uint32_t>();
}

}  // namespace

std::unique_ptr<rank::TensorSource> open_weights(const ServerArgs& args, const rank::ModelConfig& model) {
  if (args.dummy_weights())
    return std::make_unique<rank::DummyWeights>(args.random_seed, model.norm_plus_one);
  std::error_code error;
  if (!std::filesystem::is_directory(args.model_path, error)) {
    throw_user_error(
        "--model-path {}: is an architecture without weights; name a folder with safetensors, or give "
        "--load-format dummy for seeded random weights",
        args.model_path);
  }
  return std::make_unique<rank::DequantisedSource>(rank::Checkpoint(args.model_path),
                                                   model.quantization.gptq_zero_offset);
}

ComputingStage::ComputingStage(const ServerArgs& args, const rank::ProcessGroup& group)
    : args_(args), group_(group), pool_(0, group.job_on_host), collectives_(make_collectives(group)) {}

std::unique_ptr<rank::DeploymentExecutor> ComputingStage::make_executor(rank::WorkerLink* link,
                                                                        const Deployment& deployment,
                                                                        bool return_logits) {
  return std::make_unique<rank::NumericExecutor>(link, deployment.configuration_hash(),
                                                 [&] { return make_ranks(deployment, return_logits); });
}

std::unique_ptr<rank::WorkerRanks> ComputingStage::make_worker(const Deployment& deployment) {
  return make_ranks(deployment);
}

void ComputingStage::set_while_waiting(std::function<void()> hook) {
  if (auto* const over_mpi = dynamic_cast<rank::MpiCollectives*>(collectives_.get()))
    over_mpi->set_while_waiting(std::move(hook));
}

std::unique_ptr<rank::NumericRanks> ComputingStage::make_ranks(const Deployment& deployment,
                                                               bool return_logits) {
  rank::NumericOptions options;
  options.weight_type = weight_type(args_, deployment.model);
  options.kv_format = deployment.attention.kv_format;
  options.sparse_token_bytes = deployment.sparse.token_bytes;
  options.page_size = deployment.scheduler.page_size;
  const auto host_pages =
      static_cast<std::uint32_t>(deployment.hicache.config.tier.tokens / options.page_size);
  options.num_pages = deployment.ranks.state.num_pages + host_pages;
  options.layout = deployment.parallel.layout;
  options.free_windows = deployment.scheduler.disable_radix_cache;
#ifdef NDEBUG
  options.tag_pages = args_.check_invariants;
#else
  options.tag_pages = true;
#endif
  if (loaded_.empty())
    loaded_ =
        rank::load_ranks(deployment.model, *open_weights(args_, deployment.model), options, *collectives_);
  auto backend = deployment.make_backend();
  if (!deployment.scheduler.cuda_graph_bs.empty()) {
    backend->init_cuda_graph_state(deployment.scheduler.cuda_graph_bs.back());
    for (const std::uint32_t bs : deployment.scheduler.cuda_graph_bs)
      backend->init_forward_metadata_capture_cuda_graph(bs);
  }
  rank::NumericRanksConfig config;
  config.deployment = deployment.ranks;
  config.first_rank = group_.first_rank(group_.process);
  config.num_ranks = group_.ranks_per_process();
  config.vocab_size = deployment.model.vocab_size;
  config.return_logits = return_logits;
  config.host_pages = host_pages;
  config.exclusive_pages = deployment.scheduler.disable_radix_cache;
  std::unique_ptr<rank::TokenForward> draft;
  if (deployment.speculation.config.enabled()) {
    const scheduler::SpeculationConfig& speculation = deployment.speculation.config;
    config.drafting = {.num_draft_tokens = speculation.num_draft_tokens,
                       .num_steps = speculation.num_steps,
                       .topk = speculation.topk,
                       .page_size = options.page_size,
                       .num_pages = options.num_pages,
                       .draft_vocab_size = 0,
                       .token_of = {}};
    if (deployment.speculation.draft) draft = make_draft(deployment, options, config.drafting);
    options.hidden_layers = hidden_layers_read(deployment);
    options.hidden = hidden_read(deployment);
  }
  return std::make_unique<rank::NumericRanks>(
      std::move(config),
      std::make_unique<rank::NumericForward>(deployment.model, loaded_, options, std::move(backend),
                                             *collectives_, pool_, image_encoder(deployment, options)),
      collectives_.get(), std::move(draft));
}

// Null where images are not served, or not computed.
std::shared_ptr<rank::ImageEncoder> ComputingStage::image_encoder(const Deployment& deployment,
                                                                  const rank::NumericOptions& options) {
  const rank::ModelConfig& model = deployment.model;
  if (!model.vision.served || rank::find_vision_tower(model.vision.architecture) == nullptr) return nullptr;
  if (images_ == nullptr) {
    const auto open = [this, model] { return open_weights(args_, model); };
    images_ = std::make_shared<rank::ImageEncoder>(model, options.layout, options.weight_type, open,
                                                   *collectives_, pool_);
  }
  return images_;
}

// The model that drafts, with a KV store of its own on the same pages.
std::unique_ptr<rank::TokenForward> ComputingStage::make_draft(const Deployment& deployment,
                                                               rank::NumericOptions options,
                                                               rank::DraftingConfig& drafting) {
  const rank::DraftModel& draft = *deployment.speculation.draft;
  const rank::ModelConfig& model = draft.config;
  ServerArgs args = args_;
  if (!args_.speculation.draft_model_path.empty()) args.model_path = args_.speculation.draft_model_path;
  options.weight_type = weight_type(args, model);
  options.sparse_token_bytes = 0;
  options.num_pages += rank::ModelDrafter::scratch_pages(drafting);
  // Branches look at pages that nobody handed out.
  if (drafting.topk > 1) options.free_windows = false;
  // A head goes on from what its output head reads, or from that before the last norm.
  using Hidden = rank::NumericOptions::Hidden;
  if (draft.is_head())
    options.hidden =
        draft.kind == rank::DraftKind::kEagle3 && !draft.norm_output ? Hidden::kUnnormed : Hidden::kNormed;
  if (loaded_draft_.empty()) {
    const std::unique_ptr<rank::TensorSource> source = open_weights(args, model);
    if (draft.is_head()) {
      loaded_draft_ = rank::load_draft_head_ranks(draft, *source, options, *collectives_, loaded_);
      token_map_ = rank::load_token_map(draft, deployment.model.vocab_size, *source);
    } else {
      loaded_draft_ = rank::load_ranks(model, *source, options, *collectives_);
    }
  }
  drafting.draft_vocab_size = model.vocab_size;
  drafting.token_of = token_map_;
  return std::make_unique<rank::NumericForward>(
      model, loaded_draft_, options,
      attention::create_attention_backend(deployment.draft.backend, deployment.hardware, options.page_size),
      *collectives_, pool_);
}

const NumericExecution kNumericExecution{
    .make_stage = [](const ServerArgs& args, const rank::ProcessGroup& group)
        -> std::unique_ptr<NumericStage> { return std::make_unique<ComputingStage>(args, group); },
    .computes_images =
        [](std::string_view architecture) { return rank::find_vision_tower(architecture) != nullptr; }};

}  // namespace tpsim::launch
