// SGLang 0.5.12: what holds in it besides. Behind each rule its file and line in the wheel.
#include "scheduler/releases/sglang_release.h"

namespace tpsim::scheduler {

SglangRelease v0_5_12() {
  SglangRelease release = {.name = "0.5.12", .rules = v0_5_10().rules};
  release.rules.speculation_captures_prefills = true;  // server_args.py:1301
  release.rules.one_kernel_routes_ungrouped = true;    // layers/moe/topk.py:1143
  release.rules.mla_splits_fill_device = true;         // layers/attention/triton_backend.py:151
  release.rules.fuses_all_reduces = 4;                 // server_args.py:2448
  release.rules.hands_answers_on_uncopied = true;      // managers/tokenizer_manager.py:1776
  return release;
}

}  // namespace tpsim::scheduler
