#include "launch/commands/backends_report.h"

#include <algorithm>

#include "attention/selection/registry.h"
#include "launch/deployment/attention.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

constexpr const char* kBackendFlag = "--attention-backend";

// The others that `prefill` can be paired with.
std::vector<std::string> decode_backends(const ServerArgs& args, const proto::HardwareProfile& hardware,
                                         const rank::ModelConfig& model, const std::string& prefill) {
  std::vector<std::string> names;
  for (const attention::BackendDescription* backend : attention::backend_list()) {
    const std::string decode(backend->row.name);
    if (judge_pair(args, {prefill, decode}, kBackendFlag, hardware, model).obstacle.empty())
      names.push_back(decode);
  }
  return names;
}

}  // namespace

BackendsReport report_backends(const ServerArgs& args, const proto::HardwareProfile& hardware,
                               const rank::ModelConfig& model) {
  BackendsReport report;
  report.hardware = hardware.name();
  report.model = model.name;
  try {
    const attention::AutomaticChoice choice = attention::choose_backend(selection_of(hardware, model));
    report.chosen = choice.backend;
    report.reason = choice.reason;
    AttentionChoice resolved = choose_attention(args, nullptr, hardware, model);
    resolved.notes.erase(resolved.notes.begin());  // the choice itself
    report.notes = std::move(resolved.notes);
    report.notes.insert(report.notes.end(), resolved.warnings.begin(), resolved.warnings.end());
  } catch (const UserError& error) {
    if (report.chosen.empty())
      report.reason = error.what();
    else
      report.notes.emplace_back(error.what());
  }
  for (const attention::BackendDescription* backend : attention::backend_list()) {
    const std::string name(backend->row.name);
    const PairVerdict verdict = judge_pair(args, {name, name}, kBackendFlag, hardware, model);
    BackendsReport::Runs runs{.backend = name,
                              .page_size = verdict.page_size,
                              .kv_cache_dtype = std::string(to_string(verdict.kv_format))};
    if (!verdict.obstacle.empty() && backend->row.prefill_only) {
      runs.prefill_only = true;
      runs.decode = decode_backends(args, hardware, model, name);
    }
    if (verdict.obstacle.empty() || !runs.decode.empty())
      report.can_run.push_back(std::move(runs));
    else
      report.cannot.push_back({name, verdict.obstacle});
  }
  std::stable_partition(report.can_run.begin(), report.can_run.end(),
                        [&](const auto& runs) { return runs.backend == report.chosen; });
  return report;
}

DefaultBackend default_backend(const proto::HardwareProfile& hardware, bool mla) {
  DefaultBackend choice{.hardware = hardware.name(), .mla = mla, .backend = "", .reason = ""};
  try {
    attention::AutomaticChoice found =
        attention::choose_backend({.generation = generation_of(hardware), .mla = mla});
    choice.backend = std::move(found.backend);
    choice.reason = std::move(found.reason);
  } catch (const UserError& error) {
    choice.reason = error.what();
  }
  return choice;
}

nlohmann::ordered_json to_json(const attention::SupportMatrix& matrix) {
  nlohmann::ordered_json json = {{"columns", matrix.columns}, {"rows", nlohmann::ordered_json::array()}};
  for (const attention::SupportMatrix::Line& line : matrix.lines)
    json["rows"].push_back({{"backend", line.backend}, {"cells", line.cells}});
  return json;
}

nlohmann::ordered_json to_json(const BackendsReport& report) {
  nlohmann::ordered_json json = {{"hardware", report.hardware},
                                 {"model", report.model},
                                 {"chosen", report.chosen},
                                 {"reason", report.reason},
                                 {"notes", report.notes},
                                 {"can_run", nlohmann::ordered_json::array()},
                                 {"cannot_run", nlohmann::ordered_json::array()}};
  for (const BackendsReport::Runs& runs : report.can_run) {
    nlohmann::ordered_json entry = {{"backend", runs.backend}};
    if (runs.prefill_only) {
      entry["decode_backends"] = runs.decode;
    } else {
      entry["page_size"] = runs.page_size;
      entry["kv_cache_dtype"] = runs.kv_cache_dtype;
    }
    entry["prefill_only"] = runs.prefill_only;
    json["can_run"].push_back(std::move(entry));
  }
  for (const BackendsReport::Cannot& cannot : report.cannot)
    json["cannot_run"].push_back({{"backend", cannot.backend}, {"reason", cannot.reason}});
  return json;
}

nlohmann::ordered_json to_json(const DefaultBackend& choice) {
  return {{"hardware", choice.hardware},
          {"form", choice.mla ? "MLA" : "MHA"},
          {"backend", choice.backend},
          {"reason", choice.reason}};
}

}  // namespace tpsim::launch
