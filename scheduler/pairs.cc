#include "scheduler/pairs.h"

namespace tpsim::scheduler {

double Pairs::hand_on(const KvMessage& message, const Split& split, Replica& prefill, Replica& decode) {
  const Req& req = *message.req;
  if (message.kind == KvMessage::Kind::kPages) {
    const double known = message.time + links_.config().page_list_seconds;
    prefill.side().on_pages(req.id, known);
    return known;
  }
  const double done =
      links_.send(split.prefill, split.decode - prefill_, message.time, message.tokens, message.runs);
  if (message.kind != KvMessage::Kind::kLast) return done;
  KvTransfer prefilled;
  prefilled.cached_tokens = req.cached_tokens;
  prefilled.first_scheduled_time = req.first_scheduled_time;
  prefill.side().on_kv(req.id, done, prefilled);
  decode.side().on_kv(req.id, done + links_.config().notice_seconds, prefilled);
  return done;
}

}  // namespace tpsim::scheduler
