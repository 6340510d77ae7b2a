#include "launch/numeric/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <tuple>
#include <utility>

#include "attention/backend.h"
#include "launch/deployment/attention.h"
#include "launch/deployment/images.h"
#include "launch/deployment/resolve.h"
#include "launch/numeric/computing_stage.h"
#include "launch/simulation/prompts.h"
#include "launch/simulation/run_monitor.h"
#include "proto/base/error.h"
#include "proto/base/stop_flag.h"
#include "rank/config/model_config.h"
#include "rank/cost/hardware.h"
#include "rank/numeric/dense_reference.h"
#include "rank/numeric/pass.h"
#include "rank/numeric/vision/image_encoder.h"
#include "rank/numeric/vision/patches.h"
#include "rank/parallel/deployment_executor.h"
#include "scheduler/engine.h"
#include "scheduler/workload/images.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {
namespace {

// What the dense reference says of one prompt.
struct Expected {
  std::vector<double> logits;  // at the last prompt position
  double largest = 0;          // magnitude of a logit
  std::vector<std::uint32_t> token_ids;
  std::vector<std::vector<float>> choices;  // the logits that each token was chosen by
};

std::uint32_t argmax(std::span<const double> logits) {
  return static_cast<std::uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// A prompt with the tokens of its images, and what they are.
struct PlacedPrompt {
  std::vector<std::uint32_t> ids;
  rank::DenseImages images;
};

// Encodes the images of prompts for the reference, whole and on one rank.
class ReferenceEncoder {
 public:
  explicit ReferenceEncoder(const ServerArgs& args) : args_(args) {}

  PlacedPrompt place(const rank::ModelConfig& model, const scheduler::WorkloadRequest& request) {
    PlacedPrompt prompt;
    for (const kvcache::TokenRun& run : request.prompt.runs()) {
      for (std::uint32_t i = 0; i < run.length; ++i)
        prompt.ids.push_back(rank::NumericRanks::fold(run.first + i, model.vocab_size));
    }
    for (const scheduler::ImageInput& image : request.images) add(model, image, prompt);
    return prompt;
  }

 private:
  void add(const rank::ModelConfig& model, const scheduler::ImageInput& image, PlacedPrompt& prompt) {
    const rank::VisionConfig& vision = model.vision;
    if (encoder_ == nullptr)
      encoder_ = std::make_unique<rank::ImageEncoder>(
          model, rank::ParallelLayout{}, rank::WeightType::kFp32,
          [this, model] { return open_weights(args_, model); }, collectives_, pool_);
    const rank::ImageLayout layout = rank::image_layout(vision, image.width, image.height);
    const std::uint32_t merged = vision.patch_size * vision.merge_size;
    prompt.images.spans.push_back({image.position, layout.height / merged, layout.width / merged});
    const std::vector<float> rows =
        encoder_->encode(layout, rank::image_seed(image.content, image.width, image.height), 0, 0);
    const std::vector<std::uint32_t> tokens = encoder_->image_tokens(layout);
    auto row = rows.begin();
    for (std::uint32_t k = 0; k < tokens.size(); ++k) {
      if (tokens[k] == rank::VisionTower::kEmbedded) {
        const auto end = row + static_cast<std::ptrdiff_t>(encoder_->row_size());
        prompt.images.rows.push_back({std::size_t{image.position} + k, {row, end}});
        row = end;
      } else {
        prompt.ids[image.position + k] = tokens[k];
      }
    }
  }

  const ServerArgs& args_;
  rank::LocalCollectives collectives_{1};
  rank::ThreadPool pool_;
  std::unique_ptr<rank::ImageEncoder> encoder_;
};

// The reference's greedy tokens after `prompt`. `guess` is what some run said: where it is right, all of it
// is checked by one pass over the whole sequence, each position saying what follows it; from the first token
// on that the reference does not say, it goes on token by token.
Expected expect(const rank::DenseReference& reference, const rank::ModelConfig& model,
                const PlacedPrompt& prompt, std::uint32_t max_new_tokens,
                const std::vector<std::uint32_t>& guess) {
  Expected expected;
  std::vector<std::uint32_t> sequence = prompt.ids;
  const std::size_t vocab = model.vocab_size;
  // Dynamic rope and longrope turn a position by the length of its sequence, and dual chunk attention scales
  // by it: one pass is not the same as many.
  const auto most = static_cast<std::uint32_t>(prompt.ids.size() + max_new_tokens);
  const rank::RopeConfig& rope = model.ropes.front();
  const bool at_once =
      rope.type != rank::RopeType::kDynamic &&
      (rope.type != rank::RopeType::kLongRope || most <= rope.original_max_position_embeddings) &&
      model.dual_chunk.scaling(most) == 1 && guess.size() == max_new_tokens;
  std::vector<std::uint32_t> whole = prompt.ids;
  if (at_once) whole.insert(whole.end(), guess.begin(), guess.end() - 1);
  std::vector<double> all = reference.forward(whole, prompt.images);
  std::size_t row = prompt.ids.size() - 1;
  while (true) {
    const std::span<const double> logits = std::span(all).subspan(row * vocab, vocab);
    if (expected.token_ids.empty()) expected.logits.assign(logits.begin(), logits.end());
    const std::uint32_t token = argmax(logits);
    expected.choices.emplace_back(logits.begin(), logits.end());
    sequence.push_back(token);
    expected.token_ids.push_back(token);
    if (expected.token_ids.size() == max_new_tokens) break;
    ++row;
    if (row < whole.size() && whole[row] == token) continue;
    whole = sequence;
    all = reference.forward(whole, prompt.images);
  }
  for (const double logit : expected.logits) expected.largest = std::max(expected.largest, std::abs(logit));
  return expected;
}

scheduler::Workload make_workload(const ServerArgs& args, const rank::ModelConfig& model,
                                  const VerifyPlan& plan) {
  scheduler::Workload workload;
  workload.name = "verify";
  for (const Prompt& prompt : plan.prompts)
    workload.requests.push_back(request_of(prompt, plan.max_new_tokens, {}));
  place_workload_images(args, model, /*host=*/{}, workload);
  return workload;
}

// One way to serve the prompts.
struct Variant {
  bool chunked = false;  // prefill in small chunks, or whole
  bool radix = false;    // prefixes are reused, or not
  bool batched = false;  // all prompts at once, or one after the other

  std::string name() const {
    return fmt::format("{}, {}, {}", chunked ? "chunked" : "whole", radix ? "radix" : "no radix",
                       batched ? "batched" : "alone");
  }
};

// The command line of one variant.
ServerArgs variant_args(const ServerArgs& args, const Variant& variant, std::uint32_t tp_size,
                        const std::string& backend) {
  ServerArgs out = args;
  out.tp_size = tp_size;
  // What spreads over all ranks does so for every --tp.
  if (args.parallel.ep_size != 1) out.parallel.ep_size = tp_size;
  out.parallel.dp_size = std::min(args.parallel.dp_size, tp_size);
  if (args.parallel.attn_dp_size) out.parallel.attn_dp_size = std::min(*args.parallel.attn_dp_size, tp_size);
  if (args.parallel.moe_dense_tp_size.value_or(1) != 1) out.parallel.moe_dense_tp_size = tp_size;
  if (tp_size == 1) out.parallel.enable_dp_lm_head = false;
  const std::size_t plus = backend.find('+');
  out.prefill_attention_backend = backend.substr(0, plus);
  out.decode_attention_backend = plus == std::string::npos ? backend : backend.substr(plus + 1);
  out.disable_radix_cache = !variant.radix;
  // Small enough that random prompts take several chunks.
  const std::int64_t page = choose_attention(out, nullptr, rank::load_hardware(hardware_name(out)),
                                             rank::load_model_config(out.model_path))
                                .page_size;
  const std::int64_t chunk = args.chunked_prefill_size.value_or((16 + page - 1) / page * page);
  out.chunked_prefill_size = variant.chunked ? chunk : -1;
  return out;
}

// `tie`: of the largest logit; of two tokens that are nearer to one another either may come, and what follows
// the other one is another text, which is not compared. 0: there are none.
void compare(const Expected& expected, const Output& output, const Variant& variant, double tie,
             VerifyRow& row) {
  for (std::size_t i = 0; i < expected.logits.size(); ++i) {
    const double difference =
        std::abs(double{output.prompt_logits.at(i)} - expected.logits[i]) / expected.largest;
    // Not a number is the largest difference there is.
    if (difference <= row.largest_difference) continue;
    row.largest_difference = std::isnan(difference) ? HUGE_VAL : difference;
    row.worst_variant = variant.name();
  }
  for (std::size_t i = 0; i < expected.token_ids.size(); ++i) {
    ++row.tokens;
    if (i < output.token_ids.size() && output.token_ids[i] == expected.token_ids[i]) continue;
    const std::vector<float>& logits = expected.choices[i];
    const double lost = i >= output.token_ids.size()
                            ? HUGE_VAL
                            : logits[expected.token_ids[i]] - logits.at(output.token_ids[i]);
    if (tie > 0 && lost <= tie * expected.largest) return;
    ++row.wrong_tokens;
  }
}

// Whether a token is attended rounded or not depends on its pass: of MLA, whose expanded form takes the new
// tokens as they came out of the projections.
bool rounds_by_form(const Deployment& deployment) {
  return deployment.model.is_mla() && !deployment.model.is_sparse() &&
         deployment.attention.kv_format != NumberFormat::kFp32;
}

// What the deployment's cache keeps of a token.
rank::KeptTokens kept_by(const Deployment& deployment) {
  const rank::MlaConfig& mla = deployment.model.mla;
  return {.format = deployment.attention.kv_format,
          .scaled_latents = deployment.model.is_sparse() &&
                            deployment.attention.kv_format == NumberFormat::kFp8E4M3 &&
                            deployment.sparse.token_bytes > mla.kv_lora_rank + mla.qk_rope_head_dim};
}

Outputs run_variant(const std::vector<Deployment>& deployments, const VerifyPlan& plan,
                    const scheduler::Workload& workload, bool batched, ComputingStage& stage) {
  const std::unique_ptr<rank::NumericRanks> ranks = stage.make_ranks(deployments.front(), true);
  class Computing : public scheduler::Executor {
   public:
    explicit Computing(rank::NumericRanks& ranks) : ranks_(ranks) {}
    scheduler::StepOutcome forward(const proto::ForwardBatch& batch) override {
      return ranks_.compute(batch);
    }

   private:
    rank::NumericRanks& ranks_;
  } computing(*ranks);
  LossTolerantExecutor executor(computing);
  scheduler::LoadConfig load;
  load.max_concurrency = batched ? 0 : 1;
  Outputs outputs(plan.prompts.size());
  scheduler::run_workload(deployments.front().scheduler, load, scheduler::WorkloadView(workload), executor,
                          outputs);
  StopFlag::throw_if_requested();
  if (executor.loss()) throw rank::RankLost(*executor.loss());
  for (std::size_t i = 0; i < plan.prompts.size(); ++i) {
    if (!outputs.all()[i].completed)
      throw_user_error("{}: its {} tokens do not fit the context or the KV pool", plan.prompts[i].where,
                       workload.requests[i].prompt.size());
  }
  return outputs;
}

// Plans, on `backend`, the passes in which `tokens` of a prompt that is served alone and without reuse are
// computed, and calls then(first token, number of tokens) after each.
template <typename Then>
void plan_passes(const Deployment& deployment, std::uint32_t tokens, attention::AttentionBackend& backend,
                 const Then& then) {
  const std::uint32_t chunk = deployment.scheduler.chunked_prefill_size;
  for (std::uint32_t at = 0; at < tokens;) {
    const std::uint32_t count = chunk == 0 ? tokens : std::min(chunk, tokens - at);
    attention::ForwardMetadata metadata;
    metadata.forward_mode = proto::EXTEND;
    metadata.extend_prefix_lens = std::span(&at, 1);
    metadata.extend_lens = std::span(&count, 1);
    backend.init_forward_metadata(metadata);
    then(at, count);
    at += count;
  }
}

// The passes of a prompt that is served alone and without reuse which attend their own tokens unrounded.
std::vector<std::pair<std::uint32_t, std::uint32_t>> expanded_passes(const Deployment& deployment,
                                                                     const Prompt& prompt) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> passes;
  if (!rounds_by_form(deployment)) return passes;
  const std::unique_ptr<attention::AttentionBackend> backend = deployment.make_backend();
  const auto tokens = static_cast<std::uint32_t>(prompt.ids.size());
  plan_passes(deployment, tokens, *backend, [&](std::uint32_t at, std::uint32_t count) {
    const attention::MlaForwardMethod method = backend->mla_extend().method;
    if (method == attention::MlaForwardMethod::kMha || method == attention::MlaForwardMethod::kMhaChunkedKv)
      passes.emplace_back(at, at + count);
  });
  return passes;
}

// Gemma 3 under a backend that lets the tokens of an image see each other: what they see depends on the
// passes, which are known of prompts that are served alone and without reuse.
bool sees_by_pass(const Deployment& deployment, const scheduler::Workload& workload) {
  return deployment.model.vision.both_ways && scheduler::WorkloadView(workload).outline().images &&
         deployment.make_backend()->masks_images();
}

// Of each token of such a prompt, the end of what it sees.
std::vector<std::uint32_t> sights(const Deployment& deployment, const scheduler::WorkloadRequest& request) {
  std::vector<rank::BatchImage> images;
  for (const scheduler::ImageInput& image : request.images)
    images.push_back({image.position, image.tokens, image.width, image.height, image.content});
  const rank::AttentionLayers layer =
      rank::attention_layers(deployment.model,
                             rank::make_shard(deployment.model, deployment.parallel.layout, 0),
                             deployment.attention.kv_format, deployment.sparse.token_bytes)
          .front();
  const std::unique_ptr<attention::AttentionBackend> backend = deployment.make_backend();
  const auto tokens = static_cast<std::uint32_t>(request.prompt.size());
  std::vector<std::uint32_t> ends;
  plan_passes(deployment, tokens, *backend, [&](std::uint32_t at, std::uint32_t count) {
    const std::vector<std::uint32_t> of_pass =
        rank::image_sight(images, at, count, backend->extend_plan(layer.shape).tile_m);
    ends.insert(ends.end(), of_pass.begin(), of_pass.end());
  });
  return ends;
}

// What the reference says, made once for each way in which a prompt's tokens are kept.
class Expectations {
 public:
  Expectations(const ServerArgs& args, const rank::ModelConfig& model, const rank::TensorSource& weights,
               const VerifyPlan& plan)
      : model_(model), weights_(weights), plan_(plan), encoder_(args) {}

