// What an attention backend is to the rest of tpsim, in the words of SGLang's "steps to add a backend".
//
// One object serves all ranks of a process whose shards have the same shapes: requests are not sharded, so
// their plans are the same. Once per forward pass the caller calls init_forward_metadata() (eager) or
// init_forward_metadata_replay_cuda_graph() (captured decode): this is where the plan is made, the tiles and
// KV splits that the kernel would run for exactly this batch. forward_extend() / forward_decode() follow once
// per kind of layer; the cost of the plan on one GPU comes back.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string_view>

#include "attention/forward_metadata.h"
#include "attention/layer_shape.h"
#include "attention/mla_extend.h"
#include "attention/plan.h"
#include "attention/sparse_kernels.h"

namespace tpsim {
class StateReader;
class StateWriter;
}  // namespace tpsim

namespace tpsim::attention {

// Cost of one call of one layer on one GPU.
struct KernelCost {
  double seconds = 0;          // on the device, launches not included
  double flops = 0;            // arithmetic that the plan really does (masked tiles included)
  double bytes = 0;            // device memory traffic
  std::uint32_t launches = 0;  // kernels launched

  KernelCost& operator+=(const KernelCost& other) {
    seconds += other.seconds;
    flops += other.flops;
    bytes += other.bytes;
    launches += other.launches;
    return *this;
  }
};

// What an eager pass costs the host, which issues its kernels one after another in Python.
struct HostCost {
  double launch_seconds = 0;  // of one of the backend's own kernels; 0 = as any other kernel
  double once_seconds = 0;    // in the pass, besides launches
  // The host waits for the device before each layer's attention, so that its attention calls do not hide
  // behind the kernels before them.
  bool synchronous = false;
};

// Which kernel carries out the plans of a backend.
enum class KernelKind : std::uint8_t {
  kPaged,     // online softmax over pages; parts of the KV range are merged
  kGathered,  // K and V of a request are gathered into dense arrays, then plain softmax
  kSparse,    // online softmax over the tokens that an indexer chose
};

class AttentionBackend {
 public:
  AttentionBackend() = default;
  AttentionBackend(const AttentionBackend&) = delete;
  AttentionBackend& operator=(const AttentionBackend&) = delete;
  virtual ~AttentionBackend() = default;

  // SGLang's spelling: "fa3", "flashinfer", or "fa3+flashinfer" for a hybrid pair (prefill+decode).
  virtual std::string_view name() const = 0;

  // Once, before any pass: room for graphs of up to `max_bs` requests.
  virtual void init_cuda_graph_state(std::uint32_t max_bs) = 0;
  // Once per captured batch size.
  virtual void init_forward_metadata_capture_cuda_graph(std::uint32_t bs) = 0;
  // Once per replayed decode. REQUIRES: metadata.capture_bucket was captured; mode DECODE, or TARGET_VERIFY
  // or DRAFT_EXTEND, which forward_extend() then prices.
  virtual void init_forward_metadata_replay_cuda_graph(const ForwardMetadata& metadata) = 0;
  // Once per eager pass. The spans must stay valid until the pass's last forward_* call.
  virtual void init_forward_metadata(const ForwardMetadata& metadata) = 0;

  // MLA models: how the layers of the extend planned last attend. forward_extend() and extend_plan() then
  // take a shape of that form: kMlaAbsorbed, or kMlaExpanded for the other methods.
  virtual MlaExtend mla_extend() const { return {}; }
  // Whether a tree of drafts is attended in two kernels, one over the prefix that all branches of a request
  // share and one over the drafts; else its branches read the prefix each for itself, as requests of their
  // own do.
  virtual bool cascades() const { return false; }
  // Gemma 3: whether an extend takes a mask that shows the tokens of an image later ones of it. Of a pair
  // never: SGLang asks for the very backend.
  virtual bool masks_images() const { return false; }
  // Of a pair, before any pass: which half verifies drafts (--speculative-attention-mode).
  virtual void set_verifies_with_prefill(bool) {}
  // Before the first pass.
  virtual void set_mla_options(const MlaOptions&) {}

  // Per layer: the extend part, and the decode part, of the batch that was planned last.
  virtual KernelCost forward_extend(const LayerShape& layer) = 0;
  virtual KernelCost forward_decode(const LayerShape& layer) = 0;

  // For numeric execution: the plan of the pass planned last, which kernel() carries out. Valid until the
  // next call of either. Backends that only price throw std::logic_error.
  virtual KernelKind kernel() const { return KernelKind::kPaged; }
  virtual const DecodePlan& decode_plan(const LayerShape&) { throw std::logic_error("no plan of a decode"); }
  virtual const ExtendPlan& extend_plan(const LayerShape&) { throw std::logic_error("no plan of an extend"); }
  // kSparse: the plan of the pass planned last, new and decoding tokens alike.
  virtual const SparsePlan& sparse_plan(const LayerShape&) { throw std::logic_error("no plan of lists"); }
  // Sparse attention: before the first pass.
  virtual void set_sparse_options(const SparseOptions&) {}

  // Device time of the plan itself (kernels that build metadata), once per pass.
  virtual KernelCost plan_cost() const = 0;
  // Host time of the plan, seconds; it delays an eager launch.
  virtual double plan_host_seconds() const = 0;
  // Of the eager pass planned last.
  virtual HostCost host_cost() const { return {}; }

  // What its answers depend on of the passes before, for a checkpoint (proto/base/archive.h); most look at
  // one pass alone.
  virtual void save(StateWriter&) const {}
  virtual void load(StateReader&) {}
};

}  // namespace tpsim::attention
