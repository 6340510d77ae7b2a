#include "attention/selection/hybrid_backend.h"

#include <utility>

namespace tpsim::attention {

HybridAttnBackend::HybridAttnBackend(std::unique_ptr<AttentionBackend> prefill,
                                     std::unique_ptr<AttentionBackend> decode)
    : name_(std::string(prefill->name()) + "+" + std::string(decode->name())),
      prefill_(std::move(prefill)),
      decode_(std::move(decode)),
      active_(prefill_.get()) {}

// A mixed batch is an extend batch.
AttentionBackend* HybridAttnBackend::half_for(proto::ForwardMode mode) const {
  const bool decodes = mode == proto::DECODE || (verifies_drafts(mode) && !verifies_with_prefill_);
  return decodes ? decode_.get() : prefill_.get();
}

void HybridAttnBackend::init_forward_metadata_replay_cuda_graph(const ForwardMetadata& metadata) {
  active_ = half_for(metadata.forward_mode);
  active_->init_forward_metadata_replay_cuda_graph(metadata);
}

void HybridAttnBackend::init_forward_metadata(const ForwardMetadata& metadata) {
  active_ = half_for(metadata.forward_mode);
  active_->init_forward_metadata(metadata);
}

}  // namespace tpsim::attention
