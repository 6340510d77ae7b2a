#include "launch/diffusion/attention_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "attention/diffusion/selection/diffusion_attention.h"
#include "attention/gpu_generation.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

constexpr std::string_view kComponents = "--component-attention-backends", kGlobal = "--attention-backend";
constexpr std::array<std::string_view, 2> kRoles = {"self", "cross"};
// RING_CAPABLE_ATTENTION_BACKENDS (server_args.py).
constexpr std::array<std::string_view, 2> kRingCapable = {"fa", "sage_attn"};

std::string trimmed(std::string text) {
  while (!text.empty() && text.back() == ' ') text.pop_back();
  while (!text.empty() && text.front() == ' ') text.erase(0, 1);
  return text;
}

// A second component falls back to the first one's entry.
std::optional<std::string> find(const std::map<std::string, std::string, std::less<>>& asked,
                                const std::string& component, std::string_view role) {
  std::vector<std::string> keys = {component};
  if (component.ends_with("_2")) keys.push_back(component.substr(0, component.size() - 2));
  for (const std::string& key : keys) {
    const auto at = asked.find(role.empty() ? key : fmt::format("{}.{}", key, role));
    if (at != asked.end()) return at->second;
  }
  return std::nullopt;
}

bool attends(const rank::PipelineComponent& component) {
  return component.kind != rank::ComponentKind::kVae && component.kind != rank::ComponentKind::kOther &&
         component.head_dim > 0;
}

// SGLang stops where a backend is named for layers that a component does not have, or that ask for none
// (_validate_component_attn_backend_selection of layers/attention/selector.py).
void check_asked(const std::map<std::string, std::string, std::less<>>& asked,
                 const rank::PipelineComponent& c) {
  for (const std::string_view role : {std::string_view(), kRoles[0], kRoles[1]}) {
    if (!find(asked, c.name, role)) continue;
    const std::string layers = role.empty() ? "attention" : fmt::format("{}-attention", role);
    if (!c.selects)
      throw_user_error(
          "{} {}: {} ({}) has no {} layers that go through a backend, and SGLang stops there; leave it out",
          kComponents, c.name, c.name, c.class_name, layers);
    if (role == kRoles[1] && !c.cross_attention)
      throw_user_error("{} {}.{}: {} has no {} layers, and SGLang stops there; leave it out", kComponents,
                       c.name, role, c.class_name, layers);
  }
}

}  // namespace

std::map<std::string, std::string, std::less<>> read_component_backends(const std::string& text) {
  std::map<std::string, std::string, std::less<>> out;
  std::vector<std::pair<std::string, std::string>> entries;
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      if (!value.is_string()) throw_user_error("{}: the backend of {} must be a name", kComponents, key);
      entries.emplace_back(key, value.get<std::string>());
    }
  } else {
    for (const std::string& pair : split_list(text)) {
      if (trimmed(pair).empty()) continue;
      const std::size_t equals = pair.find('=');
      if (equals == std::string::npos)
        throw_user_error("{} {}: must be COMPONENT=BACKEND, for example text_encoder=torch_sdpa", kComponents,
                         pair);
      entries.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
    }
  }
  for (auto& [raw, backend] : entries) {
    std::string key = trimmed(raw);
    std::ranges::replace(key, '-', '_');
    if (key.empty() || key.front() == '.') throw_user_error("{}: an entry names no component", kComponents);
    if (const std::size_t dot = key.rfind('.'); dot != std::string::npos) {
      key = to_lower(std::move(key));
      if (std::ranges::find(kRoles, std::string_view(key).substr(dot + 1)) == kRoles.end())
        throw_user_error("{} {}: the role must be self or cross", kComponents, key);
    }
    out[key] = attention::find_diffusion_backend(kComponents, trimmed(backend)).name;
  }
  return out;
}

AttentionSelection choose_attention(const AttentionAsked& asked, const rank::PipelineConfig& config,
                                    const proto::HardwareProfile& hardware, std::uint32_t ring) {
  AttentionSelection out;
  const std::map<std::string, std::string, std::less<>> by_component =
      read_component_backends(asked.components);
  for (const auto& [key, backend] : by_component) {
    const std::string name = key.substr(0, key.find('.'));
    std::vector<std::string_view> known;
    for (const rank::PipelineComponent& c : config.components) {
      if (attends(c)) known.push_back(c.name);
    }
    if (std::ranges::find(known, name) == known.end())
      throw_user_error("{} {}: is no component of {} that attends, use {}", kComponents, name, config.name,
                       join_or(known));
  }
  for (const rank::PipelineComponent& c : config.components) {
    if (attends(c)) check_asked(by_component, c);
  }
  std::string global = asked.backend;
  if (!global.empty()) global = attention::find_diffusion_backend(kGlobal, global).name;
  if (ring > 1) {
    if (global.empty()) {
      global = kRingCapable[0];
      out.notes.push_back(
          "--attention-backend fa, chosen by SGLang: of the GPUs that pass keys and values round");
    } else if (std::ranges::find(kRingCapable, global) == kRingCapable.end()) {
      throw_user_error("{} {}: cannot pass keys and values round (--ring-degree {}); use fa or sage_attn",
                       kGlobal, global, ring);
    }
  }
  const std::optional<attention::GpuGeneration> generation =
      attention::parse_gpu_generation(hardware.architecture());
  if (!generation) throw_user_error("--hardware {}: is of no known kind", hardware.name());
  std::vector<const attention::DiffusionBackend*> sharing;
  for (const std::string& name : asked.sharing)
    sharing.push_back(&attention::find_diffusion_backend("--attention-backends", name));
  for (const rank::PipelineComponent& component : config.components) {
    if (!attends(component)) continue;
    if (!component.selects) {
      out.rows.push_back({component.name, std::string(kRoles[0]), "its own",
                          fmt::format("{} attends by itself, through no backend", component.class_name)});
      continue;
    }
    const bool transformer = component.kind == rank::ComponentKind::kTransformer;
    rank::PipelinePlan::Attention chosen{};
    bool replaced = false;
    for (const std::string_view role : kRoles) {
      const bool cross = role == "cross";
      attention::DiffusionAttentionRequest request;
      request.generation = *generation;
      request.head_dim = component.head_dim;
      request.dtype = component.bytes_per_parameter == 4 ? "fp32" : "bf16";
      request.cross = cross;
      request.ring = transformer && !cross && ring > 1;
      request.video = config.video && transformer;  // text is no grid
      const std::optional<std::string> of_role = find(by_component, component.name, role);
      const std::optional<std::string> of_component = find(by_component, component.name, "");
      request.explicit_component = of_role || of_component;
      request.requested = of_role ? *of_role : of_component ? *of_component : global;
      request.flag = request.explicit_component ? kComponents : kGlobal;
      request.auxiliary = !transformer;
      if (asked.installed) request.installed = *asked.installed;
      const attention::DiffusionAttentionChoice choice = attention::choose_diffusion_attention(request);
      (cross ? chosen.cross : chosen.self) = choice.backend;
      if (!cross) replaced = choice.replaced;
      if (cross && !component.cross_attention) continue;
      out.rows.push_back({component.name, std::string(role), std::string(choice.backend->name),
                          choice.reason.empty() ? "asked for" : choice.reason});
    }
    // The configuration is of the backend that is asked for; what it falls back to has its own defaults.
    const bool configured = transformer && !replaced;
    chosen.parameters =
        attention::read_diffusion_parameters(*chosen.self, configured ? asked.config : "", sharing);
    out.components[component.name] = std::move(chosen);
  }
  return out;
}

}  // namespace tpsim::launch
