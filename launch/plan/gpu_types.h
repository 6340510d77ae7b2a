// Plans of several types of GPU beside each other: --hardware h100-sxm,h200-sxm,b200.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launch/flags/server_args.h"
#include "launch/plan/answer.h"

namespace tpsim::launch {

// A type of GPU that has no plan.
struct GpuRefusal {
  std::string hardware;
  std::string reason;  // a sentence
};

// Best first, by what each plan proposes: those that serve as many requests as any before others, those that
// hold the service levels before others, and of the rest the lowest cost of a million tokens where all have a
// --gpu-hour-cost, else the most requests/s of a GPU (at the highest rate, or within the service levels,
// where these were asked for). Within 1 % of the best of those the lower latency decides, as in
// choose_among(): under an open load all that keep up serve what arrives.
void order_gpu_types(const PlanQuestion& question, std::vector<GpuPlan>& plans);

// The table, why it is in this order, what each type of GPU is started with, and the types without a plan.
// REQUIRES: `plans` are in order and not empty. `colour`: ANSI; `width`: columns of the terminal, 0 for any.
std::string gpu_types_text(const PlanQuestion& question, const ServerArgs& args,
                           std::span<const GpuPlan> plans, std::span<const GpuRefusal> refusals, bool colour,
                           int width = 0);

}  // namespace tpsim::launch
