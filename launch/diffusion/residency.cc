#include "launch/diffusion/residency.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string_view>

#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

using rank::ComponentKind;
using rank::Residency;

// auto_tune.py: AUTO_ALL_RESIDENT_WEIGHT_MULTIPLE, AUTO_DIT_MAX_DEVICE_FRACTION, IMAGE_GEN_... and
// DEFAULT_KEEP_RESIDENT_MIN_AVAILABLE_GB; server_args.py _adjust_offload: below 30 all is offloaded.
constexpr double kAllResidentMultiple = 2, kMostOfDevice = 0.8, kImageGib = 45, kVideoGib = 120,
                 kSmallGib = 30;
// What a process has taken of an idle GPU when SGLang looks: CUDA's context.
constexpr double kContextGib = 0.5;

constexpr std::string_view kDit = "dit", kText = "text_encoder", kImage = "image_encoder", kVae = "vae",
                           kAll = "all", kDefault = "default", kNone = "none";
constexpr std::array kGroups = {kDit, kText, kImage, kVae};

std::string_view group_of(ComponentKind kind) {
  switch (kind) {
    case ComponentKind::kTransformer:
      return kDit;
    case ComponentKind::kTextEncoder:
      return kText;
    case ComponentKind::kImageEncoder:
      return kImage;
    case ComponentKind::kVae:
      return kVae;
    default:
      return "";
  }
}

// The names that may stand for `component`, the most exact first.
bool stands_for(std::string_view word, const rank::PipelineComponent& component) {
  return word == kAll || word == component.name || word == group_of(component.kind);
}

using Names = std::vector<std::string>;
bool has(const std::optional<Names>& names, std::string_view name) {
  return names &&
         (std::ranges::find(*names, name) != names->end() || std::ranges::find(*names, kAll) != names->end());
}

class Tuner {
 public:
  Tuner(const ResidencyAsked& asked, const ResidencyRequest& request)
      : asked_(asked), request_(request), rule_(*request.rule) {
    read_modes();
    cpu_components_ = names_of("--cpu-offload-components", asked.cpu_offload_components);
    layerwise_ = names_of("--layerwise-offload-components", asked.layerwise_offload_components);
    layerwise_given_ = layerwise_;
    dit_ = asked.dit_cpu_offload;
    dit_layerwise_ = asked.dit_layerwise_offload;
    text_ = asked.text_encoder_cpu_offload;
    image_ = asked.image_encoder_cpu_offload;
    vae_ = asked.vae_cpu_offload.value_or(false);
    available_gib_ = request.memory_bytes / kGib - kContextGib;
    all_resident_ = is_auto() && request.batching_max_size <= 1 && sized() &&
                    available_gib_ * kGib >= kAllResidentMultiple * weight_bytes();
  }

  ResidencyChoice tune();

 private:
  bool is_auto() const { return request_.performance_mode == "auto"; }
  bool image_pipeline() const { return !request_.config->video; }
  // checkpoint_component_sizes() gives up on a component with an element that is no float: FLUX.2's VAE
  // counts the batches that its norm has seen (bn.num_batches_tracked).
  bool sized() const {
    return !request_.quantised &&
           std::ranges::find(request_.config->components, "AutoencoderKLFlux2",
                             &rank::PipelineComponent::class_name) == request_.config->components.end();
  }
  double weight_bytes() const;
  double threshold() const {
    return rule_.resident_gib > 0 ? rule_.resident_gib : image_pipeline() ? kImageGib : kVideoGib;
  }
  bool kept(std::string_view group) const {
    return all_resident_ || (group == kDit && (rule_.keep_dit || image_pipeline())) ||
           (group == kVae && rule_.keep_vae);
  }
  void read_modes();
  std::optional<Names> names_of(std::string_view flag, const std::optional<Names>& given);
  void check_name(std::string_view flag, std::string_view name, bool none) const;
  std::optional<Residency> explicit_mode(const rank::PipelineComponent& component) const;
  std::optional<Residency> explicit_mode(std::string_view name, ComponentKind kind) const {
    rank::PipelineComponent component;
    component.name = name;
    component.kind = kind;
    return explicit_mode(component);
  }
  bool streams_dit();
  Names layerwise_defaults();
  void offload_defaults();
  void preset();
  void keep_resident();
  void replace_with_layerwise();
  Residency mode(const rank::PipelineComponent& component) const;

