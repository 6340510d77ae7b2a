#include "launch/lab/measurements/measured_conversations.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tpsim::launch {

scheduler::Workload replay_turns(std::vector<MeasuredTurn> turns, bool timed, const MeasuredLoad& load) {
  struct Conversation {
    kvcache::TokenSequence said;
    double answered = -1;  // when its last answer had ended; below 0: there was none
  };
  std::stable_sort(turns.begin(), turns.end(), [](const MeasuredTurn& a, const MeasuredTurn& b) {
    return a.request.request < b.request.request;
  });
  scheduler::Workload workload;
  workload.name = fmt::format("{}#{}", load.file, load.load);
  workload.format = "measured";
  std::map<std::uint32_t, Conversation> conversations;
  kvcache::TokenId next = 0;
  const auto invent = [&next](std::uint64_t tokens, kvcache::TokenSequence& out) {
    out.append({next, static_cast<std::uint32_t>(tokens)});
    next += tokens + 1;
  };
  for (const MeasuredTurn& turn : turns) {
    Conversation& conversation = conversations[turn.conversation];
    kvcache::TokenSequence& said = conversation.said;
    // A turn that was sent before the answer to the one before it begins as that did.
    if (said.size() >= turn.request.input_tokens) {
      said.truncate(turn.request.input_tokens);
    } else {
      invent(turn.request.input_tokens - said.size(), said);
    }
    scheduler::WorkloadRequest& out = workload.requests.emplace_back();
    out.prompt = said;
    out.max_new_tokens = turn.request.output_tokens;
    invent(turn.request.output_tokens, out.output);
    said.append(out.output);
    if (!timed) continue;
    out.session = turn.conversation + 1;
    out.arrival_time = turn.request.sent_s;
    if (conversation.answered >= 0)
      out.think_time = std::max(0.0, turn.request.sent_s - conversation.answered);
    conversation.answered = turn.request.last_token_s;
  }
  if (timed)
    std::stable_sort(workload.requests.begin(), workload.requests.end(),
                     [](const auto& a, const auto& b) { return a.arrival_time < b.arrival_time; });
  return workload;
}

}  // namespace tpsim::launch
