#include "launch/flags/disaggregation_flags.h"

#include <utility>

#include "launch/cli/flag_values.h"
#include "launch/flags/router_flags.h"
#include "proto/base/error.h"

namespace tpsim::launch {

void declare_disaggregation(FlagSet& flags, DisaggregationArgs& args) {
  // Notes the flag, too.
  const auto of_pairs = [&args](FlagSet::ReadValue read) -> FlagSet::ReadValue {
    return [&args, read = std::move(read)](std::string_view flag, const std::string& value) {
      read(flag, value);
      if (args.given.empty()) args.given = flag;
    };
  };
  flags.add_switch(
      "--pd-disaggregation",
      "prefill and decode are servers of their own behind SGLang's router; KV goes from the ones to "
      "the others",
      args.pd_disaggregation);
  flags.add_value("--prefill", "N", "servers that prefill (default 1)",
                  of_pairs(count(args.prefill, 1, 1024)));
  flags.add_value("--decode", "N", "servers that decode (default 1)", of_pairs(count(args.decode, 1, 1024)));
  flags.add_flags_value("--decode-args",
                        "in what decode servers differ from what is said here, as one word: "
                        "--decode-args=\"--tp 8 --attention-backend flashinfer\"",
                        of_pairs(text(args.decode_args)));
  flags.add_value(
      "--prefill-policy", "POLICY",
      "as --router-policy, of prefill servers, or bucket: prompts by their length (default cache_aware)",
      of_pairs(router_policy(args.prefill_policy, /*of_prefill=*/true)));
  flags.add_value("--decode-policy", "POLICY", "the same of decode servers",
                  of_pairs(router_policy(args.decode_policy)));
  flags.add_value("--num-reserved-decode-tokens", "N",
                  "that a decode server keeps free for each of its requests (default 512)",
                  of_pairs(count(args.num_reserved_decode_tokens, 0)));
  flags.add_switch("--disaggregation-decode-enable-radix-cache",
                   "decode servers keep prefixes, too, and are not sent what they have of a prompt",
                   args.decode_enable_radix_cache);
  flags.add_value("--disaggregation-transfer-backend", "NAME",
                  "mooncake or nixl, priced alike, as nixl was measured (default nixl)",
                  of_pairs(word({"nixl", "mooncake"}, args.transfer_backend)));
  flags.add_value("--disaggregation-ib-device", "NAMES", "KV goes through these NICs: --kv-link network",
                  of_pairs(text(args.ib_device)));
  flags.add_value(
      "--kv-link", "LINK",
      "what KV goes through: nvlink, pcie or network (default: what joins a node's GPUs, where all fit "
      "in one node, else network)",
      of_pairs(word({"nvlink", "pcie", "network"}, args.kv_link)));
  flags.add_value("--kv-link-bandwidth", "GB/S",
                  "of each GPU, one direction (default: the link's of --hardware; network: 50)",
                  of_pairs(real(args.kv_link_bandwidth, 0, false, 1e6, true)));
}

void check_disaggregation(const DisaggregationArgs& args) {
  const std::string_view given = !args.given.empty() ? std::string_view(args.given)
                                 : args.decode_enable_radix_cache
                                     ? "--disaggregation-decode-enable-radix-cache"
                                     : "";
  if (!args.pd_disaggregation && !given.empty())
    throw_user_error("{}: needs --pd-disaggregation, which splits prefill from decode", given);
}

}  // namespace tpsim::launch
