#include <array>
#include <stdexcept>
#include <string>

#include "proto/base/error.h"
#include "scheduler/workload/trace_reader.h"
#include "scheduler/workload/trace_writer.h"
#include "tests/fuzz/fuzz_targets.h"

namespace tpsim::fuzz {
namespace {

void check(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

// What workload.h promises of every workload.
void check_workload(const scheduler::Workload& workload) {
  check(!workload.requests.empty(), "a workload has requests");
  check(workload.requests.front().arrival_time == 0, "the first request arrives at 0");
  double last = 0;
  for (const scheduler::WorkloadRequest& request : workload.requests) {
    check(request.arrival_time >= last, "requests are in order of arrival");
    last = request.arrival_time;
    check(!request.prompt.empty() && request.prompt.size() <= scheduler::kMaxRequestTokens, "prompt length");
    check(request.max_new_tokens >= 1, "at least one token is generated");
    check(request.output.empty() || request.output.size() == request.max_new_tokens, "output length");
    check(request.extra_key < workload.extra_keys.size(), "extra_key is an index");
    check(request.session <= workload.requests.size() + workload.extra_keys.size(), "sessions are numbered");
    for (const kvcache::TokenSequence* sequence : {&request.prompt, &request.output}) {
      for (const kvcache::TokenRun& run : sequence->runs()) {
        check(run.length > 0 && run.first + run.length <= scheduler::kGeneratedTokenBase, "ids are in range");
      }
    }
  }
}

void read_as(std::string_view bytes, const char* format, bool sort) {
  scheduler::ReadOptions options;
  options.format = format;
  options.sort = sort;
  try {
    const scheduler::Workload workload = scheduler::read_trace(bytes, "fuzzed", options);
    check_workload(workload);
    const scheduler::Workload again =
        scheduler::read_trace(scheduler::format_trace(workload, "tpsim"), "again", {});
    check(workload.requests == again.requests && workload.extra_keys == again.extra_keys,
          "what is written is read back");
  } catch (const UserError& error) {
    check(std::string_view(error.what()).starts_with("fuzzed"), "a complaint begins with the file's name");
  }
}

constexpr std::array<FuzzTarget, 6> kTargets = {{
    {"trace_auto", [](std::string_view bytes) { read_as(bytes, "auto", false); }},
    {"trace_mooncake", [](std::string_view bytes) { read_as(bytes, "mooncake", false); }},
    {"trace_azure", [](std::string_view bytes) { read_as(bytes, "azure", true); }},
    {"trace_burstgpt", [](std::string_view bytes) { read_as(bytes, "burstgpt", true); }},
    {"trace_sharegpt", [](std::string_view bytes) { read_as(bytes, "sharegpt", false); }},
    {"trace_tpsim", [](std::string_view bytes) { read_as(bytes, "tpsim", true); }},
}};

}  // namespace

std::span<const FuzzTarget> trace_targets() { return kTargets; }

}  // namespace tpsim::fuzz
