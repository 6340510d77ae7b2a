#include "launch/deployment/host.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstddef>

#include "attention/selection/registry.h"
#include "launch/cli/flag_values.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "rank/cost/hardware.h"
#include "rank/cost/pass_clock.h"

namespace tpsim::launch {
namespace {

// What a token takes on its way back that is made text, detokenizer (managers/detokenizer_manager.py: two
// decodes of each, in Python) and tokenizer manager together, on the host of HostProfile's seconds. LFM2.5 of
// four kinds with 100 in flight, each on one H200 (SGLang 0.5.13, published.csv), come to 14,500 to 15,800
// tokens a second whatever their size, 1 to 2 s behind their first tokens; on a B200's host to 22,600, which
// is as much faster as its launches are.
constexpr double kTextStream = 63e-6;

// What the list of an answer's ids takes to copy for each of its tokens, a token in it. 512 such lists, of
// which each step copies all: 7 ns where a core's cache holds the ids, 13 with 1,000 in each, 31 to 52 with
// 1,500 and 2,000 (CPython 3.11, one core of a Xeon). Llama 3.1 8B in fp8 on 8 H200s with 512 in flight
// (0.5.6, AIConfigurator's rows): answers of 2,000 tokens take 1.4 times as long a token as those of 1,000.
constexpr double kCopiedToken = 20e-9;

}  // namespace

proto::HardwareProfile load_device(const ServerArgs& args) {
  proto::HardwareProfile hardware = rank::load_hardware(hardware_name(args));
  if (args.kernel_launch_us) hardware.set_kernel_launch_seconds(*args.kernel_launch_us * 1e-6);
  return hardware;
}

scheduler::SchedulerConfig host_options(const ServerArgs& args, const proto::HardwareProfile& hardware,
                                        const proto::HostProfile& host) {
  scheduler::SchedulerConfig config;
  if (!args.pass_gap_ms.empty()) {
    config.pass_gap_seconds = args.pass_gap_ms[0] * 1e-3;
    config.pass_gap_request_seconds = args.pass_gap_ms[1] * 1e-3;
  } else if (args.disable_overlap_schedule && !args.numeric()) {
    config.pass_gap_seconds = host.serial().pass_seconds();
    config.pass_gap_request_seconds = host.serial().request_seconds();
  }
  // Servers that are said to leave no gap are said to hide this, too.
  if (args.disable_overlap_schedule && config.pass_gap_seconds > 0)
    config.serial_extend_seconds = host.serial().extend_seconds();
  if (!args.compile_seconds.empty()) {
    config.compile_batch_seconds = args.compile_seconds[0];
    config.compile_chunk_seconds = args.compile_seconds[1];
  }
  config.compile_decode_seconds = args.compile_decode_seconds.value_or(0);
  // Numeric execution measures; the scheduler's own time is small against computing on the CPU.
  config.scheduler_step_seconds = args.numeric() ? 0 : hardware.scheduler_step_seconds();
  if (!args.numeric() && attention::kCudaGenerations.contains(generation_of(hardware)))
    config.launch_queue = host.launch_queue().launches();
  if (args.launch_queue) config.launch_queue = *args.launch_queue;
  return config;
}

void derive_host_steps(scheduler::SchedulerConfig& config, const proto::HostProfile& host,
                       const proto::HardwareProfile& device) {
  const double seconds = config.scheduler_step_seconds;
  config.forming_extend_seconds = host.forming().extend_steps() * seconds;
  // Without overlap each request adds this to a decode; beside it the host's part of one is as much longer.
  const double pace = rank::host_pace(device.kernel_launch_seconds());
  config.decode_step_seconds = config.sglang_release.rules.decode_steps * seconds;
  config.decode_request_seconds = seconds > 0 ? host.serial().request_seconds() * pace : 0;
}

std::optional<rank::FreshKernelRules> fresh_kernels(const ServerArgs& args, const rank::ModelConfig& model,
                                                    const AttentionChoice& attention,
                                                    const rank::ParallelLayout& layout, std::uint32_t chunk,
                                                    const std::vector<std::uint32_t>& captured) {
  if (!args.served_before || args.numeric()) return std::nullopt;
  const rank::MoeConfig& moe = model.moe;
  const bool triton_experts = moe.num_layers > 0 && !layout.a2a();
  return rank::FreshKernelRules{
      .decode =
          attention::find_backend(attention.backends.decode, "--decode-attention-backend").row.fresh_decode,
      .page_size = attention.page_size,
      .chunk = chunk,
      .top_k = triton_experts ? moe.top_k + moe.num_fused_shared_experts : 0,
      .captured = captured,
      .served = parse_served_before("--served-before", *args.served_before)};
}

std::vector<rank::ServedLoad> parse_served_before(std::string_view flag, const std::string& text) {
  constexpr const char* kForms =
      "must be warmup, or loads as closed:INPUT:OUTPUT:CONCURRENCY:PROMPTS, burst:INPUT:OUTPUT:PROMPTS or "
      "azure:FROM:TO:SCALE, divided by commas";
  std::vector<rank::ServedLoad> loads;
  for (const std::string& name : split_list(text)) {
    const std::vector<std::string> parts = split_list(name, ':');
    const auto number = [&](std::size_t i) {
      try {
        return static_cast<std::uint32_t>(parse_count(flag, parts[i], 1, kMaxCount));
      } catch (const UserError&) {
        throw_user_error("{} {}: {}", flag, text, kForms);
      }
    };
    if (name == "warmup") continue;
    const bool drawn = parts[0] == "closed" || parts[0] == "burst";
    if (drawn && parts.size() == (parts[0] == "closed" ? 5 : 4)) {
      loads.push_back({number(1), number(3), number(2)});
    } else if (parts.size() > 1 && !drawn &&
               std::isalpha(static_cast<unsigned char>(parts[0].empty() ? 0 : parts[0].front())) != 0) {
      loads.push_back({});
    } else {
      throw_user_error("{} {}: {}", flag, text, kForms);
    }
  }
  return loads;
}

scheduler::FrontEndConfig front_end_of(const proto::HostProfile& host, double launch_seconds,
                                       std::string_view kind, std::uint32_t tokenizer_workers,
                                       const scheduler::ReleaseRules& rules) {
  const proto::HostProfile::FrontEnd& times = host.front_end();
  scheduler::FrontEndConfig config = {
      .pass_seconds = times.pass_seconds(),
      .request_seconds = times.request_seconds(),
      .token_seconds = kind == "text" ? times.text_token_seconds() : times.token_seconds(),
      .stream_seconds =
          kind == "text" ? kTextStream * rank::host_pace(launch_seconds) : times.stream_seconds(),
      .copy_seconds = rules.hands_answers_on_uncopied ? 0 : kCopiedToken,
      .response_seconds = times.response_seconds(),
      .prepares_images = true,
      .by_socket = true,
      .workers = kind == "text" ? tokenizer_workers : 1};  // server_args.py: one with --skip-tokenizer-init
  if (kind == "kit") {
    config.client_seconds = host.kit().client_seconds();
    config.client_token_seconds = host.kit().client_token_seconds();
    config.dispatch_seconds = host.kit().dispatch_seconds();
    config.connect_seconds = host.kit().connect_seconds();
  }
  return config;
}

scheduler::ClientShare client_share_of(const proto::HostProfile& host) {
  return {.asking = host.client_share().asking_seconds(), .reading = host.client_share().reading_seconds()};
}

void write_host(const HostArgs& args, const scheduler::SchedulerConfig& config, Rows& rows) {
  if (config.pass_gap_seconds > 0 || config.pass_gap_request_seconds > 0)
    rows["pass_gap_ms"] = fmt::format("{},{}", format_real(config.pass_gap_seconds * 1e3),
                                      format_real(config.pass_gap_request_seconds * 1e3));
  if (args.kernel_launch_us) rows["kernel_launch_us"] = format_real(*args.kernel_launch_us);
  if (!args.compile_seconds.empty())
    rows["compile_seconds"] = fmt::format("{}", fmt::join(args.compile_seconds, ","));
  if (args.compile_decode_seconds) rows["compile_decode_seconds"] = format_real(*args.compile_decode_seconds);
  if (args.tokenizer_worker_num > 1) rows["tokenizer_worker_num"] = std::to_string(args.tokenizer_worker_num);
  if (args.served_before) rows["served_before"] = *args.served_before;
  if (args.launch_queue) rows["launch_queue"] = std::to_string(*args.launch_queue);
}

}  // namespace tpsim::launch
