#include "scheduler/steady_decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace tpsim::scheduler {

void SteadyDecode::begin() {
  active_ = true;
  begun_ = processed_ = formed_;
}

void SteadyDecode::end() {
  for (const std::vector<Opener>& bucket : opens_) {
    for (const Opener& opener : bucket) name_pages(members_[opener.member], opener.next_page);
  }
  for (Member& member : members_) {
    if (member.req == nullptr) continue;
    tell(member);
    forget(member);
  }
  for (std::vector<Opener>& bucket : opens_) bucket.clear();
  joiners_.clear();
  next_joiner_ = 0;
  ends_.clear();
  ending_.clear();
  next_end_ = 0;
  leaves_.clear();
  leaving_.clear();
  dropped_.clear();
  told_ = long_ = 0;
  to_come_[0] = to_come_[1] = counted_[0] = counted_[1] = 0;
  active_ = false;
}

// Who ended with its first token left what it was due for; where all do, no pass ever looks at that.
void SteadyDecode::forget_what_is_past() {
  constexpr std::size_t kMore = 1024;
  const std::size_t most = 4 * (members_.size() - free_.size()) + kMore;
  if (std::max({joiners_.size(), ends_.size(), leaves_.size()}) <= most) return;
  joiners_.erase(joiners_.begin(), joiners_.begin() + static_cast<std::ptrdiff_t>(next_joiner_));
  next_joiner_ = 0;
  const auto is_past = [this](const Due& due) { return !is_current(due); };
  std::erase_if(joiners_, is_past);
  ends_.erase_if(is_past);
  leaves_.erase_if(is_past);
}

void SteadyDecode::join(Req& req, bool whole) {
  forget_what_is_past();
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(members_.size()));
    members_.emplace_back();
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Member& member = members_[index];
  member = {.req = &req, .order = ++orders_, .joined = formed_, .whole = whole};
  req.steady = index;
  member.named = pool_.page_behind(req);
  // In pass p it has kv_committed_len + p - formed_ tokens before its next.
  const auto page = static_cast<std::int64_t>(opens_.size());
  member.bucket =
      static_cast<std::uint32_t>(((formed_ - std::int64_t{req.kv_committed_len}) % page + page) % page);
  opens_[member.bucket].push_back({member.named, index});
  joiners_.push_back({formed_, member.order, index});
  // With the token in flight, if there is one.
  const std::int64_t had = std::int64_t{req.output_len} + req.in_flight;
  ends_.add({formed_ + std::max<std::int64_t>(req.end_len - had - 1, 0), member.order, index});
  if (asks_early_) {
    const Due leave{formed_ + std::max<std::int64_t>(req.max_new_tokens - had - 2, -1), member.order, index};
    if (leave.pass < processed_) {
      leaving_.push_back(leave);
    } else {
      leaves_.add(leave);
    }
  }
  const std::int64_t rest = to_come(member);
  to_come_[whole ? 1 : 0] += rest;
  member.is_long = rest > clip_;
  long_ += member.is_long ? 1 : 0;
}

// It reserves nothing any more.
void SteadyDecode::stop_counting(const Member& member) {
  if (member.has_left) return;
  const int which = member.whole ? 1 : 0;
  to_come_[which] -= to_come(member);
  if (processed_ > member.joined) --counted_[which];
  if (member.is_long) --long_;
}

// REQUIRES: it has not left.
SteadyDecode::Opener& SteadyDecode::opener_of(const Member& member) {
  const auto index = static_cast<std::uint32_t>(&member - members_.data());
  return *std::find_if(opens_[member.bucket].begin(), opens_[member.bucket].end(),
                       [index](const Opener& opener) { return opener.member == index; });
}

// It opens no page any more.
void SteadyDecode::close(Member& member) {
  if (member.has_left) return;
  Opener& opener = opener_of(member);
  name_pages(member, opener.next_page);
  std::vector<Opener>& bucket = opens_[member.bucket];
  bucket.erase(bucket.begin() + (&opener - bucket.data()));
}

void SteadyDecode::leave(const Req& req) {
  Member& member = members_[req.steady];
  stop_counting(member);
  close(member);
  member.left = formed_;
  member.has_left = true;
}

const std::vector<Req*>& SteadyDecode::about_to_end() {
  about_to_end_.clear();
  if (leaving_.empty()) return about_to_end_;
  std::sort(leaving_.begin(), leaving_.end(), [](const Due& a, const Due& b) { return a.order < b.order; });
  std::erase_if(leaving_, [this](const Due& due) {
    if (!is_current(due)) return true;
    const Member& member = members_[due.member];
    if (to_come(member) > 1 || member.req->in_flight + in_flight(member) == 0) return false;
    about_to_end_.push_back(member.req);
    return true;
  });
  return about_to_end_;
}

// But of its pages.
void SteadyDecode::tell(const Member& member) {
  Req& req = *member.req;
  const auto formed = static_cast<std::uint32_t>(formed_with(member) - member.joined);
  const std::uint32_t processed = processed_since(member);
  req.kv_committed_len += formed;
  req.decodes += formed;
  req.in_flight += formed - processed;
  req.output_len += processed;
  if (processed > 0) req.last_token_time = last_time_;
}

void SteadyDecode::forget(Member& member) {
  free_.push_back(member.req->steady);
  member.req->steady = Req::kNotSteady;
  member.req = nullptr;
  member.order = 0;
}

void SteadyDecode::settle_ended(Req& req) {
  Member& member = members_[req.steady];
  const std::uint32_t passes = in_flight(member);
  stop_counting(member);
  close(member);
  if (processed_ > member.joined) --told_;
  tell(member);
  if (passes > 0) dropped_.push_back({&req, passes});
  forget(member);
}

// Of the result that arrives now.
void SteadyDecode::drop_results() {
  std::erase_if(dropped_, [](Dropped& dropped) {
    --dropped.req->in_flight;
    return --dropped.passes == 0;
  });
}

std::int64_t SteadyDecode::form() {
  for (Opener& opener : opens_[bucket_of(formed_)]) {
    if (pool_.take_page(opener.next_page)) [[likely]] {
      ++opener.next_page;
    } else {
      open_elsewhere(opener);
    }
  }
  return formed_++;
}

// The page after its last one is another's.
void SteadyDecode::open_elsewhere(Opener& opener) {
  Member& member = members_[opener.member];
  name_pages(member, opener.next_page);
  if (!pool_.open_page(*member.req)) {
    throw std::logic_error(
        fmt::format("request {}: no page left although the decode step was checked", member.req->id));
  }
  member.named = opener.next_page = pool_.page_behind(*member.req);
}

Req* SteadyDecode::next_ended() {
  while (next_end_ < ending_.size()) {
    const Due& due = ending_[next_end_++];
    if (is_current(due)) return members_[due.member].req;
  }
  return nullptr;
}

void SteadyDecode::got_token(const Req& req) {
  const Member& member = members_[req.steady];
  if (!member.has_left) --to_come_[member.whole ? 1 : 0];
}

void SteadyDecode::name_pages(Member& member, std::uint32_t next_page) {
  if (next_page != member.named) pool_.name_pages(*member.req, next_page - member.named);
  member.named = next_page;
}

void SteadyDecode::write_pages(const Req& req) {
  Member& member = members_[req.steady];
  if (!member.has_left) name_pages(member, opener_of(member).next_page);
}

void SteadyDecode::look_at_pages(const Req& req) {
  Member& member = members_[req.steady];
  member.named = pool_.page_behind(req);
  if (!member.has_left) opener_of(member).next_page = member.named;
}

}  // namespace tpsim::scheduler
