#include "launch/deployment/sides.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "launch/deployment/disaggregation.h"
#include "launch/deployment/elastic.h"
#include "launch/deployment/router.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "rank/config/shard.h"
#include "rank/cost/hardware.h"
#include "rank/llm/memory.h"

namespace tpsim::launch {
namespace {

using scheduler::DisaggregationConfig;
using scheduler::DisaggregationMode;
using scheduler::KvLinkConfig;

// What the two schedulers' threads spend on a request, and the way of the messages between them: stamps of
// SGLang 0.5.12 with NIXL on two H200s (shared/data/fleet/pd_requests.csv.gz: 1,024 and 32,768 tokens alone).
constexpr DisaggregationConfig kThreads = {.preallocate_seconds = 0.75e-3,
                                           .preallocate_token_seconds = 0.03e-6,
                                           .prebuilt_seconds = 0.55e-3,
                                           .prebuilt_token_seconds = 0.12e-6,
                                           .send_seconds = 0.45e-3,
                                           .send_token_seconds = 0.16e-6};
constexpr double kPageListSeconds = 0.6e-3;
constexpr double kNoticeSeconds = 0.3e-3;

// A chunk of KV, from the queue of the transfer threads to the end of its only run: 3.4 ms at 1,024 tokens,
// of which 0.55 us a token are the wire's and 0.17 ms the 64 descriptors (pd_chunks.csv.gz).
constexpr double kChunkSeconds = 2.6e-3;
// A descriptor made and posted: 1,024 to 65,536 of them, 2.6 to 3.3 us each (nixl_bw.json).
constexpr double kDescriptorSeconds = 2.7e-6;
// Of 450 GB/s: 223 to 238 GB/s in transfers of 1 to 4 GB (nixl_bw.json).
constexpr double kNvlinkShare = 0.52;
// Of links that nobody measured here: what large messages usually reach.
constexpr double kOtherShare = 0.8;
// Where a GPU's file states no network: 400 Gbit/s for each, as in HGX nodes with ConnectX-7.
constexpr double kNetworkBandwidth = 50e9;

// SGLang's router hands the first piece of a stream on with later ones: first tokens came 40 ms later than
// from the servers themselves, the last ones did not (rt-pd).
constexpr double kRouterFirstTokenSeconds = 0.04;

// KV of retracted requests, through memory that is not pinned: 90 to 200 ms for 900 to 1,700 tokens of 128
// KiB, and 8 such requests back in under 90 ms (batches.csv.gz of D2, closed:512:1500:48:48).
constexpr double kOffloadBandwidth = 1.25e9;  // bytes a second
constexpr double kLoadBandwidth = 13e9;

// Where SGLang's decode server has rows for requests on their way (model_runner_kv_cache_mixin.py).
constexpr std::uint32_t kFewRequests = 32;

// KV of a token on one rank, a drafting head's included: it is sent as more layers
// (disaggregation/prefill.py, draft_token_to_kv_pool). The head's input, 8 to 16 KB of a request, goes with
// the list of its pages.
double token_bytes(const Deployment& side) {
  auto bytes = static_cast<double>(side.memory.kv_bytes_per_token);
  if (!side.speculation.draft) return bytes;
  const rank::ModelConfig& head = side.speculation.draft->config;
  return bytes + static_cast<double>(rank::kv_bytes_per_token(
                     head, rank::make_shard(head, side.draft.layout, 0), side.draft.kv_format,
                     head.is_sparse() ? side.sparse.token_bytes : 0));
}

DisaggregationConfig config_of(const DisaggregationArgs& args, const Deployment& side,
                               DisaggregationMode mode) {
  DisaggregationConfig config = kThreads;
  config.mode = mode;
  config.num_reserved_decode_tokens = args.num_reserved_decode_tokens;
  const std::uint32_t running = side.scheduler.max_running_requests;
  config.extra_rows = running <= kFewRequests ? 2 * running : 0;
  config.offload_token_seconds = token_bytes(side) / kOffloadBandwidth;
  config.load_token_seconds = token_bytes(side) / kLoadBandwidth;
  return config;
}

// Of the slower end's NICs, for each GPU; bytes per second.
double network_bandwidth(const Deployment& prefill, const Deployment& decode) {
  const auto of = [](const Deployment& side) {
    const double stated = side.hardware.network().bandwidth();
    return stated > 0 ? stated : kNetworkBandwidth;
  };
  return std::min(of(prefill), of(decode));
}

// --kv-link, or what follows from where the GPUs are.
std::string link_of(const DisaggregationArgs& args, const Deployment& prefill, const Deployment& decode,
                    Notes& notes) {
  const auto& hardware = prefill.hardware;
  const std::string within = hardware.nvlink() ? "nvlink" : "pcie";
  const std::uint32_t gpus =
      args.prefill * prefill.ranks.num_ranks() + args.decode * decode.ranks.num_ranks();
  const std::uint32_t node = rank::gpus_of_node(hardware);
  if (!args.kv_link.empty()) {
    if (args.kv_link == "nvlink" && within != "nvlink")
      throw_user_error("--kv-link nvlink: {} has none; use pcie or network", hardware.name());
    return args.kv_link;
  }
  if (args.ib_device.empty() && gpus <= node && hardware.name() == decode.hardware.name()) return within;
  if (!args.kv_link_bandwidth)
    say(notes,
        "KV goes through a network of {:.0f} GB/s a GPU, of which {:.0f} % are reckoned with; "
        "--kv-link-bandwidth says another",
        network_bandwidth(prefill, decode) / 1e9, 100 * kOtherShare);
  return "network";
}

// KV is as fast as the busier end: on each GPU of it lies a part of every token.
KvLinkConfig link_config(const DisaggregationArgs& args, const Deployment& prefill, const Deployment& decode,
                         std::string& link, Notes& notes) {
  link = link_of(args, prefill, decode, notes);
  double bandwidth = link == "network" ? network_bandwidth(prefill, decode) * kOtherShare
                                       : prefill.hardware.link_bandwidth();
  if (link == "nvlink") bandwidth *= kNvlinkShare;
  if (link == "pcie") {
    if (prefill.hardware.nvlink() && !args.kv_link_bandwidth)
      throw_user_error("--kv-link pcie: the profile of {} states its NVLink alone; add --kv-link-bandwidth",
                       prefill.hardware.name());
    bandwidth *= kOtherShare;
  }
  if (args.kv_link_bandwidth) bandwidth = *args.kv_link_bandwidth * 1e9;
  if (link != "nvlink")
    say(notes, "KV over {}: chunks cost the host what they cost with NIXL over NVLink", link);
  const auto buffers_of = [](const rank::ModelConfig& layers) {
    return layers.num_layers * (layers.is_mla() ? 1.0 : 2.0);
  };
  const rank::ModelConfig& model = prefill.model;
  const double buffers =
      buffers_of(model) + (prefill.speculation.draft ? buffers_of(prefill.speculation.draft->config) : 0);
  KvLinkConfig config;
  config.chunk_seconds = kChunkSeconds;
  config.run_seconds = buffers * kDescriptorSeconds;
  config.token_seconds = std::max(token_bytes(prefill), token_bytes(decode)) / bandwidth;
  config.page_list_seconds = kPageListSeconds;
  config.notice_seconds = kNoticeSeconds;
  config.token_runs =
      !model.is_mla() && prefill.parallel.layout.attn_tp_size() != decode.parallel.layout.attn_tp_size();
  const auto tp_of = [](const rank::ParallelLayout& of) {
    return of.dp_size == 1 ? fmt::format("{}", of.tp_size)
                           : fmt::format("{} (--dp-size {})", of.tp_size, of.dp_size);
  };
  if (config.token_runs)
    say(notes, "--tp {} and {}: heads are cut differently, so that every token's go one by one",
        tp_of(prefill.parallel.layout), tp_of(decode.parallel.layout));
  return config;
}

void refuse_what_is_not_split(const ServerArgs& args, const Deployment& prefill, const Deployment& decode) {
  const auto refuse = [](std::string_view what, std::string_view instead) {
    throw_user_error("--pd-disaggregation: {} is not simulated with it; {}", what, instead);
  };
  if (args.numeric()) refuse("--executor numeric", "use --executor modeled");
  if (!args.record_batches.empty()) refuse("--record-batches", "record one server");
  if (!args.checkpoint_file().empty()) refuse("a checkpoint", "leave --checkpoint and --resume out");
  if (args.parallel.replicas() > 1) refuse("--dp-size", "say --prefill N and --decode N");
  for (const Deployment* side : {&prefill, &decode}) {
    if (side->pipeline.config.staged()) refuse("--pp-size", "use --tp");
    const scheduler::SpeculationConfig& drafts = side->speculation.config;
    if (drafts.enabled() && !(drafts.has_head() && drafts.v2))
      refuse(fmt::format("--speculative-algorithm {}{}", side->speculation.algorithm,
                         drafts.has_head() ? " in spec v1" : ", which has no head,"),
             "use EAGLE, EAGLE3 or NEXTN of --sglang-version 0.5.14 or newer");
    if (side->scheduler.sliding_window_size > 0)
      refuse("a pool of sliding-window layers", "say --disable-hybrid-swa-memory, or serve it unsplit");
    if (side->scheduler.states.slots > 0 || side->model.is_hybrid_linear())
      refuse("a model with states beside its KV", "serve it unsplit");
  }
}

void check_exchange(const Deployment& prefill, const Deployment& decode) {
  if (prefill.model.name != decode.model.name)
    throw_user_error("--decode-args: decode servers have {}, prefill servers {}; one model is needed",
                     decode.model.name, prefill.model.name);
  if (prefill.scheduler.page_size != decode.scheduler.page_size)
    throw_user_error(
        "--page-size: prefill servers have pages of {}, decode servers of {}, which SGLang does not "
        "exchange; give both the same",
        prefill.scheduler.page_size, decode.scheduler.page_size);
  if (prefill.attention.kv_format != decode.attention.kv_format)
    throw_user_error("--kv-cache-dtype: prefill and decode servers have different ones; give both the same");
  // The head's KV and its first input are the prefill server's to make.
  const auto head_of = [](const Deployment& side) {
    return side.speculation.draft ? side.speculation.draft->config.name : std::string();
  };
  if (prefill.speculation.algorithm != decode.speculation.algorithm || head_of(prefill) != head_of(decode))
    throw_user_error(
        "--speculative-algorithm: prefill and decode servers have different heads; give both the same");
  const std::uint64_t reserved = decode.scheduler.disaggregation.num_reserved_decode_tokens;
  if (reserved >= decode.scheduler.max_total_num_tokens)
    throw_user_error(
        "--num-reserved-decode-tokens {}: leaves no room for a prompt in the {} tokens of a decode server's "
        "KV pool; use fewer, or a larger --max-total-tokens",
        reserved, decode.scheduler.max_total_num_tokens);
}

}  // namespace

ServerArgs prefill_side_args(const ServerArgs& args) {
  ServerArgs side = args;
  const bool captures = args.sglang_release.rules.prefill_server_captures_prefills;
  (captures ? side.disable_decode_cuda_graph : side.disable_prefill_cuda_graph) = true;
  const auto method = args.given.find("--load-balance-method");
  if (method == args.given.end() || method->second == "auto")
    side.parallel.load_balance = scheduler::LoadBalanceMethod::kFollowBootstrapRoom;
  return side;
}

ServerArgs decode_side_args(const ServerArgs& args) {
  ServerArgs side = args;
  side.disable_prefill_cuda_graph = true;
  side.disable_radix_cache = !args.disaggregation.decode_enable_radix_cache;
  side.decodes_alone = true;
  side.hicache = {};
  return side;
}

void join_sides(const ServerArgs& args, Deployment decode, Deployment& prefill) {
  const DisaggregationArgs& split = args.disaggregation;
  refuse_what_is_not_split(args, prefill, decode);
  prefill.scheduler.disaggregation = config_of(split, prefill, DisaggregationMode::kPrefill);
  decode.scheduler.disaggregation = config_of(split, decode, DisaggregationMode::kDecode);
  check_exchange(prefill, decode);
  if (decode.fresh_kernels) decode.fresh_kernels->decodes_alone = true;
  Disaggregation& out = prefill.disaggregation;
  out.prefill = split.prefill;
  out.decode = split.decode;
  std::string link;
  out.link = link_config(split, prefill, decode, link, prefill.notes);
  out.decode_router = router_config(args, split.decode_policy);
  prefill.router.config = router_config(args, split.prefill_policy);
  prefill.router.elastic = resolve_elastic(args, args.router, split.prefill + split.decode, {});
  if (split.prefill_policy || split.decode_policy || !args.router.given().empty())
    prefill.router.config.first_token_seconds = kRouterFirstTokenSeconds;
  prefill.header.clear_cuda_graph_capture_seconds();
  prefill.header.clear_cuda_graph_bytes();
  decode.describe_captures(prefill.header);
  Rows& rows = *prefill.header.mutable_server_args();
  rows["prefill"] = std::to_string(split.prefill);
  rows["decode"] = std::to_string(split.decode);
  rows["decode_args"] = split.decode_args;
  rows["prefill_policy"] = to_string(prefill.router.config.policy);
  rows["decode_policy"] = to_string(out.decode_router.policy);
  write_elastic(prefill.router.elastic, rows);
  rows["num_reserved_decode_tokens"] = std::to_string(split.num_reserved_decode_tokens);
  rows["kv_link"] = link;
  if (!decode.scheduler.disable_radix_cache) rows["disaggregation_decode_enable_radix_cache"] = "true";
  if (split.kv_link_bandwidth) rows["kv_link_bandwidth"] = format_real(*split.kv_link_bandwidth);
  rows["decode_attention_backend"] = decode.attention.backends.name();
  rows["decode_max_total_num_tokens"] = std::to_string(decode.scheduler.max_total_num_tokens);
  out.decode_side = std::make_shared<const Deployment>(std::move(decode));
}

}  // namespace tpsim::launch
