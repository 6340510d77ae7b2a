#include "launch/diffusion/parallelism.h"

#include <fmt/format.h>

#include <algorithm>

#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

constexpr std::uint32_t kAutomaticCfg = 2;

// _adjust_parallelism: guidance shared out, where nobody said how.
bool shares_guidance(const ParallelAsked& asked, const DeploymentRule& rule, bool guided, bool manual,
                     Parallelism& out) {
  if (asked.cfg) return *asked.cfg > 1;
  if (asked.cfg_parallel) return *asked.cfg_parallel;
  if (manual || !guided || asked.num_gpus < 2 || asked.sp || asked.ulysses || asked.ring) return false;
  const bool forbidden = std::ranges::find(rule.no_auto_cfg, asked.num_gpus) != std::end(rule.no_auto_cfg);
  const std::uint32_t degree = forbidden ? 1 : kAutomaticCfg;
  if (asked.num_gpus % (asked.dp * out.tp * degree) != 0) return false;
  if (forbidden) {
    out.notes.push_back(fmt::format(
        "classifier-free guidance is not shared out at {} GPUs, as SGLang has it for this pipeline",
        asked.num_gpus));
    return false;
  }
  out.notes.push_back(
      "--cfg-parallel-size 2, chosen by SGLang: the pipeline is guided by default and nothing says how to "
      "share "
      "its GPUs (--cfg-parallel-size 1 gives all of them to the sequence)");
  return true;
}

void check(const Parallelism& p, bool shares) {
  if (p.kv_gather > 1 && p.sp != p.kv_gather)
    throw_user_error(
        "--kv-gather-degree {}: must be the {} GPUs that are left for the sequence by --dp-size {}, "
        "--tp-size {} and --cfg-parallel-size {}",
        p.kv_gather, p.sp, p.dp, p.tp, p.cfg);
  if (p.sp > p.num_gpus || p.num_gpus % p.sp != 0)
    throw_user_error("--sp-degree {}: must divide --num-gpus {}", p.sp, p.num_gpus);
  if (p.num_gpus % p.dp != 0) throw_user_error("--dp-size {}: must divide --num-gpus {}", p.dp, p.num_gpus);
  const std::uint32_t group = p.dp * p.tp * (shares ? p.cfg : 1);
  if (p.num_gpus % group != 0)
    throw_user_error("--num-gpus {}: must be divisible by --dp-size {} x --tp-size {}{} = {}", p.num_gpus,
                     p.dp, p.tp, shares ? fmt::format(" x --cfg-parallel-size {}", p.cfg) : "", group);
  const std::uint32_t exchanges = p.kv_gather > 1 ? p.kv_gather : p.ulysses;
  if (p.sp != exchanges * p.ring)
    throw_user_error(
        "--ulysses-degree {} x --ring-degree {} = {}: must be the {} GPUs of the sequence "
        "(--sp-degree, or what --dp-size, --tp-size and --cfg-parallel-size leave of --num-gpus {})",
        p.ulysses, p.ring, p.ulysses * p.ring, p.sp, p.num_gpus);
  if (shares && p.num_gpus == 1)
    throw_user_error("--enable-cfg-parallel: needs two GPUs or more, and --num-gpus is 1");
  // Not refused by SGLang, whose process groups then come out wrong.
  if (group * p.sp != p.num_gpus)
    throw_user_error(
        "--num-gpus {}: --dp-size {} x --tp-size {} x --cfg-parallel-size {} x --sp-degree {} = {} "
        "leaves GPUs without work",
        p.num_gpus, p.dp, p.tp, p.cfg, p.sp, group * p.sp);
}

}  // namespace

Parallelism resolve_parallelism(const ParallelAsked& asked, const DeploymentRule& rule, bool guided,
                                bool manual) {
  Parallelism out;
  out.num_gpus = asked.num_gpus;
  out.tp = asked.tp.value_or(1);
  out.dp = asked.dp;
  const bool shares = shares_guidance(asked, rule, guided, manual, out);
  out.cfg = asked.cfg.value_or(shares ? kAutomaticCfg : 1);
  const std::uint32_t group = out.dp * out.tp * (shares ? out.cfg : 1);
  out.sp = asked.sp.value_or(out.num_gpus % group == 0 ? out.num_gpus / group : 1);
  out.ulysses = asked.ulysses.value_or(1);
  out.ring = asked.ring.value_or(1);
  out.kv_gather = asked.kv_gather.value_or(1);
  if (!asked.ulysses && !asked.ring && !asked.kv_gather && out.sp != 1) {
    if (out.sp == 2) {
      out.kv_gather = 2;
      out.notes.push_back(
          "--kv-gather-degree 2, chosen by SGLang for two GPUs of a sequence: keys and values are gathered, "
          "and "
          "layers that cannot do that use Ulysses (--ulysses-degree 2 makes all of them)");
    } else {
      out.ulysses = out.sp;
      out.notes.push_back(fmt::format(
          "--ulysses-degree {}, chosen by SGLang: all GPUs that are left for the sequence", out.sp));
    }
  }
  if (out.kv_gather > 1 && (out.ulysses != 1 || out.ring != 1))
    throw_user_error(
        "--kv-gather-degree {}: excludes --ulysses-degree {} and --ring-degree {}, of the three one "
        "may be above 1",
        out.kv_gather, out.ulysses, out.ring);
  check(out, shares);
  return out;
}

}  // namespace tpsim::launch
