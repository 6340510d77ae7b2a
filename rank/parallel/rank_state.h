// What a rank knows of the requests that it serves: the request-to-page table, the decode set, and how much
// of its KV pool they hold. It is kept from the deltas of ForwardBatch alone (see proto/forward.proto), so
// every rank of a deployment that applies the same stream holds the same state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/backend.h"
#include "kvcache/pools/page_run.h"
#include "kvcache/req_to_token_pool.h"
#include "proto/base/zeroed_array.h"
#include "proto/forward.pb.h"

namespace tpsim::rank {

struct RankStateConfig {
  std::uint32_t rank = 0;                // named in errors
  std::uint32_t page_size = 1;           // tokens
  std::uint32_t num_pages = 0;           // page numbers are below this
  std::uint64_t kv_bytes_per_token = 0;  // of this rank, all its layers
  std::uint32_t max_requests = 65535;    // rows of the table, at most 65535
  bool check = false;                    // look at every implicit page in every pass
};

// How often each page of a pool is named. Long runs of pages come and go with every request, so 64 neighbours
// are a block: a run counts once for each block that it covers, and page by page at its two ends only. Counts
// of single pages are kept of blocks that have some, a few hundred of a pool's ten thousands: a thousand
// replicas of a fleet have a pool each.
//
// Invariants: a page is named as often as its own count and its block's say together; named_ of a block is
// the number of its pages whose own count is not 0, and where it is 0 the block has no counts of its own.
class PageCounts {
 public:
  // REQUIRES: no page is ever named more than 65535 times.
  explicit PageCounts(std::uint32_t num_pages) : num_pages_(num_pages) {}

  // One more for each page of `run`. Returns how many of them had none. REQUIRES: the run lies in the pool.
  std::uint32_t add(kvcache::PageRun run);
  // One less. Returns how many have none now. REQUIRES: all have one.
  std::uint32_t remove(kvcache::PageRun run);

  template <typename Archive>
  void serialize(Archive& archive) {
    const std::uint32_t blocks = num_pages_ / kBlock + 1;
    archive.array(blocks_, blocks);
    archive.array(named_, blocks);
    archive.array(own_, blocks);
    archive(counts_, free_);
  }

 private:
  static constexpr std::uint32_t kBlock = 64;

  std::uint32_t add_pages(std::uint32_t first, std::uint32_t count);
  std::uint32_t add_blocks(std::uint32_t first, std::uint32_t count);
  std::uint32_t remove_pages(std::uint32_t first, std::uint32_t count);
  std::uint32_t remove_blocks(std::uint32_t first, std::uint32_t count);

  // Of the pages of `block`; all 0 where it had none.
  std::uint16_t* own(std::uint32_t block);
  // `zeros` more pages of `block` have none of their own.
  void unname(std::uint32_t block, std::uint32_t zeros);

  std::uint32_t num_pages_;
  // Of each block; made with the first page.
  ZeroedArray<std::uint16_t> blocks_;
  ZeroedArray<std::uint16_t> named_;
  ZeroedArray<std::uint32_t> own_;     // where in counts_ its pages' own are, after one; 0: it has none
  std::vector<std::uint16_t> counts_;  // kBlock of each block that has some
  std::vector<std::uint32_t> free_;    // places in counts_, after one, that no block has
};

// Invariants: a request is at most once in the decode set; decode_set()[i] has decode_seq_lens()[i] tokens,
// all of which its pages cover; held_pages() is the number of distinct pages named by rows in use.
//
// A row is in use from its first extend until its request leaves the decode set; a request that ends with
// its prefill never joins, and its row falls out of use at the next decode pass that does not join it.
//
// Pages that a decoding request took implicitly are counted as its own until it leaves: as in SGLang, nobody
// shares what a request generates before it has finished. (Otherwise held_pages() would be too high, nothing
// else.)
//
// A batch that breaks the rules of proto/forward.proto throws UserError with its sequence number and the
// rank; the state is then no longer usable.
class RankState {
 public:
  // Largest pool, in tokens: slots are counted in 31 bits, and page numbers go up to a quarter beyond the
  // pool (kvcache::PageAllocator::with_slack()).
  static constexpr std::uint64_t kMaxTokens = UINT32_MAX / 2 / 5 * std::uint64_t{4};

  // REQUIRES: page_size >= 1, max_requests <= 65535, num_pages * page_size < 2^31.
  explicit RankState(const RankStateConfig& config);

  // More than any pipeline has.
  static constexpr std::uint32_t kMaxMicroBatches = 4096;

  // Applies `batch` and returns the pass as kernels see it. The spans are valid until the next apply() and
  // for as long as `batch` is. A steady decode step allocates nothing.
  attention::ForwardMetadata apply(const proto::ForwardBatch& batch);

