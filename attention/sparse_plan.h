// What the kernels of sparse attention would run for one batch. Every query token attends the `top_k` tokens
// that the indexer scored highest among those before it (and itself), or all of them while there are no more.
//
// Source: SGLang 0.5.23, layers/attention/dsa_backend.py: each query token is a sequence of its own, whose KV
// is a list of slots (page tables with pages of one token); kernels walk the list in steps.
#pragma once

#include <cstdint>
#include <vector>

namespace tpsim::attention {

// q_len query tokens of one request after `prefix` tokens that are stored already.
struct SparseItem {
  std::uint32_t request = 0;  // position in the batch
  std::uint32_t prefix = 0;
  std::uint32_t q_len = 0;
};

struct SparsePlan {
  std::vector<SparseItem> items;
  std::uint32_t top_k = 0;
  std::uint32_t block = 64;  // listed tokens of one step of the kernel's loop
  std::uint32_t part = 0;    // listed tokens of one part; parts are merged. 0: a list is one part
  std::uint32_t rows = 0;    // query heads that the arithmetic is done for, padding included
  bool whole_list = false;   // the kernel walks all top_k places, also those that hold no token
};

// What a plan's price depends on, summed over its items.
struct SparseLoad {
  double requests = 0;
  double queries = 0;              // query tokens
  double listed = 0;               // tokens of their lists
  double distinct = 0;             // of them, those that no other query token of the request has listed
  std::uint32_t longest_list = 0;  // places that the kernel walks for one query token
  double walked = 0;               // places walked, those without a token included
  double stored = 0;               // tokens of the requests
  double scored = 0;               // logits of the indexer
  double searching = 0;            // query tokens whose row of logits is searched
  double searched = 0;             // logits of those rows
  std::uint32_t longest_row = 0;   // of those rows
};
SparseLoad load_of(const SparsePlan& plan);

}  // namespace tpsim::attention
