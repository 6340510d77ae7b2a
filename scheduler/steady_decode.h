// Steady decode: a request that decodes takes part in every decode pass, gets a token in each, and nothing
// else happens to it until its last one. So passes are counted and not applied: what a member has is what it
// had when it joined and the passes since, told to it (settle) when somebody looks. What needs a look is kept
// by when it is due: the next page that a member opens, the pass whose token is its last.
//
// The result is that of passes one by one, to the last bit: the same pages in the same order, the same gaps
// between tokens. Every pass is still one of its own to the executor and to whoever watches.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/kv_pool.h"
#include "scheduler/req.h"

namespace tpsim::scheduler {

// Something that is due for a member of SteadyDecode.
struct Due {
  std::int64_t pass;
  std::uint64_t order;  // of the member
  std::uint32_t member;
};

// What is due at passes to come: a list for each of kSlots passes in a row, those of later rounds among them.
// Adding and taking are a step each; what is further away is looked at once a round.
class DueWheel {
 public:
  std::size_t size() const { return size_; }
  // REQUIRES: due.pass >= 0, and was not taken.
  void add(const Due& due) {
    slot(due.pass).push_back(due);
    ++size_;
  }
  // Moves what is due at `pass` after what `out` has, in the order in which it was added.
  void take(std::int64_t pass, std::vector<Due>& out) {
    std::vector<Due>& dues = slot(pass);
    if (dues.empty()) return;
    std::size_t kept = 0;
    for (const Due& due : dues) {
      if (due.pass == pass) {
        out.push_back(due);
      } else {
        dues[kept++] = due;
      }
    }
    size_ -= dues.size() - kept;
    dues.resize(kept);
  }
  template <typename Predicate>
  void erase_if(const Predicate& predicate) {
    for (std::vector<Due>& dues : slots_) size_ -= std::erase_if(dues, predicate);
  }
  void clear() {
    for (std::vector<Due>& dues : slots_) dues.clear();
    size_ = 0;
  }

 private:
  static constexpr std::size_t kSlots = 256;
  std::vector<Due>& slot(std::int64_t pass) { return slots_[static_cast<std::size_t>(pass) % kSlots]; }

  std::array<std::vector<Due>, kSlots> slots_;
  std::size_t size_ = 0;
};

// Invariants while active: every request of the running batch that has not finished is a member; so is who
// left it and waits for the token in flight. Passes formed since begin() have their results processed in
// order.
class SteadyDecode {
 public:
  static constexpr std::int64_t kNoPass = -1;

  // `clip`: tokens to come of a request that reserved() knows at most; what has more is not summed.
  // `asks_early`: whether about_to_end() is asked before every pass, or never.
  SteadyDecode(KvPool& pool, std::int64_t clip, bool asks_early)
      : pool_(pool), clip_(clip), asks_early_(asks_early), opens_(pool.page_size()) {}

  bool active() const { return active_; }
  // Without members. What was formed before is none of its passes.
  void begin();
  // Everybody is told and goes; passes that are out are to be processed request by request.
  void end();

  // Whether all that is to come of `req` is foreseeable.
  static bool can_join(const Req& req) { return !req.finished && !req.retracted && req.in_flight <= 1; }
  // `req` takes part from the next pass on. `whole`: reserved() counts it whole. REQUIRES: can_join(req), its
  // KV has pages.
  void join(Req& req, bool whole);
  // Takes no part in the next pass. REQUIRES: `req` is a member, and a pass in flight is its last.
  void leave(const Req& req);
  // Who has, with one token more, max_new_tokens, and that token in flight: in their order, to leave().
  const std::vector<Req*>& about_to_end();
  // A member ends: it is told, and is none any more. Passes in flight that it takes part in count down.
  void settle_ended(Req& req);

  // Pages that the next pass opens.
  std::size_t pages_to_open() const { return opens_[bucket_of(formed_)].size(); }
  // Forms the next pass and returns its number. REQUIRES: pages_to_open() are free. Throws std::logic_error
  // where they are not.
  std::int64_t form();
  // Whether the result of `pass` is processed here.
  bool covers(std::int64_t pass) const { return active_ && pass >= begun_; }
  // The result of the next pass arrives at `now`. Calls gap(time of the token before, requests).
  template <typename Gap>
  void process(double now, const Gap& gap);
  // After process(): a member whose last token that was, in their order, until null. It is to be settled.
  Req* next_ended();

  // A result that is not of these passes gave the member a token.
  void got_token(const Req& req);
  // Around a change of the member's row: writes the pages it took into it, and looks at its last one again.
  void write_pages(const Req& req);
  void look_at_pages(const Req& req);

