#include "launch/flags/graph_flags.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "launch/cli/flag_values.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

constexpr std::uint64_t kMaxPrefillTokens = 1'000'000;  // of one captured prefill

void read_capture_sizes(std::string_view flag, const std::vector<std::string>& values, std::uint64_t most,
                        std::vector<std::uint32_t>& target) {
  target.clear();
  for (const std::string& value : values)
    target.push_back(static_cast<std::uint32_t>(parse_count(flag, value, 1, most)));
  std::sort(target.begin(), target.end());
  target.erase(std::unique(target.begin(), target.end()), target.end());
}

}  // namespace

void declare_graphs(FlagSet& flags, GraphArgs& args) {
  const auto sizes = [](std::vector<std::uint32_t>& target, std::uint64_t most) {
    return [&target, most](std::string_view flag, const std::vector<std::string>& values) {
      read_capture_sizes(flag, values, most, target);
    };
  };
  flags.add_switch("--disable-cuda-graph", "the host issues every kernel of decode and prefill",
                   args.disable_cuda_graph);
  flags.add_switch("--disable-decode-cuda-graph", "the same for decode alone",
                   args.disable_decode_cuda_graph);
  flags.add_switch("--disable-prefill-cuda-graph,--disable-piecewise-cuda-graph",
                   "the same for prefill alone", args.disable_prefill_cuda_graph);
  flags.add_value("--cuda-graph-max-bs,--cuda-graph-max-bs-decode", "N",
                  "largest captured batch (default: from GPU and --tp)",
                  count(args.cuda_graph_max_bs, 1, 65536));
  flags.add_list("--cuda-graph-bs,--cuda-graph-bs-decode", "N",
                 "captured batch sizes (default: SGLang's list up to the largest)",
                 sizes(args.cuda_graph_bs, 65536));
  flags.add_value("--cuda-graph-max-bs-prefill,--piecewise-cuda-graph-max-tokens", "TOKENS",
                  "largest prefill in captured pieces (default: --chunked-prefill-size)",
                  count(args.prefill_cuda_graph_max_tokens, 1, kMaxPrefillTokens));
  flags.add_list("--cuda-graph-bs-prefill,--piecewise-cuda-graph-tokens", "TOKENS",
                 "captured sizes of prefill (default: SGLang's list up to the largest)",
                 sizes(args.prefill_cuda_graph_tokens, kMaxPrefillTokens));
}

void check_graphs(const GraphArgs& args) {
  if (!args.cuda_graph_bs.empty() && args.cuda_graph_max_bs &&
      args.cuda_graph_bs.back() != *args.cuda_graph_max_bs)
    throw_user_error("--cuda-graph-max-bs {}: contradicts --cuda-graph-bs, whose largest size is {}",
                     *args.cuda_graph_max_bs, args.cuda_graph_bs.back());
  if (!args.prefill_cuda_graph_tokens.empty() && args.prefill_cuda_graph_max_tokens &&
      args.prefill_cuda_graph_tokens.back() != *args.prefill_cuda_graph_max_tokens)
    throw_user_error(
        "--cuda-graph-max-bs-prefill {}: contradicts --cuda-graph-bs-prefill, whose largest size is {}",
        *args.prefill_cuda_graph_max_tokens, args.prefill_cuda_graph_tokens.back());
}

}  // namespace tpsim::launch
