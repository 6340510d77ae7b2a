#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "launch/lab/measurements/measurement_formats.h"
#include "launch/lab/measurements/published_generations.h"
#include "launch/lab/measurements/server_account.h"
#include "launch/lab/measurements/server_batches.h"
#include "proto/base/error.h"
#include "scheduler/workload/trace_input.h"
#include "tests/fuzz/fuzz_targets.h"

namespace tpsim::fuzz {
namespace {

void check(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

template <typename Read>
void refused_or_read(Read read) {
  try {
    read();
  } catch (const UserError& error) {
    check(std::string_view(error.what()).starts_with("fuzzed"), "a complaint begins with the file's name");
  }
}

void measurements(std::string_view bytes) {
  refused_or_read([bytes] {
    const std::vector<launch::MeasuredLoad> loads =
        launch::read_measurements(bytes, "fuzzed", {.traces = "/nowhere", .hardware = "h200-sxm"});
    check(!loads.empty(), "there is a load");
    for (const launch::MeasuredLoad& load : loads) {
      check(!load.id.empty() || !load.server.empty(), "a load has a name");
      check(load.file.starts_with("fuzzed:"), "a load knows its line");
      check(load.flags.size() >= 6, "a load names model, GPU and --tp");
      for (const auto& figure :
           {load.measured.ttft_ms, load.measured.tpot_ms, load.measured.e2e_ms, load.measured.duration_s})
        check(!figure || *figure >= 0, "no time is negative");
      if (!load.workload) continue;
      double before = 0;
      for (const scheduler::WorkloadRequest& request : load.workload->requests) {
        check(request.arrival_time >= before, "requests are in order");
        check(!request.prompt.empty() && request.max_new_tokens > 0, "a request has tokens");
        before = request.arrival_time;
      }
    }
  });
}

scheduler::TraceInput input_of(std::string_view bytes) {
  return {scheduler::decode(scheduler::open_memory(bytes), "fuzzed"), "fuzzed"};
}

void servers(std::string_view bytes) {
  refused_or_read([bytes] {
    scheduler::TraceInput input = input_of(bytes);
    for (const auto& [name, server] : launch::read_servers(input)) {
      check(!name.empty(), "a server has a name");
      check(server.tp_size >= 1, "a server has a GPU");
    }
  });
}

void check_accepted(const std::vector<launch::MeasuredBatch>& batches) {
  std::int64_t before = -1;
  launch::MeasuredLoad load;
  load.flags = {"--speculative-algorithm", "NGRAM"};
  load.batches = batches;
  launch::add_accept_lens(256, load);
  for (const auto& [step, mean] : load.accept_lens) {
    check(step > before && mean >= 1, "steps ascend, and keep a token");
    before = step;
  }
}

void batches(std::string_view bytes) {
  refused_or_read([bytes] {
    scheduler::TraceInput input = input_of(bytes);
    for (const auto& [key, list] : launch::read_batches(input)) {
      check(!list.empty(), "a load that is named has a batch");
      check_accepted(list);
    }
  });
}

void server_log(std::string_view bytes) {
  refused_or_read([bytes] {
    scheduler::TraceInput input = input_of(bytes);
    const std::vector<std::vector<launch::MeasuredBatch>> loads = launch::read_server_log(input);
    check(!loads.empty(), "what comes before the first flush is a part");
    for (const auto& list : loads) check_accepted(list);
  });
}

void published_generations(std::string_view bytes) {
  refused_or_read([bytes] {
    scheduler::TraceInput input = input_of(bytes);
    for (const launch::PublishedGeneration& row : launch::read_published_generations(input)) {
      check(row.file.starts_with("fuzzed:"), "a row knows its line");
      check(!row.id.empty() && !row.timed.empty(), "a row has a name and says what was timed");
      check(row.num_gpus >= 1, "a row has a GPU");
      for (const auto& figure : {row.seconds, row.peak_gib, row.speedup})
        check(!figure || *figure > 0, "a figure is above 0");
    }
  });
}

constexpr std::array<FuzzTarget, 5> kTargets = {{{"measurements", measurements},
                                                 {"measured_servers", servers},
                                                 {"measured_batches", batches},
                                                 {"published_generations", published_generations},
                                                 {"server_log", server_log}}};

}  // namespace

std::span<const FuzzTarget> measurement_targets() { return kTargets; }

}  // namespace tpsim::fuzz
