#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "launch/simulation/prompts.h"
#include "proto/base/error.h"
#include "scheduler/workload/trace_input.h"
#include "tests/fuzz/fuzz_targets.h"

namespace tpsim::fuzz {
namespace {

void check(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

void read(std::string_view bytes) {
  try {
    const std::vector<launch::Prompt> prompts = launch::read_prompts(scheduler::open_memory(bytes), "fuzzed");
    check(!prompts.empty(), "there is a prompt");
    for (const launch::Prompt& prompt : prompts) {
      check(!prompt.ids.empty(), "a prompt has a token");
      check(prompt.where.starts_with("fuzzed:"), "a prompt knows its line");
    }
  } catch (const UserError& error) {
    check(std::string_view(error.what()).starts_with("fuzzed"), "a complaint begins with the file's name");
  }
}

constexpr std::array<FuzzTarget, 1> kTargets = {{{"prompts", read}}};

}  // namespace

std::span<const FuzzTarget> prompt_targets() { return kTargets; }

}  // namespace tpsim::fuzz
