// Prompts through a pipeline's text encoders.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launch/numeric/pipeline_component.h"
#include "launch/numeric/verify_pipeline.h"
#include "proto/base/error.h"
#include "rank/numeric/diffusion/text_encoder.h"
#include "rank/parallel/numeric_executor.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::launch {
namespace {

// Behind the rows come zeros up to `tokens` (WanPipeline), unless that is 0.
void give_rows(const rank::Denoiser& denoiser, std::uint32_t tokens, std::vector<float> rows,
               rank::TextEmbeddings& text) {
  const std::uint32_t width = denoiser.text_size();
  text.tokens = std::max(tokens, static_cast<std::uint32_t>(rows.size() / width));
  if (rows.size() % width != 0 || (tokens > 0 && text.tokens > tokens))
    throw_user_error("--reference: the text encoders make {} numbers; the transformer reads {}{}",
                     rows.size(), tokens > 0 ? fmt::format("at most {} times ", tokens) : "rows of ", width);
  rows.resize(std::size_t{text.tokens} * width);
  text.rows = std::move(rows);
}

}  // namespace

EncodedPrompt encode_prompt(const std::string& folder, const ComputedPipeline& pipeline,
                            const LoopReference& reference, bool dummy, rank::MpiSession& session) {
  const rank::Denoiser& denoiser = pipeline.denoiser();
  EncodedPrompt out{.prompt = {.prompt = {}, .negative = {}, .guidance = reference.size.guidance},
                    .differences = {}};
  const std::uint32_t tp = pipeline.tp_size, processes = session.num_processes();
  rank::LocalCollectives local(tp);
  std::unique_ptr<rank::MpiCollectives> over_mpi;
  if (processes > 1)
    over_mpi = std::make_unique<rank::MpiCollectives>(
        session.process_group(tp, processes > tp ? processes / tp : 1));
  rank::Collectives& ranks = over_mpi ? static_cast<rank::Collectives&>(*over_mpi) : local;
  rank::ThreadPool pool(1);
  for (const EncoderReference& of : reference.encoders) {
    const auto encoder =
        load_component(std::filesystem::path(folder) / of.folder, dummy,
                       [&](const rank::ConfigReader& config, const rank::TensorSource& source) {
                         return rank::load_text_encoder(config, source, pipeline.class_name, ranks);
                       });
    const auto give = [&](std::vector<float> rows, rank::TextEmbeddings& text) {
      if (encoder->pooled()) {
        text.pooled = std::move(rows);
      } else {
        give_rows(denoiser, reference.size.prompt_tokens, std::move(rows), text);
      }
    };
    std::vector<float> rows = encoder->rows(of.tokens, ranks, pool);
    if (rows.size() != of.rows.size())
      throw_user_error("--reference: \"rows\" of {} has {} numbers; {} tokens have {}", of.folder,
                       of.rows.size(), of.tokens.ids.size(), rows.size());
    out.differences.push_back(relative_difference(rows, of.rows));
    give(std::move(rows), out.prompt.prompt);
    if (!denoiser.guided(out.prompt.guidance)) continue;
    if (of.negative.ids.empty())
      throw_user_error("--reference: {} has no \"negative_ids\"; guidance takes a pass with them", of.folder);
    give(encoder->rows(of.negative, ranks, pool), out.prompt.negative);
  }
  const rank::TextEmbeddings& text = out.prompt.prompt;
  if (text.tokens == 0 || text.pooled.size() != denoiser.pooled_size())
    throw_user_error(
        "--reference: \"text_encoders\" make {} rows and {} pooled numbers; the transformer "
        "reads rows and {}",
        text.tokens, text.pooled.size(), denoiser.pooled_size());
  return out;
}

}  // namespace tpsim::launch
