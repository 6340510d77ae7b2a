// Scheduler of a prefill server: SGLang's disaggregation/prefill.py. A request waits until the decode server
// has pages for it, is prefilled as if it asked for one token, and keeps its pages until the scheduler, once
// a turn of its loop, notices that its KV has arrived.
#include <algorithm>
#include <cstdint>

#include "proto/base/ceil_div.h"
#include "scheduler/scheduler.h"

namespace tpsim::scheduler {

// What could never be admitted would keep the decode server's pages for ever.
const char* Scheduler::refusal_of_side(std::uint64_t input_tokens) const {
  const std::uint64_t page = pool_.page_size();
  if (prefills_only() && (ceil_div(input_tokens, page) + 1) * page + 1 >= pool_.capacity())
    return "its prompt and a page of room do not fit the KV pool of the prefill server";
  if (decodes_only() &&
      ceil_div(input_tokens, page) * page + config_.disaggregation.num_reserved_decode_tokens >
          pool_.capacity())
    return "its prompt and --num-reserved-decode-tokens do not fit the KV pool of the decode server";
  return nullptr;
}

void Scheduler::enqueue_on_side(Req& req) {
  if (decodes_only()) {
    queues_->prealloc.push_back(&req);
    return;
  }
  req.max_new_tokens = std::min(req.max_new_tokens, 1U);
  req.end_len = std::min(req.end_len, 1U);
  prefetch(req);
  queues_->bootstrap.push_back(&req);
}

bool Scheduler::on_pages(std::uint64_t id, double time, std::uint32_t prefix) {
  const auto waits = std::ranges::find(queues_->bootstrap, id, &Req::id);
  if (waits == queues_->bootstrap.end()) return false;
  (*waits)->transfer.time = time;
  (*waits)->transfer.sent_tokens = prefix;
  return true;
}

void Scheduler::pop_bootstrapped() {
  std::erase_if(queues_->bootstrap, [this](Req* req) {
    if (req->transfer.time > pass_time_) return false;
    req->transfer.time = RequestSource::kNever;
    enqueue(*req);
    return true;
  });
}

// Nothing decodes here, so that nothing but the next chunk is left of the pass before.
void Scheduler::process_prefill_chunk() {
  running_.batch_is_full = false;
  if (chunked_req_ == nullptr || chunked_req_->extend_len == 0) return;
  pool_.cache_unfinished(*chunked_req_, /*chunked=*/true);
  chunked_req_->transfer.computed_tokens = chunked_req_->fill_len();
  if (config_.disable_overlap_schedule)
    send_kv_chunk(*chunked_req_, chunked_req_->fill_len(), /*last=*/false, pass_time_);
}

// process_batch_result_disagg_prefill. With overlap scheduling the next chunk is launched by now.
void Scheduler::process_prefilled(Req& req, bool goes_on, double now) {
  if (goes_on) {
    if (!config_.disable_overlap_schedule)
      send_kv_chunk(req, req.transfer.computed_tokens, /*last=*/false, now);
    return;
  }
  req.output_len = 1;
  pool_.cache_unfinished(req);
  queues_->inflight.push_back(&req);
  spend_on_prompt(req, config_.disaggregation.send_seconds, config_.disaggregation.send_token_seconds);
  send_kv_chunk(req, req.input_len, /*last=*/true, now);
}

// Of a prompt that goes on, a page that is not full waits for the next chunk. The last one may have nothing
// but the first token, where the decode server had all else.
void Scheduler::send_kv_chunk(Req& req, std::uint32_t end, bool last, double now) {
  std::uint32_t& sent = req.transfer.sent_tokens;
  if (!last) end -= end % pool_.page_size();
  if (end <= sent && !last) return;
  queues_->messages.push_back({.kind = last ? KvMessage::Kind::kLast : KvMessage::Kind::kChunk,
                               .req = &req,
                               .time = now + queues_->thread_seconds,
                               .tokens = end - sent,
                               .runs = pool_.runs(req, sent, end)});
  sent = end;
}

void Scheduler::process_inflight_queue(double now, PassResult& result) {
  std::erase_if(queues_->inflight, [&](Req* req) {
    if (req->transfer.time > now) return false;
    finish(*req);
    result.finished.push_back(req);
    return true;
  });
}

double Scheduler::next_transfer_time() const {
  double next = RequestSource::kNever;
  if (queues_ == nullptr) return next;
  for (const std::vector<Req*>* queue : {&queues_->bootstrap, &queues_->inflight, &queues_->transfer})
    for (const Req* req : *queue) next = std::min(next, req->transfer.time);
  return next;
}

// Prefill: what waits for pages gets them when a transfer ends. Decode: while a request is retracted nothing
// else is looked at, KV that has arrived included, so that one that does not fit beside it waits for ever.
std::optional<bool> Scheduler::on_idle_side() {
  if (prefills_only()) {
    if (queues_->inflight.empty()) return std::nullopt;
    return false;
  }
  if (!waiting_.empty()) return true;  // the places of what has ended are theirs
  if (queues_->retracted.empty()) return std::nullopt;
  Req* const req = queues_->retracted.front();
  queues_->retracted.erase(queues_->retracted.begin());
  reject(*req,
         "it was retracted, and its KV and --num-reserved-decode-tokens no longer fit the decode server");
  return true;
}

// Of the queues beside the waiting one; of what a prefill server has computed, the prefix is kept.
bool Scheduler::leave_side(Req& req, const char* because) {
  if (queues_ == nullptr) return false;
  for (std::vector<Req*>* queue : {&queues_->bootstrap, &queues_->inflight, &queues_->prealloc,
                                   &queues_->transfer, &queues_->retracted}) {
    if (std::erase(*queue, &req) == 0) continue;
    if (queue == &queues_->inflight || queue == &queues_->transfer) give_pages_back(req);
    reject(req, because);
    return true;
  }
  return false;
}

void Scheduler::give_pages_back(Req& req) {
  pool_.release(req, /*is_insert=*/prefills_only());
  --active_;
}

void Scheduler::spend_on_prompt(const Req& req, double seconds, double token_seconds) {
  queues_->thread_seconds += seconds + token_seconds * req.input_len;
}

}  // namespace tpsim::scheduler
