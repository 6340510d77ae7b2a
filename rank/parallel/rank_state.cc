#include "rank/parallel/rank_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/widest_vectors.h"
#include "proto/versions.h"

namespace tpsim::rank {

using kvcache::PageRun;
using proto::ForwardBatch;

template <typename... Args>
void RankState::refuse(const char* format, const Args&... args) const {
  throw UserError(fmt::format("rank {}: batch {} is refused: {}", config_.rank, next_sequence_number_,
                              fmt::format(fmt::runtime(format), args...)));
}

RankState::RankState(const RankStateConfig& config) : config_(config), references_(config.num_pages) {
  if (config.page_size == 0 || config.max_requests > UINT16_MAX ||
      std::uint64_t{config.num_pages} * config.page_size > UINT32_MAX / 2) {
    throw std::invalid_argument("RankState: page size 0, more than 65535 rows, or more than 2^31 tokens");
  }
}

void RankState::restart() {
  const std::uint64_t peak = peak_held_pages_;
  *this = RankState(RankStateConfig(config_));
  peak_held_pages_ = peak;
}

attention::ForwardMetadata RankState::apply(const ForwardBatch& batch) {
  check_header(batch);
  if (!accepted_.empty()) settle_verified();
  attention::ForwardMetadata metadata;
  if (batch.end_of_run()) {
    ++next_sequence_number_;
    return metadata;
  }
  micro_batch_ = batch.micro_batch();
  if (micro_batch_ >= sets_.size()) sets_.resize(std::size_t{micro_batch_} + 1);
  const proto::ForwardMode mode = batch.forward_mode();
  const bool extends = mode == proto::EXTEND || mode == proto::MIXED;
  const bool decodes = mode == proto::DECODE || mode == proto::MIXED;  // one token for each member
  if (extends) check_extend(batch);
  if (batch.arrived_rows_size() != 0) check_arrived(batch);
  const bool edits = batch.table_req_size() != 0 || batch.run_first_page_size() != 0;
  if (edits) apply_table_edits(batch);
  if (batch.decode_leave_size() != 0) apply_leaves(batch);
  if (batch.arrived_rows_size() != 0) apply_arrived(batch);
  if (batch.decode_join_size() != 0) apply_joins(batch);
  if (extends) apply_extend(batch);
  if (edits) check_edited_members(batch);
  if (decodes) {
    if (!pending_rows_.empty()) drop_pending();
    decode_one_token();
    if (config_.check) check_implicit_pages();
  }
  peak_held_pages_ = std::max(peak_held_pages_, held_pages_);

  metadata.forward_mode = mode;
  metadata.capture_bucket = batch.capture_bucket();
  metadata.image_mask = mode == proto::EXTEND && batch.image_prompts();
  if (extends) {
    metadata.extend_prefix_lens = {batch.extend_prefix_lens().data(),
                                   static_cast<std::size_t>(batch.extend_prefix_lens_size())};
    metadata.extend_lens = {batch.extend_lens().data(), static_cast<std::size_t>(batch.extend_lens_size())};
  }
  if (decodes) metadata.decode_seq_lens = decode_seq_lens();
  for (const std::uint32_t from : batch.state_copy_from())
    ++(from == 0 ? metadata.state_clears : metadata.state_copies);
  metadata.state_snapshots = static_cast<std::uint32_t>(batch.state_snapshot_slots_size());
  if (mode == proto::TARGET_VERIFY) {
    if (!pending_rows_.empty()) drop_pending();
    verify(batch, metadata);
  }
  if (mode == proto::DECODE) {
    const std::size_t decoding = decode_set().size();
    if (decoding == 0) refuse("it decodes, but the decode set is empty");
    if (batch.capture_bucket() != 0 && batch.capture_bucket() < decoding)
      refuse("its capture bucket is {}, but {} requests decode", batch.capture_bucket(), decoding);
  }
  ++next_sequence_number_;
  return metadata;
}

void RankState::check_header(const ForwardBatch& batch) const {
  if (batch.version() != kForwardBatchVersion) {
    refuse("its version is {}, this program reads version {}", batch.version(), kForwardBatchVersion);
  }
  if (batch.sequence_number() != next_sequence_number_) {
    refuse("its sequence number is {}, batches must be consecutive", batch.sequence_number());
  }
  if (batch.micro_batch() >= kMaxMicroBatches)
    refuse("it is of micro-batch {}, at most {} take turns", batch.micro_batch(), kMaxMicroBatches);
  switch (batch.forward_mode()) {
    case proto::EXTEND:
    case proto::MIXED:
      if (batch.capture_bucket() != 0) refuse("only DECODE and TARGET_VERIFY replay a captured graph");
      break;
    case proto::DECODE:
    case proto::TARGET_VERIFY:
    case proto::IDLE:
      if (batch.extend_req_pool_indices_size() + batch.extend_prefix_lens_size() + batch.extend_lens_size() !=
          0) {
        refuse("a {} batch has no extend part", proto::ForwardMode_Name(batch.forward_mode()));
      }
      break;
    default:
      refuse("forward mode {} is not one of EXTEND, DECODE, MIXED, TARGET_VERIFY and IDLE",
             static_cast<int>(batch.forward_mode()));
  }
}

// Looks at the extend part before anything changes: leaves need to know which rows it names.
void RankState::check_extend(const ForwardBatch& batch) {
  const int count = batch.extend_req_pool_indices_size();
  if (count == 0 || batch.extend_prefix_lens_size() != count || batch.extend_lens_size() != count) {
    refuse("its extend part has {} requests, {} prefix lengths and {} extend lengths", count,
           batch.extend_prefix_lens_size(), batch.extend_lens_size());
  }
  for (const std::uint32_t index : batch.extend_req_pool_indices()) {
    Row& row = row_at(index);
    if (row.last_extend == next_sequence_number_ + 1) refuse("request {} is extended twice", index);
    row.last_extend = next_sequence_number_ + 1;
  }
}

void RankState::apply_table_edits(const ForwardBatch& batch) {
  const int count = batch.table_req_size();
  const int num_runs = batch.run_first_page_size();
  if (batch.table_start_page_size() != count || batch.table_num_runs_size() != count ||
      batch.run_num_pages_size() != num_runs) {
    refuse("its table edits have arrays of different lengths");
  }
  int next_run = 0;
  for (int i = 0; i < count; ++i) {
    const std::uint32_t index = batch.table_req(i);
    const Row& row = row_at(index);
    if (row.decoding) materialise(index, position_of(index));
    if (batch.table_start_page(i) > table_.num_pages(index)) {
      refuse("row {} has {} pages and cannot be cut to {}", index, table_.num_pages(index),
             batch.table_start_page(i));
    }
    cut(index, batch.table_start_page(i));
    if (batch.table_num_runs(i) > static_cast<std::uint32_t>(num_runs - next_run)) {
      refuse("its table edits name more page runs than the {} it has", num_runs);
    }
    for (std::uint32_t r = 0; r < batch.table_num_runs(i); ++r, ++next_run) {
      const PageRun run{batch.run_first_page(next_run), batch.run_num_pages(next_run)};
      if (run.count == 0 || run.count > config_.num_pages || run.first > config_.num_pages - run.count) {
        refuse("pages {}+{} of row {} are not in a pool of {} pages", run.first, run.count, index,
               config_.num_pages);
      }
      if (table_.num_pages(index) > config_.num_pages - run.count) {
        refuse("row {} names a page twice", index);
      }
      table_.append(index, run);
      if (row.held) held_pages_ += references_.add(run);
    }
    if (row.decoding) {
      set_of(row).covered[position_of(index)] = table_.num_pages(index) * config_.page_size;
    }
  }
  if (next_run != num_runs) refuse("it has {} page runs, its table edits use {}", num_runs, next_run);
}

void RankState::apply_leaves(const ForwardBatch& batch) {
  for (const std::uint32_t index : batch.decode_leave()) {
    Row& row = row_at(index);
    if (!row.decoding) {
      refuse("request {} leaves the decode set, but is not in it", index);
    }
    const std::uint32_t position = position_of(index);
    materialise(index, position);
    DecodeSet& set = set_of(row);
    row.seq_len = set.seq_lens[position];
    set.rows[position] = UINT32_MAX;  // taken out below
    set.first_left = std::min(set.first_left, position);
    row.decoding = false;
    // Edits come first: a row that this very batch extends already belongs to its next request.
    if (row.last_extend != next_sequence_number_ + 1) release(index);
  }
  for (DecodeSet& set : sets_) {
    if (set.first_left != UINT32_MAX) close_ranks(set);
  }
}

void RankState::close_ranks(DecodeSet& set) {
  std::size_t kept = std::exchange(set.first_left, UINT32_MAX);
  const std::size_t count = set.rows.size();
  for (std::size_t i = kept; i < count;) {
    if (set.rows[i] == UINT32_MAX) {
      ++i;
      continue;
    }
    // Those up to the next that left move as one.
    const auto first = set.rows.begin() + static_cast<std::ptrdiff_t>(i);
    const auto moved = static_cast<std::size_t>(std::find(first, set.rows.end(), UINT32_MAX) - first);
    for (std::vector<std::uint32_t>* of : {&set.rows, &set.seq_lens, &set.covered})
      std::memmove(of->data() + kept, of->data() + i, moved * sizeof(std::uint32_t));
    i += moved;
    kept += moved;
  }
  set.rows.resize(kept);
  set.seq_lens.resize(kept);
  set.covered.resize(kept);
}

// As check_extend(): such a row already belongs to its next request.
void RankState::check_arrived(const ForwardBatch& batch) {
  if (batch.arrived_lens_size() != batch.arrived_rows_size())
    refuse("KV of {} rows has arrived, with {} lengths", batch.arrived_rows_size(),
           batch.arrived_lens_size());
  for (const std::uint32_t index : batch.arrived_rows())
    row_at(index).last_extend = next_sequence_number_ + 1;
}

void RankState::apply_arrived(const ForwardBatch& batch) {
  for (int i = 0; i < batch.arrived_rows_size(); ++i) {
    Row& row = row_at(batch.arrived_rows(i));
    if (row.decoding) refuse("KV of request {} arrives while it decodes", batch.arrived_rows(i));
    row.seq_len = batch.arrived_lens(i);
    row.micro_batch = micro_batch_;
  }
}

void RankState::apply_joins(const ForwardBatch& batch) {
  for (const std::uint32_t index : batch.decode_join()) {
    Row& row = row_at(index);
    if (row.decoding) refuse("request {} joins the decode set twice", index);
    if (row.seq_len == 0) refuse("request {} joins the decode set, but was never extended", index);
    if (std::uint64_t{table_.num_pages(index)} * config_.page_size < row.seq_len) {
      refuse("request {} joins with {} tokens, but its {} pages of {} tokens do not cover them", index,
             row.seq_len, table_.num_pages(index), config_.page_size);
    }
    if (!row.held) hold(index);
    row.pending = false;
    DecodeSet& set = set_of(row);
    row.decoding = true;
    set.rows.push_back(index);
    set.seq_lens.push_back(row.seq_len);
    set.covered.push_back(table_.num_pages(index) * config_.page_size);
  }
}

void RankState::apply_extend(const ForwardBatch& batch) {
  for (int i = 0; i < batch.extend_lens_size(); ++i) {
    const std::uint32_t index = batch.extend_req_pool_indices(i);
    Row& row = row_at(index);
    const std::uint64_t length = std::uint64_t{batch.extend_prefix_lens(i)} + batch.extend_lens(i);
    if (row.decoding) refuse("request {} is extended while it decodes", index);
    if (batch.extend_lens(i) == 0) refuse("request {} is extended by no token", index);
    if (length > std::uint64_t{table_.num_pages(index)} * config_.page_size || length > UINT32_MAX) {
      refuse("request {} is extended to {} tokens, but its {} pages of {} tokens do not cover them", index,
             length, table_.num_pages(index), config_.page_size);
    }
    row.seq_len = static_cast<std::uint32_t>(length);
    row.micro_batch = micro_batch_;
    if (!row.held) hold(index);
    if (!row.pending) {
      row.pending = true;
      pending_rows_.push_back(index);
    }
  }
}

// An edit may cut a member's row only if what it appends covers the member's tokens again.
void RankState::check_edited_members(const ForwardBatch& batch) const {
  for (const std::uint32_t index : batch.table_req()) {
    const Row& row = rows_[index];
    if (!row.decoding) continue;
    const DecodeSet& set = set_of(row);
    const std::uint32_t position = position_of(index);
    if (set.covered[position] < set.seq_lens[position]) {
      refuse("request {} decodes with {} tokens, but its row was cut to {} pages of {} tokens", index,
             set.seq_lens[position], table_.num_pages(index), config_.page_size);
    }
  }
}

// One more token for every member; one without room takes the page after its last. This is the loop
// that runs at every decode step, so it is three plain arrays and no branch.
void RankState::decode_one_token() {
  DecodeSet& set = sets_[micro_batch_];
  // Lengths are below 2^31: signed comparisons are what vectors of every processor can do.
  const auto count = static_cast<std::int32_t>(set.rows.size());
  const auto page_size = static_cast<std::int32_t>(config_.page_size);
  std::uint32_t* const seq_lens = set.seq_lens.data();
  std::uint32_t* const covered = set.covered.data();
  const std::int32_t new_pages = in_widest_vectors([=]() TPSIM_LOOP {
    std::int32_t opened = 0;
    for (std::int32_t i = 0; i < count; ++i) {
      const auto length = static_cast<std::int32_t>(seq_lens[i] + 1);
      const auto room = static_cast<std::int32_t>(covered[i]);
      const std::int32_t needs_page = length > room ? 1 : 0;
      seq_lens[i] = static_cast<std::uint32_t>(length);
      covered[i] = static_cast<std::uint32_t>(room + (page_size & -needs_page));
      opened += needs_page;
    }
    return opened;
  });
  held_pages_ += static_cast<std::uint32_t>(new_pages);
}

// Checks that pages cover what is verified, and notes what each member keeps: it is added before the next
// pass, for the spans of this one must stay as they are.
void RankState::verify(const ForwardBatch& batch, attention::ForwardMetadata& metadata) {
  const DecodeSet& set = sets_[micro_batch_];
  const std::size_t count = set.rows.size();
  const std::uint32_t drafts = batch.num_draft_tokens();
  if (count == 0) refuse("it verifies, but the decode set is empty");
  if (batch.capture_bucket() != 0 && batch.capture_bucket() < count) {
    refuse("its capture bucket is {}, but {} requests are verified", batch.capture_bucket(), count);
  }
  if (drafts == 0) refuse("it verifies no token");
  for (std::size_t i = 0; i < count; ++i) {
    if (std::uint64_t{set.seq_lens[i]} + drafts <= set.covered[i]) continue;
    refuse("request {} verifies {} tokens after {}, but its pages cover {}", set.rows[i], drafts,
           set.seq_lens[i], set.covered[i]);
  }
  verify_lens_.assign(count, drafts);
  const int named = batch.accept_lens_size();
  if (batch.accept_req_pool_indices_size() != named ||
      (named != 0 && static_cast<std::size_t>(named) != count)) {
    refuse("{} requests are verified, it says what {} keep", count, named);
  }
  if (named != 0) accepted_.assign(count, 0);
  for (int i = 0; i < named; ++i) {
    const std::uint32_t index = batch.accept_req_pool_indices(i);
    const bool decodes = row_at(index).decoding;
    const auto here = static_cast<std::size_t>(i);  // where most are: both name them in the same order
    const std::size_t position = !decodes || set.rows[here] == index ? here : position_of(index);
    const std::uint32_t kept = batch.accept_lens(i);
    if (!decodes || accepted_[position] != 0)
      refuse("request {} keeps tokens twice, or does not decode", index);
    if (kept == 0 || kept > drafts) refuse("request {} keeps {} of {} tokens", index, kept, drafts);
    accepted_[position] = kept;
  }
  metadata.extend_prefix_lens = set.seq_lens;
  metadata.extend_lens = verify_lens_;
}

void RankState::accept(std::span<const std::uint32_t> accept_lens) {
  if (accept_lens.size() != decode_set().size() || !accepted_.empty())
    throw std::logic_error("RankState: tokens are accepted of requests that were not verified");
  accepted_.assign(accept_lens.begin(), accept_lens.end());
}

void RankState::settle_verified() {
  DecodeSet& set = sets_[micro_batch_];
  for (std::size_t i = 0; i < accepted_.size(); ++i) set.seq_lens[i] += accepted_[i];
  accepted_.clear();
}

// Rows that this micro-batch extended before its decode pass and that neither joined it nor are extended
// again: their requests ended with their prefill.
void RankState::drop_pending() {
  std::erase_if(pending_rows_, [&](std::uint32_t index) {
    Row& row = rows_[index];
    if (row.pending && row.last_extend == next_sequence_number_ + 1) return false;
    if (row.pending && row.micro_batch != micro_batch_) return false;
    if (row.pending) release(index);
    row.pending = false;
    return true;
  });
}

void RankState::check_implicit_pages() const {
  const std::span<const std::uint32_t> members = decode_set();
  for (std::uint32_t position = 0; position < members.size(); ++position) {
    const std::uint32_t index = members[position];
    const std::uint32_t implicit = implicit_pages(index, position);
    if (implicit != 0 && std::uint64_t{table_.last_page(index)} + implicit >= config_.num_pages) {
      refuse("request {} takes the page after its last one, which is beyond the pool of {} pages", index,
             config_.num_pages);
    }
  }
}

RankState::Row& RankState::row_at(std::uint32_t index) {
  if (index >= rows_.size()) {
    if (index >= config_.max_requests) {
      refuse("pool index {} is beyond the {} rows of the table", index, config_.max_requests);
    }
    while (rows_.size() <= index) {
      table_.alloc_row();  // rows come in order: none is ever freed here
      rows_.emplace_back();
    }
  }
  return rows_[index];
}

std::uint32_t RankState::position_of(std::uint32_t row) const {
  const std::vector<std::uint32_t>& rows = set_of(rows_[row]).rows;
  return static_cast<std::uint32_t>(std::find(rows.begin(), rows.end(), row) - rows.begin());
}

std::uint32_t RankState::implicit_pages(std::uint32_t row, std::uint32_t position) const {
  return set_of(rows_[row]).covered[position] / config_.page_size - table_.num_pages(row);
}

// Writes the pages that a member took implicitly into its row. They were counted as held when taken, each
// as a page of its own; now they are counted again, but only those that no other row names meanwhile.
void RankState::materialise(std::uint32_t row, std::uint32_t position) {
  const std::uint32_t implicit = implicit_pages(row, position);
  if (implicit == 0) return;
  const PageRun taken{table_.last_page(row) + 1, implicit};  // a member has a page: joins demand it
  if (std::uint64_t{taken.first} + taken.count > config_.num_pages) {
    refuse("row {} took pages beyond the pool of {} pages", row, config_.num_pages);
  }
  table_.append(row, taken);
  held_pages_ -= implicit;
  held_pages_ += references_.add(taken);
}

void RankState::cut(std::uint32_t row, std::uint32_t num_pages) {
  const std::uint32_t before = table_.num_pages(row);
  if (before == num_pages) return;
  if (rows_[row].held) {
    scratch_.clear();
    table_.copy_out(row, num_pages, before - num_pages, scratch_);
    for (const PageRun& run : scratch_) held_pages_ -= references_.remove(run);
  }
  table_.truncate(row, num_pages);
}

void RankState::hold(std::uint32_t row) {
  rows_[row].held = true;
  for (const PageRun& run : table_.runs(row)) held_pages_ += references_.add(run);
}

void RankState::release(std::uint32_t row) {
  if (!rows_[row].held) return;
  rows_[row].held = false;
  for (const PageRun& run : table_.runs(row)) held_pages_ -= references_.remove(run);
}

std::vector<PageRun> RankState::pages(std::uint32_t row) const {
  if (row >= rows_.size()) return {};
  const std::span<const PageRun> runs = table_.runs(row);
  std::vector<PageRun> result(runs.begin(), runs.end());
  if (!result.empty() && rows_[row].decoding) result.back().count += implicit_pages(row, position_of(row));
  return result;
}

std::uint64_t RankState::peak_held_bytes() const {
  return peak_held_pages_ * config_.page_size * config_.kv_bytes_per_token;
}

}  // namespace tpsim::rank
