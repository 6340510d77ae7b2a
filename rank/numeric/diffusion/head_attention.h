// Attention of diffusion transformers, computed: what a backend of attention/diffusion really does to a head
// of one sample. One file a backend that is more than dense; the list is in head_attention.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "attention/diffusion/backend.h"
#include "attention/diffusion/grid.h"
#include "attention/math/softmax_part.h"
#include "rank/linear/thread_pool.h"

namespace tpsim::rank {

// Rows of one head, `stride` floats apart.
struct HeadRows {
  const float* rows = nullptr;
  std::uint32_t count = 0;
  std::size_t stride = 0;
  const float* row(std::uint32_t i) const { return rows + i * stride; }
};

struct HeadCall {
  HeadRows q, k, v;
  std::uint32_t dim = 0;
  // Of self-attention, the video's tokens as a grid (latent frames, rows, columns after patching); the head
  // has all of them.
  attention::GridSize grid{};
  std::uint32_t layer = 0, step = 0;  // of the transformer, of the denoising loop
};

// Pairs of queries and keys that were there, and those that a backend computed.
struct KeptPairs {
  std::uint64_t all = 0, kept = 0;
  // All of so many that were there.
  void keep(std::uint64_t pairs) { all += pairs, kept += pairs; }
};

struct HeadBackend {
  std::string_view name{};  // a DiffusionBackend's
  // Which keys a query meets: [q.count, k.count], nonzero where it does. Null: all.
  std::vector<std::uint8_t> (*select)(const HeadCall& call,
                                      const attention::DiffusionParameters& parameters) = nullptr;
  // out [q.count, dim]: softmax(q k^T / sqrt(dim)) v as the backend rounds it, of all keys. Null: not
  // rounded.
  void (*rounded)(const HeadCall& call, float* out) = nullptr;
  bool dense() const { return select == nullptr && rounded == nullptr; }

  // out [q.count, dim]: what the backend makes of a head; adds to `pairs`.
  void attend(const HeadCall& call, const attention::DiffusionParameters& parameters, float* out,
              KeptPairs& pairs) const;
};

// Those that are computed, a dense one first.
std::span<const HeadBackend* const> head_backends();
// Of a DiffusionBackend's name. Throws UserError naming `flag` where it is not computed.
const HeadBackend& find_head_backend(std::string_view flag, std::string_view name);

// The softmax over the keys of `call`, not yet divided: parts over other keys may be added (ring attention).
// `keeps`: empty, or [q.count, k.count], nonzero where a query sees a key.
void dense_part(const HeadCall& call, std::span<const std::uint8_t> keeps, attention::SoftmaxPart& part);
// Of all heads, rows [count, heads x dim], over keys that the rank has itself.
std::vector<float> dense_heads(const std::vector<float>& q, const std::vector<float>& k,
                               const std::vector<float>& v, std::uint32_t heads, std::uint32_t dim,
                               ThreadPool& pool);
// out [rows, v_dim]
void divide(const attention::SoftmaxPart& part, float* out);

}  // namespace tpsim::rank