  std::uint32_t output_len(const Req& req) const {
    return req.steady == Req::kNotSteady ? req.output_len
                                         : req.output_len + processed_since(members_[req.steady]);
  }
  // Tokens that the members of the running batch may still generate: of those that are counted whole, and of
  // the others. False where somebody has more than `clip`.
  struct Reserved {
    std::int64_t whole = 0;
    std::int64_t shared = 0;
  };
  bool sums_reserved() const { return long_ == 0; }
  Reserved reserved() const { return {to_come_[1], to_come_[0]}; }

 private:
  struct Member {
    Req* req = nullptr;        // null: free
    std::uint64_t order = 0;   // of joining; unique
    std::int64_t joined = 0;   // its first pass
    std::int64_t left = 0;     // the first pass without it, where it has left
    std::uint32_t named = 0;   // the page after its last one that its row names
    std::uint32_t bucket = 0;  // of opens_
    bool whole = false;
    bool has_left = false;
    bool is_long = false;
  };
  // Who opens pages: the next one, after those it has.
  struct Opener {
    std::uint32_t next_page;
    std::uint32_t member;
  };
  std::size_t bucket_of(std::int64_t pass) const { return static_cast<std::size_t>(pass) % opens_.size(); }
  // Else the member is another by now.
  bool is_current(const Due& due) const { return members_[due.member].order == due.order; }
  std::int64_t formed_with(const Member& member) const { return member.has_left ? member.left : formed_; }
  std::uint32_t processed_since(const Member& member) const {
    return processed_ > member.joined ? static_cast<std::uint32_t>(processed_ - member.joined) : 0;
  }
  std::uint32_t in_flight(const Member& member) const {
    return static_cast<std::uint32_t>(formed_with(member) - member.joined) - processed_since(member);
  }
  std::int64_t to_come(const Member& member) const {
    return std::int64_t{member.req->max_new_tokens} - member.req->output_len - processed_since(member);
  }
  void stop_counting(const Member& member);
  void close(Member& member);
  void tell(const Member& member);
  void forget(Member& member);
  void forget_what_is_past();
  void drop_results();
  Opener& opener_of(const Member& member);
  void name_pages(Member& member, std::uint32_t next_page);
  void open_elsewhere(Opener& opener);

  KvPool& pool_;
  const std::int64_t clip_;
  const bool asks_early_;
  bool active_ = false;
  std::uint64_t orders_ = 0;
  std::int64_t begun_ = 0;
  std::int64_t formed_ = 0;     // passes
  std::int64_t processed_ = 0;  // not more
  double last_time_ = 0;        // of the result processed last
  std::vector<Member> members_;
  std::vector<std::uint32_t> free_;
  // Members by the passes that open a page for them, modulo the page size; each in the order of joining.
  std::vector<std::vector<Opener>> opens_;
  std::vector<Due> joiners_;  // by their first pass
  std::size_t next_joiner_ = 0;
  DueWheel ends_;            // by the pass with the last token
  std::vector<Due> ending_;  // those of the result processed last; next_ended() is at next_end_
  std::size_t next_end_ = 0;
  DueWheel leaves_;           // by the pass before the one with token max_new_tokens
  std::vector<Due> leaving_;  // due, but without that token in flight when it was looked at
  std::vector<Req*> about_to_end_;
  // Who has ended but takes part in passes that are in flight.
  struct Dropped {
    Req* req;
    std::uint32_t passes;
  };
  std::vector<Dropped> dropped_;
  std::uint32_t told_ = 0;  // members that got a token of the result processed last, and live
  // Of members of the running batch, shared [0] and whole [1]: tokens to come, and who got one of the result
  // processed last.
  std::int64_t to_come_[2] = {};
  std::int64_t counted_[2] = {};
  std::uint32_t long_ = 0;  // members that had more than clip_ to come
};

template <typename Gap>
void SteadyDecode::process(double now, const Gap& gap) {
  drop_results();
  if (told_ > 0) gap(last_time_, told_);
  for (; next_joiner_ < joiners_.size() && joiners_[next_joiner_].pass == processed_; ++next_joiner_) {
    const Due& due = joiners_[next_joiner_];
    if (!is_current(due)) continue;
    const Member& member = members_[due.member];
    gap(member.req->last_token_time, 1U);
    ++told_;
    if (!member.has_left) ++counted_[member.whole ? 1 : 0];
  }
  if (2 * next_joiner_ >= joiners_.size()) {  // those of passes in flight stay
    joiners_.erase(joiners_.begin(), joiners_.begin() + static_cast<std::ptrdiff_t>(next_joiner_));
    next_joiner_ = 0;
  }
  to_come_[0] -= counted_[0];
  to_come_[1] -= counted_[1];
  ending_.clear();
  next_end_ = 0;
  ends_.take(processed_, ending_);
  if (asks_early_) leaves_.take(processed_, leaving_);
  ++processed_;
  last_time_ = now;
}

}  // namespace tpsim::scheduler
