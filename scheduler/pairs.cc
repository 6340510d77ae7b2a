#include "scheduler/pairs.h"

#include <cstddef>

namespace tpsim::scheduler {

Pairs::Pairs(const KvLinkConfig& link, std::span<const FleetServer> prefill,
             std::span<const FleetServer> decode)
    : links_(link, prefill.size() * prefill.front().config->data_parallel.size,
             decode.size() * decode.front().config->data_parallel.size),
      prefill_(static_cast<std::uint32_t>(prefill.size())),
      prefill_ranks_(prefill.front().config->data_parallel.size),
      decode_ranks_(decode.front().config->data_parallel.size) {}

double Pairs::hand_on(const KvMessage& message, const Split& split, Replica& prefill, Replica& decode) {
  const Req& req = *message.req;
  if (message.kind == KvMessage::Kind::kPages) {
    const double known = message.time + links_.config().page_list_seconds;
    prefill.side().on_pages(req.id, known, req.input_len - message.tokens);
    return known;
  }
  const std::size_t from = std::size_t{split.prefill} * prefill_ranks_ + prefill.side().rank_of(req.id);
  const std::size_t to = std::size_t{split.decode - prefill_} * decode_ranks_ + decode.side().rank_of(req.id);
  const double done = links_.send(from, to, message.time, message.tokens, message.runs);
  if (message.kind != KvMessage::Kind::kLast) return done;
  KvTransfer prefilled;
  prefilled.cached_tokens = req.cached_tokens;
  prefilled.cached_host = req.cached_host;
  prefilled.cached_storage = req.cached_storage;
  prefilled.first_scheduled_time = req.first_scheduled_time;
  prefill.side().on_kv(req.id, done, prefilled);
  decode.side().on_kv(req.id, done + links_.config().notice_seconds, prefilled);
  return done;
}

}  // namespace tpsim::scheduler