  // Numeric execution of speculative decoding: how many tokens each member of the decode set, in its order,
  // keeps of the TARGET_VERIFY pass applied last. REQUIRES: that pass named no accept_lens.
  void accept(std::span<const std::uint32_t> accept_lens);

  // As new, but for peak_held_pages().
  void restart();

  std::uint64_t next_sequence_number() const { return next_sequence_number_; }
  // Of the micro-batch that ran last.
  std::span<const std::uint32_t> decode_set() const { return sets_[micro_batch_].rows; }
  std::span<const std::uint32_t> decode_seq_lens() const { return sets_[micro_batch_].seq_lens; }
  // Pages of row `row`, those that a decoding request took implicitly included.
  std::vector<kvcache::PageRun> pages(std::uint32_t row) const;

  std::uint64_t held_pages() const { return held_pages_; }
  std::uint64_t peak_held_pages() const { return peak_held_pages_; }
  std::uint64_t peak_held_bytes() const;

  template <typename Archive>
  void serialize(Archive& archive) {
    archive(next_sequence_number_, table_, rows_, pending_rows_, sets_, micro_batch_, verify_lens_, accepted_,
            references_, held_pages_, peak_held_pages_);
  }

 private:
  struct Row {
    std::uint32_t seq_len = 0;      // while not decoding
    std::uint32_t micro_batch = 0;  // that extended it last
    bool held = false;              // its pages are counted in references_
    bool pending = false;           // extended, not yet joined
    bool decoding = false;          // in the set of its micro-batch
    std::uint64_t last_extend = 0;  // sequence number + 1 of the pass that extended it last
  };

  template <typename... Args>
  [[noreturn]] void refuse(const char* format, const Args&... args) const;

  void check_header(const proto::ForwardBatch& batch) const;
  void check_extend(const proto::ForwardBatch& batch);
  void apply_table_edits(const proto::ForwardBatch& batch);
  struct DecodeSet;
  void close_ranks(DecodeSet& set);
  void apply_leaves(const proto::ForwardBatch& batch);
  void check_arrived(const proto::ForwardBatch& batch);
  void apply_arrived(const proto::ForwardBatch& batch);
  void apply_joins(const proto::ForwardBatch& batch);
  void apply_extend(const proto::ForwardBatch& batch);
  void check_edited_members(const proto::ForwardBatch& batch) const;
  void decode_one_token();
  void verify(const proto::ForwardBatch& batch, attention::ForwardMetadata& metadata);
  void settle_verified();
  void drop_pending();
  void check_implicit_pages() const;

  // The row of a pool index, made on first use. Throws where the index is beyond max_requests.
  Row& row_at(std::uint32_t index);
  // Of the row that stands at `position` of its decode set.
  std::uint32_t implicit_pages(std::uint32_t row, std::uint32_t position) const;
  void materialise(std::uint32_t row, std::uint32_t position);
  void cut(std::uint32_t row, std::uint32_t num_pages);
  void hold(std::uint32_t row);
  void release(std::uint32_t row);

  RankStateConfig config_;
  std::uint64_t next_sequence_number_ = 0;
  kvcache::ReqToTokenPool table_;  // explicit pages; rows_ and it have the same rows
  std::vector<Row> rows_;
  std::vector<std::uint32_t> pending_rows_;
  std::vector<kvcache::PageRun> scratch_;

  // A decode set in its order, as parallel arrays.
  struct DecodeSet {
    std::vector<std::uint32_t> rows;
    std::vector<std::uint32_t> seq_lens;
    // Tokens that the pages cover. Pages that a member takes implicitly are only counted here, and written
    // into its row when somebody asks for them (an edit, its leave).
    std::vector<std::uint32_t> covered;
    std::uint32_t first_left = UINT32_MAX;  // the first position whose member leaves it in this batch

    template <typename Archive>
    void serialize(Archive& archive) {
      archive(rows, seq_lens, covered, first_left);
    }
  };
  // Where `row` stands in its decode set: the one looked for is mostly the oldest. REQUIRES: it decodes.
  std::uint32_t position_of(std::uint32_t row) const;
  DecodeSet& set_of(const Row& row) { return sets_[row.micro_batch]; }
  const DecodeSet& set_of(const Row& row) const { return sets_[row.micro_batch]; }

  std::vector<DecodeSet> sets_ = std::vector<DecodeSet>(1);  // of each micro-batch that ever ran
  std::uint32_t micro_batch_ = 0;                            // that runs

  // Of the TARGET_VERIFY pass applied last, until the next pass: new tokens of each member, and how many of
  // them it keeps (empty: nothing is owed).
  std::vector<std::uint32_t> verify_lens_;
  std::vector<std::uint32_t> accepted_;

  PageCounts references_;  // of each page by rows in use
  std::uint64_t held_pages_ = 0;
  std::uint64_t peak_held_pages_ = 0;
};

}  // namespace tpsim::rank