  // `served`: the model as the deployment serves its images. `request`: that of the prompt. `ends`: of
  // sights(), or empty.
  const Expected& of(std::size_t prompt, const rank::ModelConfig& served,
                     const scheduler::WorkloadRequest& request, const rank::KeptTokens& kept,
                     const std::vector<std::uint32_t>& ends, const Output& guess) {
    const auto found = known_.find({prompt, kept.expanded_passes, ends});
    if (found != known_.end()) return found->second;
    const rank::DenseReference reference(model_, weights_, kept);
    const auto placed = placed_.find(prompt);
    PlacedPrompt& whole = placed != placed_.end()
                              ? placed->second
                              : placed_.emplace(prompt, encoder_.place(served, request)).first->second;
    whole.images.ends = ends;
    return known_
        .emplace(std::tuple(prompt, kept.expanded_passes, ends),
                 expect(reference, model_, whole, plan_.max_new_tokens, guess.token_ids))
        .first->second;
  }

 private:
  const rank::ModelConfig& model_;
  const rank::TensorSource& weights_;
  const VerifyPlan& plan_;
  ReferenceEncoder encoder_;
  std::map<std::size_t, PlacedPrompt> placed_;
  std::map<std::tuple<std::size_t, std::vector<std::pair<std::uint32_t, std::uint32_t>>,
                      std::vector<std::uint32_t>>,
           Expected>
      known_;
};

}  // namespace