  const ResidencyAsked& asked_;
  const ResidencyRequest& request_;
  const DeploymentRule& rule_;
  std::map<std::string, Residency, std::less<>> modes_;  // --component-residency
  std::optional<Names> cpu_components_, layerwise_, layerwise_given_;
  std::optional<bool> dit_, dit_layerwise_, text_, image_;
  bool vae_ = false;
  double available_gib_ = 0;
  bool all_resident_ = false;
  Names notes_;
};

double Tuner::weight_bytes() const {
  double bytes = 0;
  for (const rank::PipelineComponent& c : request_.config->components) {
    const double own = static_cast<double>(c.parameters) * c.bytes_per_parameter;
    bytes += c.kind == ComponentKind::kTransformer ? own / request_.tp : own;
  }
  return bytes;
}

void Tuner::check_name(std::string_view flag, std::string_view name, bool none) const {
  Names known(kGroups.begin(), kGroups.end());
  known.emplace_back(kAll);
  if (none) known.emplace_back(kNone);
  if (flag == "--layerwise-offload-components") known.emplace_back(kDefault);
  for (const rank::PipelineComponent& c : request_.config->components) known.push_back(c.name);
  if (std::ranges::find(known, name) != known.end()) return;
  std::vector<std::string_view> views(known.begin(), known.end());
  throw_user_error("{}: {} is no component of {}, use {}", flag, name, request_.config->name, join_or(views));
}

