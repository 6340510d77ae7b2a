// Which attention backends a deployment runs, on which pages and which KV format: what the user said, and for
// the rest what SGLang would take for this device and model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attention/mla_extend.h"
#include "attention/selection/registry.h"
#include "attention/sparse_kernels.h"
#include "launch/deployment/hicache.h"
#include "launch/deployment/subject.h"
#include "launch/flags/server_args.h"
#include "proto/base/number_format.h"
#include "proto/hardware.pb.h"
#include "rank/config/model_config.h"
#include "rank/config/shard.h"

namespace tpsim::launch {

// --hardware; where it is open, the device whose plans numeric execution takes.
std::string hardware_name(const ServerArgs& args);
attention::GpuGeneration generation_of(const proto::HardwareProfile& hardware);
// What device and model ask of a backend.
attention::Selection selection_of(const proto::HardwareProfile& hardware, const rank::ModelConfig& model);

struct AttentionChoice {
  BackendPair backends;
  NumberFormat kv_format = NumberFormat::kBf16;
  std::uint32_t page_size = 1;
  attention::MlaOptions mla;
  HiCacheIo hicache;
  bool profiled_qwen3_vl = false;  // SGLang takes what it profiled for Qwen3-VL on a large Hopper GPU
  Notes notes;                     // what was chosen where the user left it open, a sentence each
  Notes warnings;                  // what was changed of what the user said
};
// `compared`: the pair of `tpsim compare`, in place of the flags that name backends. Throws UserError with
// the sentence of what cannot be carried out.
AttentionChoice choose_attention(const ServerArgs& args, const BackendPair* compared,
                                 const proto::HardwareProfile& hardware, const rank::ModelConfig& model);
// The attention backend of a model that drafts: --speculative-draft-attention-backend over `backend`; its
// name as the list spells it. Throws UserError where it cannot draft.
std::string choose_draft_backend(const ServerArgs& args, const proto::HardwareProfile& hardware,
                                 const rank::ModelConfig& draft, std::uint32_t page_size, std::uint32_t topk,
                                 const std::string& backend);

// Of models with sparse attention: its kernels, and what they want stored.
struct SparseAttention {
  attention::SparseOptions options;
  std::uint32_t token_bytes = 0;  // of one stored latent; 0: as kv_format has it
};
SparseAttention choose_sparse_attention(const ServerArgs& args, const proto::HardwareProfile& hardware,
                                        const rank::ModelConfig& model, NumberFormat kv_format,
                                        const rank::ParallelLayout& layout);

void write_attention(const ServerArgs& args, const rank::ModelConfig& model, const AttentionChoice& choice,
                     const SparseAttention& sparse, Rows& rows);

// The same for one pair, without an exception: its obstacle, or the page size that it would run on.
struct PairVerdict {
  std::string obstacle;  // empty: it runs
  std::uint32_t page_size = 1;
  std::string page_note;
  NumberFormat kv_format = NumberFormat::kBf16;
};
PairVerdict judge_pair(const ServerArgs& args, const BackendPair& pair, const std::string& flag,
                       const proto::HardwareProfile& hardware, const rank::ModelConfig& model);
// Whether the release asked for dropped a backend that earlier ones have.
bool release_lacks(const ServerArgs& args, const std::string& backend);

}  // namespace tpsim::launch