bool VerifyRow::agrees(double tolerance) const {
  return refused.empty() && largest_difference <= tolerance && wrong_tokens == 0;
}

std::vector<Prompt> make_verify_prompts(std::uint32_t vocab_size, std::uint32_t longest, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw = [&] { return static_cast<std::uint32_t>(random() % vocab_size); };
  std::vector<std::uint32_t> shared;
  for (std::uint32_t i = 0; i < longest / 2; ++i) shared.push_back(draw());
  std::vector<Prompt> prompts;
  for (const double share : {0.0, 0.3, 0.6, 1.0, 1.0}) {
    Prompt prompt;
    prompt.where = fmt::format("prompt {}", prompts.size() + 1);
    prompt.ids.assign(shared.begin(), shared.begin() + static_cast<std::ptrdiff_t>(share * shared.size()));
    const std::uint32_t own = 1 + static_cast<std::uint32_t>(random() % std::max(1U, longest / 2));
    for (std::uint32_t i = 0; i < own; ++i) prompt.ids.push_back(draw());
    prompts.push_back(std::move(prompt));
  }
  prompts.push_back(prompts.back());  // the same again: a match must leave one token to compute
  prompts.back().where = fmt::format("prompt {}", prompts.size());
  return prompts;
}

std::vector<VerifyRow> verify(const ServerArgs& args, const VerifyPlan& plan,
                              const std::function<void(const std::string& what, std::uint64_t served,
                                                       std::uint64_t total)>& on_progress,
                              const std::function<void(const VerifyRow& row)>& on_row) {
  constexpr unsigned kVariants = 8;
  const std::uint64_t total =
      std::uint64_t{kVariants} * plan.prompts.size() * plan.tp_sizes.size() * plan.backends.size();
  const rank::ModelConfig model = rank::load_model_config(args.model_path);
  check_prompts(plan.prompts, model.vocab_size);
  const std::unique_ptr<rank::TensorSource> weights = open_weights(args, model);
  Expectations expectations(args, model, *weights, plan);
  std::vector<VerifyRow> rows;
  for (const std::uint32_t tp_size : plan.tp_sizes) {
    rank::ProcessGroup group;
    group.tp_size = tp_size;
    ServerArgs of_size = args;
    of_size.tp_size = tp_size;
    ComputingStage stage(of_size, group);
    for (const std::string& backend : plan.backends) {
      VerifyRow row;
      row.tp_size = tp_size;
      row.backend = backend;
      try {
        for (unsigned bits = 0; bits < kVariants; ++bits) {
          const std::string what = fmt::format("--tp {} {}", tp_size, backend);
          const std::uint64_t done = (rows.size() * kVariants + bits) * plan.prompts.size();
          on_progress(what, done, total);
          const Variant variant{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
          const std::vector<Deployment> deployments =
              resolve_deployments(variant_args(of_size, variant, tp_size, backend), /*compare=*/false);
          // Passes of several requests, or after a prefix of another's, mix what is rounded and what is not.
          if (rounds_by_form(deployments.front()) && (variant.radix || variant.batched)) continue;
          const rank::ModelConfig& served = deployments.front().model;
          const scheduler::Workload workload = make_workload(args, served, plan);
          const bool by_pass = sees_by_pass(deployments.front(), workload);
          if (by_pass && (variant.radix || variant.batched)) continue;
          const Outputs outputs = run_variant(deployments, plan, workload, variant.batched, stage);
          on_progress("dense reference", done, total);
          rank::KeptTokens kept = kept_by(deployments.front());
          const bool rounded = kept.format != NumberFormat::kFp32;
          for (std::size_t i = 0; i < plan.prompts.size(); ++i) {
            const Output& output = outputs.all()[i];
            kept.expanded_passes = expanded_passes(deployments.front(), plan.prompts[i]);
            row.cached_tokens += output.cached_tokens;
            const std::vector<std::uint32_t> ends =
                by_pass ? sights(deployments.front(), workload.requests[i]) : std::vector<std::uint32_t>();
            compare(expectations.of(i, served, workload.requests[i], kept, ends, output), output, variant,
                    rounded ? plan.tolerance : 0, row);
          }
          ++row.variants;
        }
      } catch (const UserError& error) {
        row.refused = error.what();
      }
      on_row(row);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace tpsim::launch
