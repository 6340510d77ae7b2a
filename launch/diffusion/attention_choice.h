// Which attention backend each component of a pipeline runs, by the four levels of SGLang 0.5.23: a role of a
// component, the component (a second transformer or encoder takes the first one's), --attention-backend, the
// platform's choice.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launch/diffusion/pipeline_args.h"
#include "proto/hardware.pb.h"
#include "rank/diffusion/pipeline.h"

namespace tpsim::launch {

struct AttentionRow {
  std::string component, role;  // role: self or cross
  std::string backend, reason;
};

struct AttentionSelection {
  std::map<std::string, rank::PipelinePlan::Attention, std::less<>> components;
  std::vector<AttentionRow> rows;  // in the order of the components
  std::vector<std::string> notes;
};

// What --component-attention-backends asks for, by "component" and "component.role". Throws UserError.
std::map<std::string, std::string, std::less<>> read_component_backends(const std::string& text);

// `ring`: GPUs that pass keys and values round. Throws UserError naming the flag where SGLang refuses.
AttentionSelection choose_attention(const AttentionAsked& asked, const rank::PipelineConfig& config,
                                    const proto::HardwareProfile& hardware, std::uint32_t ring);

}  // namespace tpsim::launch
