// A plain model of a rank: applies every ForwardBatch and checks that no pass writes into a page that another
// running request reads, that every table covers its sequence, and that what requests read and copies take
// was written, or copied. Throws std::logic_error.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kvcache/pools/page_allocator.h"
#include "scheduler/config.h"
#include "scheduler/executor.h"

namespace tpsim::scheduler {

class CheckingRank : public Executor {
 public:
  explicit CheckingRank(const SchedulerConfig& config)
      : page_size_(config.page_size),
        pages_(kvcache::PageAllocator::with_slack(
            static_cast<std::uint32_t>(config.max_total_num_tokens / config.page_size))),
        host_pages_(config.hicache.tier.first_page > 0 ? config.hicache.tier.tokens / config.page_size : 0),
        knows_pages_(!config.hicache.enabled() || host_pages_ > 0),
        stages_(config.pipeline.size) {}

  StepOutcome forward(const proto::ForwardBatch& batch) override {
    copy_pages(batch);
    edit_tables(batch);
    for (const auto row : batch.decode_leave()) {
      const auto found = std::find(decoding_.begin(), decoding_.end(), row);
      ASSERT_TRUE_OR_THROW(found != decoding_.end(), "leaves without having joined");
      decoding_.erase(found);
    }
    for (const auto row : batch.decode_join()) {
      ASSERT_TRUE_OR_THROW(std::find(decoding_.begin(), decoding_.end(), row) == decoding_.end(),
                           "joins twice");
      decoding_.push_back(row);
    }
    double tokens = 0;
    std::vector<std::pair<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>>> writes;
    for (int i = 0; i < batch.extend_lens_size(); ++i) {
      const auto row = batch.extend_req_pool_indices(i);
      const auto from = batch.extend_prefix_lens(i);
      const auto to = from + batch.extend_lens(i);
      ASSERT_TRUE_OR_THROW(to > from, "extends by nothing");
      seq_len_[row] = to;
      micro_batch_[row] = batch.micro_batch();
      writes.push_back({row, {from, to}});
      tokens += to - from;
    }
    if (batch.forward_mode() == proto::DECODE || batch.forward_mode() == proto::MIXED) {
      bool any = false;
      for (const auto row : decoding_) {
        if (micro_batch_[row] != batch.micro_batch()) continue;
        any = true;
        const auto length = ++seq_len_[row];
        if (table_[row].size() * page_size_ < length) table_[row].push_back(table_[row].back() + 1);
        writes.push_back({row, {length - 1, length}});
      }
      ASSERT_TRUE_OR_THROW(any, "decodes nobody");
    }
    std::map<std::uint32_t, std::uint32_t> kept;
    if (batch.forward_mode() == proto::TARGET_VERIFY) {
      for (int i = 0; i < batch.accept_lens_size(); ++i) {
        ASSERT_TRUE_OR_THROW(batch.accept_lens(i) >= 1 && batch.accept_lens(i) <= batch.num_draft_tokens(),
                             "keeps no token, or more than were verified");
        kept[batch.accept_req_pool_indices(i)] = batch.accept_lens(i);
      }
      ASSERT_TRUE_OR_THROW(!decoding_.empty() && kept.size() == decoding_.size(),
                           "keeps nothing of somebody");
      for (const auto row : decoding_) {
        ASSERT_TRUE_OR_THROW(kept.contains(row), "keeps nothing of a member");
        writes.push_back({row, {seq_len_[row], seq_len_[row] + batch.num_draft_tokens()}});
        seq_len_[row] += batch.num_draft_tokens();
      }
    }
    check(batch, writes);
    for (const auto& [row, count] : kept) {
      seq_len_[row] -= batch.num_draft_tokens() - count;
      ++verified_;
      accepted_ += count;
    }
    const double seconds = 0.004 + 2e-5 * tokens;
    for (StageOutcome& stage : stages_) stage = {1e-5, seconds / static_cast<double>(stages_.size()), 2e-5};
    return {.step_time = seconds, .stages = stages_};
  }

