// Scheduler: its batches as the messages that ranks get.
#include "proto/versions.h"
#include "scheduler/scheduler.h"

namespace tpsim::scheduler {
namespace {

// Positions [prefix_len, prefix_len + extend_len) of the sequence of every request of the extend part.
void write_tokens(const ScheduleBatch& batch, proto::ForwardBatch& message) {
  bool greedy = true;
  for (std::size_t i = 0; i < batch.num_extend; ++i) {
    const Req& req = *batch.reqs[i];
    greedy = greedy && req.source->sampling.temperature == 0;
    req.tokens.for_each_run(req.prefix_len, req.fill_len(), [&message](const kvcache::TokenRun& run) {
      message.add_input_run_first(run.first);
      message.add_input_run_length(run.length);
    });
  }
  if (greedy) return;
  for (std::size_t i = 0; i < batch.num_extend; ++i) {
    const SamplingParams& sampling = batch.reqs[i]->source->sampling;
    proto::SamplingParams& out = *message.add_extend_sampling();
    out.set_temperature(sampling.temperature);
    out.set_top_k(sampling.top_k);
    out.set_top_p(sampling.top_p);
    out.set_seed(sampling.seed);
  }
}

// The request whose prompt goes on in a later chunk, and the token that follows.
void write_next_token(const ScheduleBatch& batch, proto::ForwardBatch& message) {
  for (std::size_t i = 0; i < batch.num_extend; ++i) {
    const Req& req = *batch.reqs[i];
    req.tokens.for_each_run(req.fill_len(), req.fill_len() + std::uint64_t{1},
                            [&](const kvcache::TokenRun& run) {
                              message.set_chunked_request(static_cast<std::uint32_t>(i));
                              message.set_chunked_next_token(run.first);
                            });
  }
}

// The images of which the pass computes a token: it needs their embeddings.
void write_images(const Req& req, proto::ForwardBatch& message) {
  std::uint32_t count = 0;
  for (const ImageInput& image : req.source->images) {
    if (image.position + image.tokens <= req.prefix_len || image.position >= req.fill_len()) continue;
    ++count;
    message.add_image_width(image.width);
    message.add_image_height(image.height);
    message.add_image_content(image.content);
  }
  if (count > 0) message.add_images_of_request(count);
}

// For execution that computes: all images up to the pass' end, of the `index`-th request of the extend part.
void write_prompt_images(const Req& req, std::size_t index, proto::ForwardBatch& message) {
  for (const ImageInput& image : req.source->images) {
    if (image.position >= req.fill_len()) break;
    proto::PromptImage& out = *message.add_prompt_images();
    out.set_request(static_cast<std::uint32_t>(index));
    out.set_position(image.position);
    out.set_tokens(image.tokens);
    out.set_width(image.width);
    out.set_height(image.height);
    out.set_content(image.content);
  }
}

}  // namespace

void Scheduler::write_forward_batch(const ScheduleBatch& batch, proto::ForwardBatch& message) {
  message.Clear();
  message.set_version(kForwardBatchVersion);
  message.set_forward_mode(batch.forward_mode);
  message.set_capture_bucket(batch.capture_bucket);
  message.set_micro_batch(batch.micro_batch);
  for (std::size_t i = 0; i < batch.num_extend; ++i) {
    const Req& req = *batch.reqs[i];
    message.add_extend_req_pool_indices(req.cache.row);
    message.add_extend_prefix_lens(req.prefix_len);
    message.add_extend_lens(req.extend_len);
    if (req.source->images.empty()) continue;
    message.set_image_prompts(true);
    write_images(req, message);
    if (config_.send_tokens) write_prompt_images(req, i, message);
  }
  if (batch.forward_mode == proto::TARGET_VERIFY) {
    message.set_num_draft_tokens(config_.speculation.num_draft_tokens);
    for (std::size_t i = 0; i < batch.accept_lens.size(); ++i) {
      message.add_accept_req_pool_indices(batch.reqs[i]->cache.row);
      message.add_accept_lens(batch.accept_lens[i]);
    }
  }
  if (config_.send_tokens) write_tokens(batch, message);
  if (config_.speculation.computed && config_.speculation.has_draft_model()) write_next_token(batch, message);
  if (pool_.states() != nullptr) pool_.states()->flush(batch.reqs, batch.num_extend, message);
  pool_.flush_edits(message);
}

void Scheduler::write_idle_batch(std::uint32_t capture_bucket, proto::ForwardBatch& message) {
  message.Clear();
  message.set_version(kForwardBatchVersion);
  message.set_forward_mode(proto::IDLE);
  message.set_capture_bucket(capture_bucket);
  pool_.flush_edits(message);
}

}  // namespace tpsim::scheduler
