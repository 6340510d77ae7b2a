// Multi-turn conversations with shared system prompts and bursty arrivals: `tpsim trace generate`.
//
// The shape follows published statistics; the defaults are one workload of that shape, busy enough that
// prefill and decode both matter to a 70B model on 8 GPUs:
// - lengths are lognormal. Azure's 2023 conversation trace (Splitwise, ISCA 2024) has a median prompt
//   of 1,020 and a median answer of 129 tokens (mean 211); Mooncake's conversation trace (FAST 2025) a median
//   prompt of 6,909 and a median answer of 350;
// - conversations begin at Gamma-distributed gaps whose coefficient of variation is above 1, as BurstGPT
//   (arXiv 2401.17644) fits them;
// - conversations have a few turns (ShareChat, arXiv 2512.17843: 660,293 turns in 142,808 conversations),
//   with a geometric number and an exponential time of thought between them;
// - a turn's prompt is the system prompt, the whole conversation so far with its answers, and the new
//   message, so that most prompt tokens of a later turn were seen before;
// - some conversations begin with a document, which gives prompt lengths their long tail.
#pragma once

#include <cstdint>

#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// Field x_y is the flag --x-y. Lengths are in tokens, times in seconds.
struct ConversationOptions {
  std::uint64_t num_conversations = 0;  // 0 = as many as begin within duration
  double duration = 400;                // no request arrives later; 0 = no limit (needs num_conversations)
  double request_rate = 6.5;            // requests per second that conversation starts are spaced for
  double burstiness = 2.0;              // coefficient of variation of the gaps between starts; 1 = Poisson
  std::uint64_t system_prompts = 12;    // the k-th most popular is chosen 1/k as often as the first
  double system_prompt_median = 700;
  double system_prompt_sigma = 0.6;
  double turns_mean = 3;
  double message_median = 130;
  double message_sigma = 1.1;
  double document_probability = 0.5;
  double document_median = 4500;
  double document_sigma = 0.8;
  double answer_median = 230;
  double answer_sigma = 0.8;
  double think_time_mean = 20;
  // Tokens per second at which answers are taken to arrive for the arrival times of later turns, which only
  // runs with SessionMode::kTimestamps follow.
  double answer_rate = 40;
  std::uint64_t max_prompt_len = 32768;  // a conversation ends before a prompt becomes longer
  std::uint64_t max_answer_len = 2048;
  std::uint64_t seed = 1;
};

// The workload names the ids of the answers too (WorkloadRequest::output), so that later turns share them.
// Sessions are conversations; their later turns have think times. Times are whole milliseconds. Equal
// options, equal workload. Throws UserError that names the flag that is out of range, or that there is no
// request.
Workload make_conversations(const ConversationOptions& options);

}  // namespace tpsim::scheduler
