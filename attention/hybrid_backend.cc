#include "attention/hybrid_backend.h"

#include <utility>

namespace tpsim::attention {

HybridAttnBackend::HybridAttnBackend(std::unique_ptr<AttentionBackend> prefill,
                                     std::unique_ptr<AttentionBackend> decode)
    : name_(std::string(prefill->name()) + "+" + std::string(decode->name())),
      prefill_(std::move(prefill)),
      decode_(std::move(decode)),
      active_(prefill_.get()) {}

void HybridAttnBackend::init_forward_metadata_replay_cuda_graph(const ForwardMetadata& metadata) {
  active_ = decode_.get();
  active_->init_forward_metadata_replay_cuda_graph(metadata);
}

// A mixed batch is an extend batch.
void HybridAttnBackend::init_forward_metadata(const ForwardMetadata& metadata) {
  active_ = metadata.forward_mode == proto::DECODE ? decode_.get() : prefill_.get();
  active_->init_forward_metadata(metadata);
}

}  // namespace tpsim::attention
