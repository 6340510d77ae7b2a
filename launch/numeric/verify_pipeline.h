// Whether the split of a diffusion pipeline over ranks, or its attention backend, changes what its denoising
// transformer makes: every split and backend against one rank with dense attention.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rank/numeric/diffusion/denoising_loop.h"
#include "rank/numeric/diffusion/text_encoder.h"
#include "rank/parallel/mpi_session.h"
#include "rank/weights/checkpoint.h"

namespace tpsim::launch {

// What is computed in a pipeline's folder: transformer and scheduler. Text encoders are where a reference has
// some, the VAE is not.
struct ComputedPipeline {
  std::unique_ptr<rank::Denoiser> denoiser;
  rank::Json scheduler;
  std::string scheduler_path;
};
// `dummy`: seeded weights (rank/weights/dummy_weights.h) instead of the folder's. Throws UserError naming
// --model-path and what is missing, or the file with what is not computed.
ComputedPipeline load_computed_pipeline(const std::string& folder, bool dummy = false);

// What one loop is: the rule of rank/numeric/diffusion/seeded_tensor.h makes latents and embeddings.
struct LoopSize {
  std::array<std::uint32_t, 3> latents = {3, 6, 10};  // frames, rows, columns
  std::uint32_t prompt_tokens = 8, steps = 4;
  float guidance = 5;
  std::uint64_t seed = 1;
};
// What Transformers made of some tokens.
struct EncoderReference {
  std::string folder;  // of the component, in the pipeline's
  std::vector<std::uint32_t> ids;
  std::vector<float> rows;
};
// Values that Diffusers recorded (tests/references/make_diffusion_references.py): the loop's size comes with
// them.
struct LoopReference {
  LoopSize size;
  std::vector<float> first_pass, latents;
  std::optional<EncoderReference> encoder;
};
// Throws UserError naming --reference.
LoopReference read_loop_reference(const std::string& path, std::uint32_t channels);

struct SplitPlan {
  std::vector<rank::SequenceSplit> splits;
  std::vector<std::string> backends;
  std::string backend_config;
  LoopSize size;
  std::optional<LoopReference> reference;
};

struct PipelineRow {
  rank::SequenceSplit split;
  std::string backend, refused;
  bool exact = true;      // rounds nothing
  double kept = 1;        // of the pairs of queries and keys, those that met
  double difference = 0;  // of the latents from those of one rank with dense attention, over the largest
  std::optional<double> from_reference;  // of one pass and of the latents, the larger
  // Whether it must be the same: nothing was left out or rounded.
  bool agrees(double tolerance) const;
};

// In every process; `on_row` is told of each row as it is done. Throws UserError where the pipeline cannot be
// computed at all.
std::vector<PipelineRow> verify_pipeline(const ComputedPipeline& pipeline, const SplitPlan& plan,
                                         rank::MpiSession& session,
                                         const std::function<void(const PipelineRow&)>& on_row);

// Of the encoder's rows from the recorded ones, over the largest. Throws UserError naming the component's
// config.json or the reference.
double verify_text_encoder(const std::string& folder, const EncoderReference& reference, bool dummy);

}  // namespace tpsim::launch
