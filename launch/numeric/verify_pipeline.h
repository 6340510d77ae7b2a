// Whether the split of a diffusion pipeline over ranks, or its attention backend, changes what its denoising
// transformer makes: every split and backend against one rank with dense attention.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/numeric/pipeline_reference.h"
#include "rank/numeric/diffusion/denoising_loop.h"
#include "rank/numeric/diffusion/image_decoder.h"
#include "rank/numeric/diffusion/image_embedder.h"
#include "rank/parallel/mpi_session.h"

namespace tpsim::launch {

// What is computed in a pipeline's folder: transformer and scheduler. Text encoders before them and the VAE
// behind them are where a reference has something of them.
struct ComputedPipeline {
  std::string class_name;
  bool distilled = false;  // guidance makes no second pass, whatever the transformer
  struct Transformers {
    std::unique_ptr<rank::Denoiser> first;
    std::unique_ptr<rank::Denoiser> second;  // for timesteps below `boundary`, where there are two
  };
  Transformers whole;
  Transformers cut;  // over `tp_size` ranks, where it is not 1
  std::uint32_t tp_size = 1;
  float boundary = 0;
  const rank::Denoiser& denoiser() const { return *whole.first; }
  std::unique_ptr<rank::ImageEmbedder> embedder;  // where the transformer reads what it makes
  std::unique_ptr<rank::ImageDecoder> decoder;    // none until load_decoder()
  rank::Json scheduler;
  std::string scheduler_path;
};
// `dummy`: seeded weights (rank/weights/dummy_weights.h) instead of the folder's. Throws UserError naming
// --model-path and what is missing, or the file with what is not computed.
ComputedPipeline load_computed_pipeline(const std::string& folder, bool dummy = false,
                                        std::uint32_t tp_size = 1);
// The VAE's, for `reference`. Throws UserError as above, and naming --reference where it is of other pixels.
void load_decoder(const std::string& folder, const LoopReference& reference, bool dummy,
                  ComputedPipeline& pipeline);

struct SplitPlan {
  std::vector<rank::SequenceSplit> splits;
  std::vector<std::string> backends;
  std::string backend_config;
  LoopSize size;
  std::optional<LoopReference> reference;
  std::optional<rank::GuidedPrompt> prompt;  // without it the rule's
};

struct PipelineRow {
  rank::SequenceSplit split;
  std::string backend, refused;
  bool exact = true;      // rounds nothing
  double kept = 1;        // of the pairs of queries and keys, those that met
  double difference = 0;  // of the latents from those of one rank with dense attention, over the largest
  std::optional<double> from_reference;  // of one pass and of the latents, the larger
  // Of what the VAE makes of the latents, from the reference's; in the first process alone.
  std::optional<double> pixels;
  // Whether it must be the same: nothing was left out or rounded.
  bool agrees(double tolerance) const;
};

// In every process; `on_row` is told of each row as it is done. Throws UserError where the pipeline cannot be
// computed at all.
std::vector<PipelineRow> verify_pipeline(const ComputedPipeline& pipeline, const SplitPlan& plan,
                                         rank::MpiSession& session,
                                         const std::function<void(const PipelineRow&)>& on_row);

// What the text encoders make of the reference's tokens, for the transformer.
struct EncodedPrompt {
  rank::GuidedPrompt prompt;
  std::vector<double> differences;  // of each encoder's rows from the recorded ones, over the largest
};
// In every process: each pipeline.tp_size ranks cut them, as SGLang has a group do it. Throws UserError
// naming the component's config.json or the reference.
EncodedPrompt encode_prompt(const std::string& folder, const ComputedPipeline& pipeline,
                            const LoopReference& reference, bool dummy, rank::MpiSession& session);

}  // namespace tpsim::launch
