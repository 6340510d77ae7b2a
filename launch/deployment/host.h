// What the server's host takes around the passes of its GPUs: between them, before the first kernel, and
// while a server that has not met a size compiles for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/deployment/attention.h"
#include "launch/deployment/subject.h"
#include "launch/flags/server_args.h"
#include "proto/hardware.pb.h"
#include "proto/host.pb.h"
#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/llm/fresh_kernels.h"
#include "scheduler/config.h"
#include "scheduler/releases/sglang_release.h"

namespace tpsim::launch {

// --hardware as its host launches kernels.
proto::HardwareProfile load_device(const ServerArgs& args);

// The scheduler's options that say what the host takes, but for derive_host_steps(); all others are the
// defaults.
scheduler::SchedulerConfig host_options(const ServerArgs& args, const proto::HardwareProfile& hardware,
                                        const proto::HostProfile& host);
// Those that follow from scheduler_step_seconds and the release, both of `config`, and from the device.
void derive_host_steps(scheduler::SchedulerConfig& config, const proto::HostProfile& host,
                       const proto::HardwareProfile& device);

// What a server that has compiled nothing before has met; none: it has met all sizes. `chunk`: of prefill,
// tokens; `captured`: batch sizes.
std::optional<rank::FreshKernelRules> fresh_kernels(const ServerArgs& args, const rank::ModelConfig& model,
                                                    const AttentionChoice& attention,
                                                    const rank::ParallelLayout& layout, std::uint32_t chunk,
                                                    const std::vector<std::uint32_t>& captured);

// A list of load names as `tpsim validate` prints them, divided by commas:
// closed:INPUT:OUTPUT:CONCURRENCY:PROMPTS, burst:INPUT:OUTPUT:PROMPTS; every other NAME:… counts as prompts
// and batches of all sizes; `warmup` for nothing but the request that warms a server up. Throws UserError
// with a sentence about `flag`.
std::vector<rank::ServedLoad> parse_served_before(std::string_view flag, const std::string& text);

// Between a client and the scheduler, of --front-end `kind`: "ids", "text" or "kit", the client of
// shared/measure; on a host that takes `launch_seconds` to launch a kernel.
scheduler::FrontEndConfig front_end_of(const proto::HostProfile& host, double launch_seconds,
                                       std::string_view kind, std::uint32_t tokenizer_workers,
                                       const scheduler::ReleaseRules& rules);
// The part of it that is the client's.
scheduler::ClientShare client_share_of(const proto::HostProfile& host);

void write_host(const HostArgs& args, const scheduler::SchedulerConfig& config, Rows& rows);

}  // namespace tpsim::launch