  std::uint64_t verified() const { return verified_; }
  std::uint64_t accepted() const { return accepted_; }
  std::uint64_t copied() const { return copied_; }  // pages, between device and host

 private:
  static void ASSERT_TRUE_OR_THROW(bool condition, const char* what) {
    if (!condition) throw std::logic_error(what);
  }

  void copy_pages(const proto::ForwardBatch& batch) {
    ASSERT_TRUE_OR_THROW(batch.page_copy_from_size() == batch.page_copy_to_size(), "copies to nowhere");
    for (int i = 0; i < batch.page_copy_from_size(); ++i) {
      const std::uint32_t from = batch.page_copy_from(i), to = batch.page_copy_to(i);
      ASSERT_TRUE_OR_THROW((from < pages_) != (to < pages_) && std::max(from, to) < pages_ + host_pages_,
                           "copies between other pages than those of device and host");
      ASSERT_TRUE_OR_THROW(written_.contains(from), "copies a page that nobody wrote");
      written_.insert(to);
      ++copied_;
    }
  }

  void edit_tables(const proto::ForwardBatch& batch) {
    int run = 0;
    for (int i = 0; i < batch.table_req_size(); ++i) {
      auto& table = table_[batch.table_req(i)];
      ASSERT_TRUE_OR_THROW(batch.table_start_page(i) <= table.size(), "edit leaves a hole");
      table.resize(batch.table_start_page(i));
      for (std::uint32_t k = 0; k < batch.table_num_runs(i); ++k, ++run) {
        for (std::uint32_t p = 0; p < batch.run_num_pages(run); ++p) {
          table.push_back(batch.run_first_page(run) + p);
          ASSERT_TRUE_OR_THROW(table.back() < pages_, "page beyond the pool");
        }
      }
    }
    ASSERT_TRUE_OR_THROW(run == batch.run_first_page_size(), "runs left over");
  }

  template <typename Writes>
  void check(const proto::ForwardBatch& batch, const Writes& writes) {
    // How many running sequences read each page.
    std::map<std::uint32_t, int> readers;
    std::vector<std::uint32_t> rows = decoding_;
    for (const auto row : batch.extend_req_pool_indices()) {
      ASSERT_TRUE_OR_THROW(std::find(rows.begin(), rows.end(), row) == rows.end(),
                           "extends and decodes at once");
      rows.push_back(row);
    }
    for (const auto row : rows) {
      const auto needed = (seq_len_[row] + page_size_ - 1) / page_size_;
      ASSERT_TRUE_OR_THROW(table_[row].size() >= needed, "table shorter than its sequence");
      for (std::size_t i = 0; i < needed; ++i) ++readers[table_[row][i]];
    }
    for (const auto& [row, range] : writes) {
      for (std::uint32_t p = 0; knows_pages_ && p < range.first / page_size_; ++p)
        ASSERT_TRUE_OR_THROW(written_.contains(table_[row][p]), "reads a page that nobody wrote");
      for (auto p = range.first / page_size_; p * page_size_ < range.second; ++p) {
        written_.insert(table_[row][p]);
        ASSERT_TRUE_OR_THROW(readers[table_[row][p]] == 1, "writes into a page that another request reads");
      }
    }
  }

  std::uint32_t page_size_;
  std::uint64_t pages_, host_pages_;
  bool knows_pages_;
  std::set<std::uint32_t> written_;  // that hold something
  std::uint64_t copied_ = 0;
  std::map<std::uint32_t, std::vector<std::uint32_t>> table_;
  std::map<std::uint32_t, std::uint32_t> seq_len_;
  std::vector<std::uint32_t> decoding_;                 // of all micro-batches
  std::map<std::uint32_t, std::uint32_t> micro_batch_;  // that extended a row last
  std::vector<StageOutcome> stages_;
  std::uint64_t verified_ = 0, accepted_ = 0;
};

}  // namespace tpsim::scheduler