std::string normal(std::string text, char from, char to) {
  const auto space = [](unsigned char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && space(static_cast<unsigned char>(text.back()))) text.pop_back();
  while (!text.empty() && space(static_cast<unsigned char>(text.front()))) text.erase(0, 1);
  for (char& c : text) c = c == from ? to : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

void Tuner::read_modes() {
  constexpr std::string_view kFlag = "--component-residency";
  for (const std::string& value : asked_.component_residency) {
    for (const std::string& assignment : split_list(value)) {
      if (normal(assignment, '-', '_').empty()) continue;
      const std::size_t equals = assignment.find('=');
      if (equals == std::string::npos)
        throw_user_error("{} {}: must be COMPONENT=MODE, for example transformer=resident", kFlag,
                         assignment);
      const std::string name = normal(assignment.substr(0, equals), '-', '_');
      const std::string mode = normal(assignment.substr(equals + 1), '_', '-');
      check_name(kFlag, name, false);
      if (mode == "resident")
        modes_[name] = Residency::kResident;
      else if (mode == "component-offload")
        modes_[name] = Residency::kComponentOffload;
      else if (mode == "layerwise-offload")
        modes_[name] = Residency::kLayerwiseOffload;
      else if (mode == "snapshot-offload")
        throw_user_error("{} {}: is not simulated, use component-offload, which also copies back", kFlag,
                         assignment);
      else
        throw_user_error("{} {}: the mode must be resident, component-offload or layerwise-offload", kFlag,
                         assignment);
    }
  }
}

std::optional<Names> Tuner::names_of(std::string_view flag, const std::optional<Names>& given) {
  if (!given) return std::nullopt;
  const bool layerwise = flag == "--layerwise-offload-components";
  Names names;
  const auto add = [&names](std::string name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
  };
  for (const std::string& value : *given) {
    for (const std::string& word : split_list(value)) {
      const std::string name = normal(word, '-', '_');
      if (name.empty()) continue;
      check_name(flag, name, !layerwise);
      if (name == kDefault)
        for (const std::string_view group : {kText, kImage, kVae}) add(std::string(group));
      else
        add(name);
    }
  }
  if (!layerwise && has(names, kNone) && std::ranges::find(names, kNone) != names.end()) {
    if (names.size() > 1) throw_user_error("{}: none excludes other components", flag);
    return Names{};
  }
  if (names.empty()) return std::nullopt;
  return names;
}

// ServerArgs.explicit_residency_mode.
std::optional<Residency> Tuner::explicit_mode(const rank::PipelineComponent& component) const {
  const std::string_view group = group_of(component.kind);
  for (const std::string_view key : {std::string_view(component.name), group, kAll}) {
    if (const auto at = modes_.find(key); at != modes_.end()) return at->second;
  }
  const bool dit = component.kind == ComponentKind::kTransformer;
  const auto chosen = [&](const Names& names) {
    return std::ranges::any_of(names, [&](const std::string& word) { return stands_for(word, component); });
  };
  if (layerwise_given_ && chosen(*layerwise_given_)) return Residency::kLayerwiseOffload;
  if (dit && asked_.dit_layerwise_offload.value_or(false)) return Residency::kLayerwiseOffload;
  if (cpu_components_) {
    if (cpu_components_->empty()) return Residency::kResident;
    if (chosen(*cpu_components_)) return Residency::kComponentOffload;
  }
  const std::optional<bool> flag =
      dit                                              ? asked_.dit_cpu_offload
      : component.kind == ComponentKind::kTextEncoder  ? asked_.text_encoder_cpu_offload
      : component.kind == ComponentKind::kImageEncoder ? asked_.image_encoder_cpu_offload
      : component.kind == ComponentKind::kVae          ? asked_.vae_cpu_offload
                                                       : std::nullopt;
  if (flag) return *flag ? Residency::kComponentOffload : Residency::kResident;
  if (dit && asked_.dit_layerwise_offload) return Residency::kResident;
  return std::nullopt;
}

// _should_auto_enable_dit_layerwise_offload.
bool Tuner::streams_dit() {
  if (request_.distilled || request_.cache_dit || explicit_mode("transformer", ComponentKind::kTransformer) ||
      all_resident_)
    return false;
  if (is_auto() ? rule_.layerwise_in_auto
                : request_.performance_mode == "memory" && rule_.layerwise_in_memory)
    return true;
  if (!is_auto() || !rule_.layerwise_in_memory || available_gib_ >= threshold() || request_.quantised)
    return false;
  for (const rank::PipelineComponent& c : request_.config->components) {
    if (c.name != "transformer") continue;
    const double gib = static_cast<double>(c.parameters) * 2 / request_.tp / kGib;
    if (gib <= available_gib_ * kMostOfDevice) return false;
    notes_.push_back(
        fmt::format("the transformer streams layer by layer: its {:.1f} GiB are more than 80 % of the "
                    "{:.1f} GiB that are free",
                    gib, available_gib_));
    return true;
  }
  return false;
}

// _default_layerwise_components_for_unset_placement.
Names Tuner::layerwise_defaults() {
  if (layerwise_given_ || dit_layerwise_.value_or(false)) return {};
  Names names;
  for (const auto& [group, kind] :
       {std::pair{kText, ComponentKind::kTextEncoder}, std::pair{kImage, ComponentKind::kImageEncoder},
        std::pair{kVae, ComponentKind::kVae}}) {
    if (explicit_mode(group, kind)) continue;
    if (is_auto() &&
        (all_resident_ || (available_gib_ >= threshold() &&
                           ((group == kVae && rule_.keep_vae) || (group == kDit && rule_.keep_dit)))))
      continue;
    names.emplace_back(group);
  }
  if (streams_dit()) names.insert(names.begin(), std::string(kDit));
  return names;
}

// adjust_based_on_performance_mode.
void Tuner::preset() {
  const auto leave = [](std::optional<bool>& flag, bool value) {
    if (!flag) flag = value;
  };
  if (request_.performance_mode == "speed") {
    for (std::optional<bool>* flag : {&dit_, &dit_layerwise_, &text_, &image_}) leave(*flag, false);
  } else if (request_.performance_mode == "memory") {
    if (request_.cuda && !layerwise_) {
      if (Names names = layerwise_defaults(); !names.empty()) layerwise_ = std::move(names);
    }
    leave(dit_, true);
    leave(text_, !request_.cuda);
    leave(image_, !request_.cuda);
  }
}

// ServerArgs._adjust_offload.
void Tuner::offload_defaults() {
  const bool small = request_.memory_bytes / kGib < kSmallGib;
  if (!dit_) dit_ = true;
  if (!text_) text_ = true;
  if (!image_) image_ = small || !image_pipeline();
}

// maybe_adjust_auto_component_residency_after_offload.
void Tuner::keep_resident() {
  if (!is_auto() || !(all_resident_ || available_gib_ >= threshold())) return;
  if (layerwise_ && !layerwise_given_) {
    std::erase_if(*layerwise_, [&](const std::string& name) { return kept(name); });
    if (layerwise_->empty()) layerwise_.reset();
  }
  const auto free_of = [&](std::string_view name, ComponentKind kind) {
    return kept(name) && !explicit_mode(name, kind);
  };
  if (free_of(kDit, ComponentKind::kTransformer) &&
      !explicit_mode("transformer", ComponentKind::kTransformer) && !asked_.dit_layerwise_offload)
    dit_ = false;
  if (free_of(kText, ComponentKind::kTextEncoder)) text_ = false;
  if (free_of(kImage, ComponentKind::kImageEncoder)) image_ = false;
  if (free_of(kVae, ComponentKind::kVae)) vae_ = false;
}

// maybe_replace_cpu_offloaded_components_with_layerwise.
void Tuner::replace_with_layerwise() {
  if (!request_.cuda || request_.cache_dit || layerwise_ || dit_layerwise_.value_or(false)) return;
  Names names;
  const auto take = [&](bool offloaded, std::string_view name, ComponentKind kind) {
    if (offloaded && !explicit_mode(name, kind)) names.emplace_back(name);
  };
  take(text_.value_or(false), kText, ComponentKind::kTextEncoder);
  take(image_.value_or(false), kImage, ComponentKind::kImageEncoder);
  take(vae_, kVae, ComponentKind::kVae);
  if (!names.empty()) layerwise_ = std::move(names);
}

// ServerArgs.residency_mode.
Residency Tuner::mode(const rank::PipelineComponent& component) const {
  if (const std::optional<Residency> given = explicit_mode(component)) return *given;
  const std::string_view group = group_of(component.kind);
  if (layerwise_ && (has(layerwise_, group) || has(layerwise_, component.name)))
    return Residency::kLayerwiseOffload;
  const bool offloaded = component.kind == ComponentKind::kTransformer    ? dit_.value_or(false)
                         : component.kind == ComponentKind::kTextEncoder  ? text_.value_or(false)
                         : component.kind == ComponentKind::kImageEncoder ? image_.value_or(false)
                         : component.kind == ComponentKind::kVae          ? vae_
                                                                          : false;
  return offloaded ? Residency::kComponentOffload : Residency::kResident;
}

ResidencyChoice Tuner::tune() {
  preset();
  if (request_.performance_mode != "manual") {
    offload_defaults();
    if (is_auto() && request_.cuda && !layerwise_ && !dit_layerwise_.value_or(false)) {
      if (Names names = layerwise_defaults(); !names.empty()) layerwise_ = std::move(names);
    }
    keep_resident();
    replace_with_layerwise();
  }
  // _adjust_layerwise_offload_components.
  if (dit_layerwise_.value_or(false)) {
    if (!layerwise_) layerwise_.emplace();
    if (!has(layerwise_, kDit)) layerwise_->insert(layerwise_->begin(), std::string(kDit));
  }
  if (has(layerwise_, kText)) text_ = false;
  if (has(layerwise_, kImage)) image_ = false;
  if (has(layerwise_, kVae)) vae_ = false;
  if (asked_.dit_layerwise_offload && !*asked_.dit_layerwise_offload &&
      explicit_mode("transformer", ComponentKind::kTransformer).value_or(Residency::kResident) ==
          Residency::kResident)
    dit_ = false;
  ResidencyChoice choice{.components = {}, .notes = std::move(notes_)};
  Names moved;
  for (const rank::PipelineComponent& c : request_.config->components) {
    const Residency where = mode(c);
    choice.components[c.name] = where;
    if (where != Residency::kResident && !explicit_mode(c))
      moved.push_back(
          fmt::format("{} {}", c.name, where == Residency::kComponentOffload ? "whole" : "layer by layer"));
  }
  if (!moved.empty())
    choice.notes.push_back(
        fmt::format("offloaded unasked, as SGLang does with --performance-mode {} and {:.0f} GiB free: {}",
                    request_.performance_mode, available_gib_, fmt::join(moved, ", ")));
  return choice;
}

}  // namespace

ResidencyChoice resolve_residency(const ResidencyAsked& asked, const ResidencyRequest& request) {
  return Tuner(asked, request).tune();
}

}  // namespace tpsim::launch
